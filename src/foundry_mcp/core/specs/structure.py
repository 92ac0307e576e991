"""The shape of a plan: what is in it, below what, and what waits for what. As in `tasks`, a refused change
leaves the spec as it was.
"""

from typing import Any

from foundry_mcp.core.errors import conflict, not_found, validation
from foundry_mcp.core.specs import graph
from foundry_mcp.core.specs.claims import holder, refuse_held
from foundry_mcp.core.specs.journal import note
from foundry_mcp.core.specs.model import ROOT, Node, Spec, is_task

__all__ = [
    "add",
    "attach",
    "depend",
    "id_prefix",
    "join",
    "move",
    "remove",
    "settle",
    "settle_above",
    "update",
]


def add(
    spec: Spec,
    title: str,
    *,
    parent: str | None = None,
    kind: str = "task",
    description: str = "",
    details: dict[str, Any] | None = None,
    blocked_by: list[str] | None = None,
) -> dict[str, Any]:
    """Add a task, a subtask, a verification, a group or a phase below `parent`."""
    below = parent or (ROOT if kind == "phase" else _last_phase(spec))
    _check_parent(spec, below, kind)
    _check_details(details)
    blockers = list(dict.fromkeys(blocked_by or ()))
    for blocker in blockers:
        spec.node(blocker)
    loop = graph.would_cycle_below(spec, below, waits_for=blockers)
    if loop:
        raise conflict(
            f"It would wait for itself below {below}", parent=below, blocked_by=blockers, cycle=loop
        )
    node_id = attach(spec, _fresh_id(spec, below, kind), title, below, kind)
    spec.nodes[node_id]["metadata"] = {
        **({"description": description} if description else {}),
        **(details or {}),
    }
    for blocker in blockers:
        join(spec, node_id, blocker)
    settle(spec)
    note(spec, "note", f"Added {kind}: {title}", task_id=node_id)
    return {"task_id": node_id, "status": "pending", "parent": below}


def attach(spec: Spec, node_id: str, title: str, parent: str, kind: str) -> str:
    """Put a new node below its parent, and nothing more."""
    spec.nodes[node_id] = {
        "type": kind,
        "title": title,
        "status": "pending",
        "parent": parent,
        "children": [],
        "total_tasks": 0,
        "completed_tasks": 0,
        "metadata": {},
        "dependencies": {"blocks": [], "blocked_by": [], "depends": []},
    }
    spec.nodes[parent].setdefault("children", []).append(node_id)
    return node_id


