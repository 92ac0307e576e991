"""`make demo`: the real server, a real client, every operation, and a transcript a person can read."""

import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from jsonschema import Draft202012Validator
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from rich.console import Console
from rich.text import Text

from foundry_mcp.core.contracts import Contract, encode
from foundry_mcp.core.schemas import json_schema
from foundry_mcp.operations import REGISTRY
from foundry_mcp.operations.server import CONTRACT_META_KEY

Step = tuple[str, str, dict[str, Any]]
SHOWN_CHARACTERS = 320

console = Console(highlight=False, soft_wrap=True)


SPEC = "demo"
OUTLINE = """
## Prepare
- [ ] Read the brief
- [ ] Agree on the goal
## Build
- [ ] Write the code
  - [ ] the parser
  - [ ] the printer
- [ ] verify: Run the tests
"""


def steps() -> Iterator[Step]:
    """What is asked, in the order of a story."""
    yield from _the_server()
    yield from _a_spec()
    yield from _its_tasks()
    yield from _its_past()
    yield "What has been counted meanwhile?", "server", {"action": "metrics"}


def _the_server() -> Iterator[Step]:
    yield "How is the server?", "server", {"action": "health"}
    yield "What can it do?", "server", {"action": "capabilities"}
    yield "Which actions are there, with which parameters?", "server", {"action": "tools", "tool": "server"}
    yield "Which feature flags are set?", "server", {"action": "flags"}
    yield "What does an answer look like, exactly?", "server", {"action": "schema", "form": "response-v2"}
    wanted = {"response_contract": "v2"}
    yield (
        "Let us agree on response-v2.",
        "server",
        {"action": "capability-negotiate", "client_capabilities": wanted},
    )
    yield "A slip of the pen:", "server", {"action": "helth"}
    yield "A parameter that does not exist:", "server", {"action": "flags", "nmae": "response_contract_v2"}
    yield "A tool that does not exist:", "servant", {}
    yield "The same health, in the legacy form:", "server", {"action": "health", CONTRACT_META_KEY: "v1"}
    yield "And in the knowledge form:", "server", {"action": "health", CONTRACT_META_KEY: "knowledge"}


def _a_spec() -> Iterator[Step]:
    yield "No specs yet: an empty list is a success.", "spec", {"action": "list"}
    outline = {
        "action": "create",
        "title": "A demo",
        "outline": OUTLINE,
        "spec_id": SPEC,
        "idempotency_key": "once",
    }
    yield "Make a spec from an outline.", "spec", outline
    yield "The same call again, after a lost answer, does nothing twice.", "spec", outline
    yield "Show it as an outline.", "spec", {"action": "get", "spec_id": SPEC, "view": "outline"}
    yield (
        "Write down what is assumed.",
        "spec",
        {"action": "update", "spec_id": SPEC, "assumptions": ["time is short"]},
    )
    yield "Is it sound?", "spec", {"action": "validate", "spec_id": SPEC}
    yield "Is there anything to mend?", "spec", {"action": "fix", "spec_id": SPEC}
    yield "Begin.", "spec", {"action": "activate", "spec_id": SPEC}
    yield "Find what is active.", "spec", {"action": "find", "status": "active"}


def _its_tasks() -> Iterator[Step]:
    def task(action: str, **arguments: Any) -> dict[str, Any]:
        return {"action": action, "spec_id": SPEC, **arguments}

    yield (
        "Let the code wait for the goal.",
        "task",
        task("depend", task_id="task-2-1-1", waits_for="task-1-2"),
    )
    yield "A circle is refused.", "task", task("depend", task_id="task-1-2", waits_for="task-2-1-1")
    yield "What waits for what?", "spec", {"action": "analyze", "spec_id": SPEC}
    yield "What comes next?", "task", task("next")
    yield "What could start side by side?", "task", task("ready")
    yield "Ada takes the first task.", "task", task("claim", owner="ada", lease_seconds=600)
    yield "Bob wants the same one.", "task", task("claim", task_id="task-1-1", owner="bob")
    yield "Ada begins.", "task", task("start", task_id="task-1-1", owner="ada")
    done = {"commands": ["make test"], "commit": "0a1b2c3"}
    yield (
        "Ada is done.",
        "task",
        task("complete", task_id="task-1-1", owner="ada", note="Read it.", evidence=done),
    )
    yield "Too early: it waits for the goal.", "task", task("complete", task_id="task-2-1-1")
    yield "Begin it anyway? It says why not.", "task", task("start", task_id="task-2-1-1")
    yield "Bob takes one and gives it back.", "task", task("claim", task_id="task-1-2", owner="bob")
    yield "He gives it back.", "task", task("release", task_id="task-1-2", owner="bob")
    yield "It is stuck.", "task", task("block", task_id="task-1-2", reason="Nobody answers", kind="decision")
    yield "It goes on.", "task", task("unblock", task_id="task-1-2")
    yield "One more task.", "task", task("add", title="Write the manual", parent="phase-2")
    yield "A better title.", "task", task("update", task_id="task-2-2", title="Write the handbook")
    yield "It belongs to the first phase.", "task", task("move", task_id="task-2-2", parent="phase-1")
    yield "No, it does not belong here at all.", "task", task("remove", task_id="task-2-2")
    changes = [{"action": "complete", "task_id": "task-1-2"}, {"action": "complete", "task_id": "nowhere"}]
    yield "Two changes in one write, one of them wrong.", "task", task("batch", changes=changes, partial=True)
    yield "That was too fast.", "task", task("reset", task_id="task-1-2")
    yield "One task, with everything it takes to begin.", "task", task("get", task_id="task-2-1-1")
    yield "All tasks, two to a page.", "task", task("query", limit=2)
    yield "How far are we?", "task", task("progress")


