"""What to tell of specs and tasks: a line, a row, or all that somebody needs to begin."""

from contextlib import suppress
from typing import Any

from foundry_mcp.core.errors import FoundryError
from foundry_mcp.core.specs import claims, graph, journal
from foundry_mcp.core.specs.model import Node, Spec, is_task, natural
from foundry_mcp.core.specs.store import SpecStore

__all__ = ["by_status", "line", "mentions", "owner", "row", "shared_files", "standstill", "whole"]

JOURNAL_SHOWN = 5


def line(spec: Spec, node_id: str) -> dict[str, Any]:
    node = spec.nodes[node_id]
    depth = sum(1 for _ in spec.ancestors(node_id))
    told = {
        "id": node_id,
        "type": node["type"],
        "title": node.get("title", ""),
        "status": node["status"],
        "depth": depth,
    }
    if is_task(node):
        return told
    return {
        **told,
        "completed_tasks": node.get("completed_tasks", 0),
        "total_tasks": node.get("total_tasks", 0),
    }


def row(spec: Spec, task_id: str) -> dict[str, Any]:
    """A task in one line. Who has it changes with the clock; the rest is worked out once."""
    known = spec.once(_rows)
    told = known.get(task_id)
    if told is None:
        node = spec.nodes[task_id]
        told = known[task_id] = {
            "task_id": task_id,
            "description": node.get("title", ""),
            "status": node["status"],
            "type": node["type"],
            "phase": spec.phase_of(task_id),
        }
    held_by = owner(spec, task_id)
    return {**told, "owner": held_by} if held_by else told


def _rows(_spec: Spec) -> dict[str, dict[str, Any]]:
    return {}


def by_status(spec: Spec) -> dict[str, list[str]]:
    """The tasks in each state, in order."""
    found: dict[str, list[str]] = {}
    for task_id in spec.tasks:
        found.setdefault(spec.nodes[task_id]["status"], []).append(task_id)
    return found


def whole(spec: Spec, task_id: str) -> dict[str, Any]:
    node = spec.nodes[task_id]
    facts = dict(node.get("metadata", {}))
    waits_for = graph.blockers(spec, task_id)
    held = claims.holder(node)
    return {
        **row(spec, task_id),
        "title": node.get("title", ""),
        "parent": node.get("parent"),
        "children": spec.children(task_id),
        "acceptance_criteria": facts.pop("acceptance_criteria", []),
        "files": files(node),
        "waits_for": [row(spec, other) for other in waits_for if other in spec.nodes],
        "blocked_by": graph.unmet(spec, task_id),
        "waited_for_by": graph.dependents(spec, task_id),
        "can_start": graph.is_ready(spec, task_id),
        "claim": held,
        "metadata": {key: value for key, value in facts.items() if key not in {"claim", "files"}},
        "dependency_journal": [
            entry for other in waits_for for _, entry in journal.select(spec, task_id=other)[-JOURNAL_SHOWN:]
        ],
        "journal": [entry for _, entry in journal.select(spec, task_id=task_id)[-JOURNAL_SHOWN:]],
    }


def owner(spec: Spec, task_id: str) -> str | None:
    node = spec.nodes[task_id]
    held = claims.holder(node)
    owner = held["owner"] if held else node.get("metadata", {}).get("owner")
    return str(owner) if owner else None


def mentions(spec: Spec, task_id: str, text: str) -> bool:
    node = spec.nodes[task_id]
    return (
        text
        in f"{task_id} {node.get('title', '')} {node.get('metadata', {}).get('description', '')}".casefold()
    )


def standstill(spec: Spec) -> str:
    """Why nothing can start: everything is done, under way, taken, or waiting."""
    states = {spec.nodes[node_id]["status"] for node_id in spec.leaves}
    if states <= {"completed"}:
        return "completed"
    if spec.once(graph.ready):
        return "all_claimed"
    return "in_progress" if "in_progress" in states else "blocked"


def shared_files(store: SpecStore, spec: Spec) -> list[dict[str, Any]]:
    mine = open_files(spec)
    shared: dict[str, list[str]] = {}
    for entry in store.index(("active", "pending")):
        if entry.spec_id == spec.id or not mine:
            continue
        with suppress(FoundryError):  # a spec that cannot be read says so when it is listed
            for path in mine & open_files(store.read(entry.spec_id, entry.folder)):
                shared.setdefault(path, []).append(entry.spec_id)
    return [{"file": path, "specs": sorted(others, key=natural)} for path, others in sorted(shared.items())]


def open_files(spec: Spec) -> set[str]:
    """The files that the open tasks of a spec intend to change."""
    found: set[str] = set()
    for node_id in spec.leaves:
        node = spec.nodes[node_id]
        if node["status"] != "completed":
            found |= set(files(node))
    return found


def files(node: Node) -> list[str]:
    """The files a task names, one by one or as a list; anything else there is no file."""
    facts = node.get("metadata", {})
    listed = facts.get("files")
    named = [facts.get("file_path"), *(listed if isinstance(listed, list) else [listed])]
    return [path for path in named if isinstance(path, str) and path]