def update(
    spec: Spec,
    task_id: str,
    *,
    title: str | None = None,
    description: str | None = None,
    details: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Change what a task says; `details` is merged into its metadata, and null takes a key away."""
    node = spec.node(task_id)
    _check_details(details)
    if title is not None:
        node["title"] = title
    facts: dict[str, Any] = node.setdefault("metadata", {})
    for key, value in {
        **(details or {}),
        **({"description": description} if description is not None else {}),
    }.items():
        if value is None:
            facts.pop(key, None)
        else:
            facts[key] = value
    return {"task_id": task_id, "status": node["status"]}


RESERVED = frozenset({"claim", "blocker", "evidence", "started_at", "completed_at"})


def move(spec: Spec, task_id: str, parent: str) -> dict[str, Any]:
    """Put a task below another parent; its id stays what it was, and below a task it is a subtask."""
    node, above = spec.node(task_id), spec.node(parent)
    if node["type"] in {"spec", "phase"}:
        raise validation("task_id", "type", f"a {node['type']} cannot be moved", received=task_id)
    if parent == task_id or task_id in spec.ancestors(parent):
        raise conflict(f"{task_id} cannot be moved below itself", task_id=task_id, parent=parent)
    kind = _kind_below(node, above)
    _check_parent(spec, parent, kind)
    loop = graph.would_cycle_below(spec, parent, node_id=task_id)
    if loop:
        raise conflict(
            f"{task_id} would wait for itself below {parent}", task_id=task_id, parent=parent, cycle=loop
        )
    _detach(spec, task_id)
    above.setdefault("children", []).append(task_id)
    node["parent"], node["type"] = parent, kind
    settle(spec)
    note(spec, "note", f"Moved to {parent}", task_id=task_id)
    return {"task_id": task_id, "parent": parent, "status": node["status"]}


def remove(spec: Spec, task_id: str) -> dict[str, Any]:
    """Take a node and everything below it out of the spec, with every edge to it."""
    if task_id == ROOT:
        raise validation("task_id", "type", "the root of a spec cannot be removed", received=task_id)
    spec.node(task_id)
    gone = list(spec.walk(task_id))
    claimed = [node_id for node_id in gone if holder(spec.nodes[node_id]) is not None]
    if claimed:
        refuse_held(claimed[0], spec.nodes[claimed[0]])
    _detach(spec, task_id)
    title = spec.nodes[task_id].get("title", task_id)
    for node_id in gone:
        del spec.nodes[node_id]
    for node in spec.nodes.values():
        for edges in (node.get("dependencies") or {}).values():
            if isinstance(edges, list):
                edges[:] = [other for other in edges if other not in gone]
    settle(spec)
    note(spec, "note", f"Removed: {title}", task_id=task_id, facts={"removed": gone})
    return {"task_id": task_id, "removed": gone}


def depend(spec: Spec, task_id: str, blocker: str, *, remove: bool = False) -> dict[str, Any]:
    """Let a task wait for another, or no longer; an edge that closes a circle is refused."""
    spec.node(task_id)
    known = blocker in graph.blocked_by(spec, task_id)
    if remove:
        if not known:
            raise not_found(
                "dependency", blocker, task_id=task_id, blocked_by=graph.blocked_by(spec, task_id)
            )
        _edges(spec, task_id)["blocked_by"] = [x for x in graph.blocked_by(spec, task_id) if x != blocker]
        if blocker in spec.nodes:
            edges = _edges(spec, blocker)
            edges["blocks"] = [x for x in edges["blocks"] if x != task_id]
    else:
        spec.node(blocker)
        if known:
            raise conflict(
                f"{task_id} already waits for {blocker}",
                code="DUPLICATE_ENTRY",
                task_id=task_id,
                blocked_by=blocker,
            )
        loop = [task_id] if blocker == task_id else graph.would_cycle(spec, task_id, blocker)
        if loop:
            raise conflict(
                f"{task_id} cannot wait for {blocker}: {blocker} already waits for it",
                remediation="Remove one of the edges on the way, or choose another order.",
                task_id=task_id,
                blocked_by=blocker,
                cycle=loop,
            )
        join(spec, task_id, blocker)
    return {"task_id": task_id, "blocked_by": graph.blocked_by(spec, task_id)}


def settle(spec: Spec) -> None:
    """Work out counts and the status of everything that is made of tasks, from the leaves up."""
    spec.changed()
    for node_id in reversed(spec.order):
        _settle_one(spec, node_id)


def settle_above(spec: Spec, task_id: str) -> None:
    """The same after one task has changed its status: only what it is part of can have changed with it."""
    spec.turned()
    for node_id in (task_id, *spec.ancestors(task_id)):
        if any("total_tasks" not in spec.nodes[child] for child in spec.children(node_id)):
            settle(spec)  # a file that does not count yet: begin at the leaves
            return
        _settle_one(spec, node_id)


def _settle_one(spec: Spec, node_id: str) -> None:
    node, nodes = spec.nodes[node_id], spec.nodes
    below = [nodes[child] for child in node.get("children", ()) if child in nodes]
    if not below and is_task(node):
        node["total_tasks"], node["completed_tasks"] = 1, int(node["status"] == "completed")
        return
    node["total_tasks"] = sum(child.get("total_tasks", 0) for child in below)
    node["completed_tasks"] = sum(child.get("completed_tasks", 0) for child in below)
    node["status"] = _summed(below)


def _summed(below: list[Node]) -> str:
    statuses = {child["status"] for child in below}
    if statuses == {"completed"}:
        return "completed"
    return "in_progress" if statuses & {"in_progress", "completed"} else "pending"


def join(spec: Spec, node_id: str, blocker: str) -> None:
    for here, key, there in ((node_id, "blocked_by", blocker), (blocker, "blocks", node_id)):
        edges = _edges(spec, here)[key]
        if there not in edges:
            edges.append(there)


def id_prefix(parent: str, kind: str) -> str:
    stem = {"phase": "phase", "verify": "verify", "group": "group"}.get(kind, "task")
    numbers = "" if kind == "phase" else parent.partition("-")[2]
    return f"{stem}-{numbers}-" if numbers else f"{stem}-"


def _kind_below(node: Node, above: Node) -> str:
    """What a node is called below `above`: work below a task is a subtask, and only there."""
    if is_task(above) and is_task(node):
        return "subtask"
    return "task" if node["type"] == "subtask" else str(node["type"])


def _check_parent(spec: Spec, parent: str, kind: str) -> None:
    above = spec.node(parent)
    allowed = {"phase": {"spec"}, "group": {"phase"}, "subtask": {"task", "subtask"}}.get(
        kind, {"phase", "group"}
    )
    if above["type"] not in allowed:
        raise validation(
            "parent",
            "parent",
            f"a {kind} goes below a {' or a '.join(sorted(allowed))}, not below a {above['type']}",
            received=parent,
        )
    if is_task(above) and above["status"] == "completed":
        raise conflict(
            f"{parent} is completed and takes no more subtasks",
            code="INVALID_STATE",
            remediation="Reset it first, or choose another parent.",
            task_id=parent,
            status=above["status"],
        )


def _check_details(details: dict[str, Any] | None) -> None:
    for key in sorted(RESERVED & (details or {}).keys()):
        raise validation(
            f"metadata.{key}", "reserved", f"{key} is kept by the actions that change it", received=key
        )


def _edges(spec: Spec, node_id: str) -> dict[str, Any]:
    node = spec.nodes[node_id]
    if not isinstance(node.get("dependencies"), dict):
        node["dependencies"] = {}
    for key in ("blocks", "blocked_by", "depends"):
        node["dependencies"].setdefault(key, [])
    found: dict[str, Any] = node["dependencies"]
    return found


def _detach(spec: Spec, node_id: str) -> None:
    parent = spec.nodes.get(str(spec.nodes[node_id].get("parent")))
    if parent is not None:
        parent["children"] = [child for child in parent.get("children", ()) if child != node_id]


def _last_phase(spec: Spec) -> str:
    phases = spec.children(ROOT)
    if not phases:
        raise conflict(
            "The spec has no phase yet", code="INVALID_STATE", remediation='Add one first, with type="phase".'
        )
    return phases[-1]


def _fresh_id(spec: Spec, parent: str, kind: str) -> str:
    """phase-3, task-3-7, task-3-7-2: the parent's number and the next free one. No number is used twice."""
    prefix = id_prefix(parent, kind)
    known = (*spec.nodes, *(str(entry.get("task_id", "")) for entry in spec.journal))
    taken = [
        int(tail) for name in known if name.startswith(prefix) and (tail := name[len(prefix) :]).isdecimal()
    ]
    return f"{prefix}{max(taken, default=0) + 1}"