def _its_past() -> Iterator[Step]:
    yield "Write down a decision.", "journal", {
        "action": "add", "spec_id": SPEC, "content": "We use SQLite.", "kind": "decision",
    }  # fmt: skip
    yield "What was decided?", "journal", {"action": "list", "spec_id": SPEC, "kind": "decision"}
    yield "What changed last?", "spec", {"action": "diff", "spec_id": SPEC}
    yield "Which revisions are kept?", "spec", {"action": "history", "spec_id": SPEC, "limit": 3}
    yield "Back to the second, just to look.", "spec", {
        "action": "rollback", "spec_id": SPEC, "revision": 2, "dry_run": True,
    }  # fmt: skip
    yield "All of it, in 600 tokens: what does not fit is archived.", "spec", {
        "action": "get", "spec_id": SPEC, "max_tokens": 600,
    }  # fmt: skip
    yield "What is in the archive?", "content", {"action": "list"}
    yield "Fetch one of the pieces.", "content", {"action": "get", "id": "verify-2-1"}
    yield "Close it? There are open tasks.", "spec", {"action": "complete", "spec_id": SPEC}
    yield "Put it aside.", "spec", {"action": "archive", "spec_id": SPEC}
    yield "Take it out again.", "spec", {"action": "move", "spec_id": SPEC, "to": "pending"}


async def main() -> int:
    validators = {form: Draft202012Validator(json_schema(form)) for form in map(str, Contract)}
    called: set[str] = set()
    conforming = calls = 0
    with TemporaryDirectory() as workspace:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "foundry_mcp", "--workspace", workspace, "--log-level", "warning"],
        )
        async with Client(stdio_client(server)) as client:
            console.print(f"[bold]foundry-mcp[/] over stdio, protocol {client.protocol_version}\n")
            for said, tool, arguments in steps():
                contract = arguments.pop(CONTRACT_META_KEY, None)
                meta = {CONTRACT_META_KEY: contract} if contract else None
                result = await client.call_tool(tool, arguments, meta=meta)  # type: ignore[arg-type] # `_meta` is open by design
                form = {None: "response-v2", "v1": "response-v1"}.get(contract, contract)
                problems = list(validators[str(form)].iter_errors(result.structured_content))
                calls += 1
                conforming += not problems
                called.add(f"{tool}.{arguments['action']}" if "action" in arguments else tool)
                _show(said, tool, arguments, result, [problem.message for problem in problems])
    missed = [declared.name for declared in REGISTRY if declared.name not in called]
    console.print(
        f"[bold]{calls} calls, {conforming} conforming answers[/], {len(list(REGISTRY))} operations, all called"
    )
    if missed:
        console.print(f"[red]not called: {', '.join(missed)}")
    return 0 if conforming == calls and not missed else 1


def _show(said: str, tool: str, arguments: dict[str, Any], result: Any, problems: list[str]) -> None:
    console.print(Text(said, style="bold"))
    asked = ", ".join(f"{key}={encode(value).decode()}" for key, value in arguments.items())
    console.print(Text(f"  → {tool}({asked})", style="cyan"))
    text = result.content[0].text
    shown = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}… ({len(text)} characters)"
    console.print(Text(f"  ← {shown}", style="red" if result.is_error else "green"))
    for problem in problems:
        console.print(Text(f"    does not conform: {problem}", style="bold red"))
    console.print()


if __name__ == "__main__":
    sys.exit(anyio.run(main))
