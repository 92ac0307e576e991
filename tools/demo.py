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


def steps() -> Iterator[Step]:
    """What is asked, in the order of a story."""
    yield "How is the server?", "server", {"action": "health"}
    yield "What can it do?", "server", {"action": "capabilities"}
    yield "Which actions are there, with which parameters?", "server", {"action": "tools", "tool": "server"}
    yield "Which feature flags are set?", "server", {"action": "flags"}
    yield "What does an answer look like, exactly?", "server", {"action": "schema", "form": "response-v2"}
    yield (
        "Let us agree on response-v2.",
        "server",
        {
            "action": "capability-negotiate",
            "client_capabilities": {"response_contract": "v2"},
        },
    )
    yield "A slip of the pen:", "server", {"action": "helth"}
    yield "A parameter that does not exist:", "server", {"action": "flags", "nmae": "response_contract_v2"}
    yield "A tool that does not exist:", "servant", {}
    yield "The same health, in the legacy form:", "server", {"action": "health", CONTRACT_META_KEY: "v1"}
    yield "And in the knowledge form:", "server", {"action": "health", CONTRACT_META_KEY: "knowledge"}
    yield "What has been counted meanwhile?", "server", {"action": "metrics"}


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
