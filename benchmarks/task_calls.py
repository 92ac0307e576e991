"""What an agent waits for at each step of its work on a spec of a thousand tasks."""

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.commands import PREVIOUS, SERVER, previous_environment, previous_release
from benchmarks.json_lines_client import JsonLinesClient
from benchmarks.measurement import Measurement, interleaved, ratio
from benchmarks.sample_specs import big_spec, write_specs

SPEC, TASKS = "payment-ledger-2025-01-14-001", 1000
ROUNDS = 100
COMPLETIONS, WARM_UP = 60, 3
NEXT = {"action": "next", "spec_id": SPEC}
QUERY = {"action": "query", "spec_id": SPEC, "status": "pending", "limit": 50}
NOTE = "Done as described; the tests pass."


def measure() -> list[Measurement]:
    spec = big_spec(SPEC, TASKS)
    with tempfile.TemporaryDirectory() as name:
        here, there = Path(name, "ours"), Path(name, "previous")
        write_specs([spec], here, there)
        with (
            JsonLinesClient((SERVER,), here) as ours,
            JsonLinesClient(
                (previous_release() / "foundry-mcp",), there, previous_environment(there, Path(name))
            ) as previous,
        ):
            ours.initialize()
            previous.initialize()
            _compare(json.loads(spec.content)["hierarchy"], ours, previous)
            reads = [
                _read(ours, previous, "next", NEXT, "the next task that can start"),
                _read(ours, previous, "query", QUERY, "the first 50 tasks that are pending"),
            ]
            writes = _complete(ours, previous, here, there)
    return [*reads, writes]


def _compare(nodes: dict[str, Any], ours: JsonLinesClient, previous: JsonLinesClient) -> None:
    """Both must see the same plan, or the times mean nothing."""
    assert ours.data("task", NEXT)["task"]["task_id"] == previous.data("task", NEXT)["task_id"]
    pending = {node_id for node_id, node in nodes.items() if node["status"] == "pending"}
    phases = {node_id for node_id in pending if nodes[node_id]["type"] == "phase"}
    page, page_before = ours.data("task", QUERY), previous.data("task", QUERY)
    assert len(page["tasks"]) == len(page_before["tasks"]) == 50
    assert page["total_count"] == TASKS
    assert page["filtered_count"] == len(pending - phases)
    assert {task["task_id"] for task in page["tasks"]} <= pending
    assert {task["task_id"] for task in page_before["tasks"]} <= pending


def _read(
    ours: JsonLinesClient, previous: JsonLinesClient, action: str, arguments: dict[str, Any], what: str
) -> Measurement:
    mine, theirs = interleaved(
        ROUNDS,
        partial(ours.seconds_of_call, "task", arguments),
        partial(previous.seconds_of_call, "task", arguments),
        warm_up=5,
    )
    return ratio(
        f"`task {action}`, a spec of {TASKS:,} tasks",
        f"Asking over stdio for {what}, beside the same call to foundry-mcp {PREVIOUS} on a copy of the same"
        " file; nothing is written meanwhile.",
        mine,
        theirs,
        unit="ms",
        scale=1000,
        at_most=1 / 10,
    )


def _complete(ours: JsonLinesClient, previous: JsonLinesClient, here: Path, there: Path) -> Measurement:
    path = f"specs/active/{SPEC}.json"
    nodes = json.loads((here / path).read_bytes())["hierarchy"]
    # In the order of the file, which is the order of the work, so that none still waits for another.
    todo = [node_id for node_id, node in nodes.items() if node["type"] in {"task", "verify"}]
    todo = [task_id for task_id in todo if nodes[task_id]["status"] == "pending"][: WARM_UP + COMPLETIONS]
    mine, theirs = interleaved(
        COMPLETIONS,
        _completions(ours, todo, "note"),
        _completions(previous, todo, "completion_note"),
        warm_up=WARM_UP,
    )
    for workspace in (here, there):
        written = json.loads((workspace / path).read_bytes())
        assert all(written["hierarchy"][task_id]["status"] == "completed" for task_id in todo)
        assert [entry["task_id"] for entry in written["journal"][-len(todo) :]] == todo
    return ratio(
        f"`task complete`, a spec of {TASKS:,} tasks, durable",
        f"Completing a task with a note, another one each time; on the disk before it is answered, and with the"
        f" file before it kept, beside the same call to foundry-mcp {PREVIOUS}, which does not wait for the disk.",
        mine,
        theirs,
        unit="ms",
        scale=1000,
        at_most=1 / 5,
    )


def _completions(client: JsonLinesClient, todo: list[str], note: str) -> Callable[[], float]:
    """Each call completes the next task of the list."""
    left = iter(todo)

    def complete() -> float:
        arguments = {"action": "complete", "spec_id": SPEC, "task_id": next(left), note: NOTE}
        return client.seconds_of_call("task", arguments)

    return complete
