"""What can be done to the tasks of a spec. Each function checks everything before it changes anything, so a
refused change leaves the spec as it was.

    pending ──start──▶ in_progress ──complete──▶ completed
       ▲  ╲                │    ▲                   │
       │   ╲──complete──▶  │    │                   │
       │                 block  │                   │
       └──unblock── blocked ◀───┘                   │
       └──────────────────reset─────────────────────┘
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from foundry_mcp.core.errors import ConflictError, conflict, not_found, validation
from foundry_mcp.core.specs import graph
from foundry_mcp.core.specs.journal import note
from foundry_mcp.core.specs.model import ROOT, Node, Spec, Status, is_task, now_text

__all__ = [
    "add",
    "attach",
    "block",
    "claim",
    "complete",
    "depend",
    "free",
    "holder",
    "id_prefix",
    "join",
    "move",
    "release",
    "remove",
    "reset",
    "settle",
    "start",
    "unblock",
    "update",
]

LEGAL: dict[str, dict[str, str]] = {
    "pending": {"start": "in_progress", "complete": "completed", "block": "blocked"},
    "in_progress": {"complete": "completed", "block": "blocked", "reset": "pending"},
    "blocked": {"unblock": "pending", "reset": "pending"},
    "completed": {"reset": "pending"},
}


def start(spec: Spec, task_id: str, *, owner: str | None = None, message: str = "") -> dict[str, Any]:
    """Begin a task. One that still waits for others is not begun: the state says so, and it is no error."""
    node = _work(spec, task_id, "start", owner)
    waiting = graph.unmet(spec, task_id)
    if waiting:
        return {"task_id": task_id, "status": node["status"], "blocked_by": waiting, "can_start": False}
    _facts(node)["started_at"] = now_text()
    if owner is not None:
        _facts(node)["owner"] = owner
    _turn(spec, task_id, "in_progress", message or f"Started: {node.get('title', task_id)}", owner)
    return {"task_id": task_id, "status": "in_progress", "can_start": True}


def complete(
    spec: Spec,
    task_id: str,
    *,
    owner: str | None = None,
    message: str = "",
    evidence: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Finish a task; DEPENDENCY_ERROR while something it waits for is open."""
    node = _work(spec, task_id, "complete", owner)
    waiting = graph.unmet(spec, task_id)
    if waiting:
        raise conflict(
            f"{task_id} waits for {', '.join(waiting)}",
            code="DEPENDENCY_ERROR",
            remediation=f"Complete {', '.join(waiting)} first.",
            task_id=task_id,
            blocked_by=waiting,
        )
    facts = _facts(node)
    facts["completed_at"] = now_text()
    if message:
        facts["completion_note"] = message
    if evidence:
        facts["evidence"] = evidence
    facts.pop("claim", None)
    _turn(
        spec,
        task_id,
        "completed",
        message or f"Completed: {node.get('title', task_id)}",
        owner,
        **(evidence or {}),
    )
    return {"task_id": task_id, "status": "completed"}


def block(
    spec: Spec, task_id: str, reason: str, *, kind: str = "dependency", owner: str | None = None
) -> dict[str, Any]:
    """Say that a task cannot go on, and why."""
    node = _work(spec, task_id, "block", owner)
    _facts(node)["blocker"] = {"reason": reason, "kind": kind, "since": now_text(), "was": node["status"]}
    _turn(spec, task_id, "blocked", f"Blocked: {reason}", owner, kind=kind)
    return {"task_id": task_id, "status": "blocked", "blocker": reason}


def unblock(spec: Spec, task_id: str, *, message: str = "", owner: str | None = None) -> dict[str, Any]:
    """Say that a blocked task can go on; it returns to where it was."""
    node = _work(spec, task_id, "unblock", owner)
    was = _facts(node).pop("blocker", {}).get("was")
    status: Status = "in_progress" if was == "in_progress" else "pending"
    _turn(spec, task_id, status, message or "Unblocked", owner)
    return {"task_id": task_id, "status": status}


def reset(spec: Spec, task_id: str, *, message: str = "", owner: str | None = None) -> dict[str, Any]:
    """Take a task back to pending; its journal keeps what happened."""
    node = _work(spec, task_id, "reset", owner)
    waiting = [
        other for other in graph.dependents(spec, task_id) if spec.nodes[other]["status"] == "completed"
    ]
    if waiting:
        raise conflict(
            f"{task_id} cannot be reset: {', '.join(waiting)} built on it and is completed",
            code="INVALID_STATE",
            remediation=f"Reset {', '.join(waiting)} first.",
            task_id=task_id,
            completed_dependents=waiting,
        )
    for fact in ("claim", "blocker", "started_at", "completed_at", "completion_note", "evidence"):
        _facts(node).pop(fact, None)
    _turn(spec, task_id, "pending", message or "Reset", owner)
    return {"task_id": task_id, "status": "pending"}


def claim(spec: Spec, task_id: str | None, owner: str, *, lease_seconds: int) -> dict[str, Any]:
    """Hand a task to one owner for a while: the named one, or the next that is free."""
    if task_id is None:
        found = free(spec)
        if not found:
            return {"task_id": None, "claimed": False}
        task_id = found[0]
    else:
        node = _task(spec, task_id)
        if node["status"] in {"completed", "blocked"}:
            raise _illegal(task_id, node, "claim")
        _refuse_parent(spec, task_id, "claim")
        _check_holder(task_id, node, owner)
        _check_starter(task_id, node, owner)
        waiting = graph.unmet(spec, task_id)
        if waiting:
            return {"task_id": task_id, "claimed": False, "blocked_by": waiting, "can_start": False}
    until = datetime.now(UTC) + timedelta(seconds=lease_seconds)
    expires = until.isoformat(timespec="seconds").replace("+00:00", "Z")
    _facts(spec.nodes[task_id])["claim"] = {"owner": owner, "claimed_at": now_text(), "expires_at": expires}
    return {"task_id": task_id, "claimed": True, "owner": owner, "expires_at": expires}


def free(spec: Spec) -> list[str]:
    """What anybody may take now: ready and unclaimed, or begun by somebody whose lease has ended."""
    ready = [node_id for node_id in graph.ready(spec) if holder(spec.nodes[node_id]) is None]
    left = [
        node_id
        for node_id in spec.leaves
        if spec.nodes[node_id]["status"] == "in_progress" and _lapsed(spec.nodes[node_id])
    ]
    return left + ready


def release(spec: Spec, task_id: str, owner: str) -> dict[str, Any]:
    """Give a task back before its lease ends."""
    node = _task(spec, task_id)
    _check_holder(task_id, node, owner)
    _check_starter(task_id, node, owner)
    if holder(node) is None and node["status"] != "in_progress":
        raise conflict(
            f"{task_id} is not {owner}'s to release: nobody holds it",
            code="INVALID_STATE",
            task_id=task_id,
            status=node["status"],
        )
    _facts(node).pop("claim", None)
    _facts(node).pop("owner", None)
    if node["status"] == "in_progress":
        _turn(spec, task_id, "pending", f"Released by {owner}", owner)
    return {"task_id": task_id, "released": True, "status": node["status"]}


def holder(node: Node) -> dict[str, Any] | None:
    """The claim on a task as long as it lasts; a completed task has none."""
    held = _claim(node)
    return None if held is None or node["status"] == "completed" or _is_over(held) else held


def _claim(node: Node) -> dict[str, Any] | None:
    held: Any = node.get("metadata", {}).get("claim")
    if not isinstance(held, dict) or not all(
        isinstance(held.get(key), str) for key in ("owner", "expires_at")
    ):
        return None
    return held


def _is_over(held: dict[str, Any]) -> bool:
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return str(held["expires_at"]) <= now


def _lapsed(node: Node) -> bool:
    held = _claim(node)
    return held is not None and _is_over(held)


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
    for key in RESERVED & (details or {}).keys():
        raise validation(
            f"details.{key}", "reserved", f"{key} is kept by the actions that change it", received=key
        )
    if title is not None:
        node["title"] = title
    facts = _facts(node)
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
    kind = (
        "subtask"
        if is_task(node) and is_task(above)
        else "task"
        if node["type"] == "subtask"
        else node["type"]
    )
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
        _refuse_held(claimed[0], spec.nodes[claimed[0]])
    _detach(spec, task_id)
    title = spec.nodes[task_id].get("title", task_id)
    for node_id in gone:
        del spec.nodes[node_id]
    for node in spec.nodes.values():
        for edges in (node.get("dependencies") or {}).values():
            if isinstance(edges, list):
                edges[:] = [other for other in edges if other not in gone]
    settle(spec)
    note(spec, "note", f"Removed: {title}", task_id=task_id, removed=gone)
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
        node = spec.nodes[node_id]
        below = [spec.nodes[child] for child in spec.children(node_id)]
        if not below and is_task(node):
            node["total_tasks"], node["completed_tasks"] = 1, int(node["status"] == "completed")
            continue
        node["total_tasks"] = sum(child.get("total_tasks", 0) for child in below)
        node["completed_tasks"] = sum(child.get("completed_tasks", 0) for child in below)
        node["status"] = _summed(below)


def _summed(below: list[Node]) -> str:
    statuses = {child["status"] for child in below}
    if statuses == {"completed"}:
        return "completed"
    return "in_progress" if statuses & {"in_progress", "completed"} else "pending"


def _task(spec: Spec, task_id: str) -> Node:
    node = spec.node(task_id)
    if not is_task(node):
        raise validation(
            "task_id",
            "type",
            f"{task_id} is a {node.get('type')}, not a task",
            received=task_id,
            remediation="A phase or group has the state of its tasks; name one of those.",
        )
    return node


def _work(spec: Spec, task_id: str, action: str, owner: str | None) -> Node:
    """The task, if this action may be done to it now by this owner."""
    node = _task(spec, task_id)
    if action not in LEGAL.get(node["status"], {}):
        raise _illegal(task_id, node, action)
    if action != "complete":
        _refuse_parent(spec, task_id, action)
    open_below = [child for child in spec.children(task_id) if spec.nodes[child]["status"] != "completed"]
    if action == "complete" and open_below:
        raise conflict(
            f"{task_id} has open subtasks: {', '.join(open_below)}",
            code="DEPENDENCY_ERROR",
            remediation=f"Complete {', '.join(open_below)} first.",
            task_id=task_id,
            blocked_by=open_below,
        )
    _check_holder(task_id, node, owner)
    return node


def _refuse_parent(spec: Spec, task_id: str, action: str) -> None:
    below = spec.children(task_id)
    if below:
        raise conflict(
            f"Cannot {action} {task_id}: it has subtasks, and its state is theirs",
            code="INVALID_STATE",
            remediation=f"Name one of its subtasks: {', '.join(below)}.",
            task_id=task_id,
            subtasks=below,
        )


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
        raise _illegal(parent, above, "put a subtask below")


def _check_details(details: dict[str, Any] | None) -> None:
    for key in sorted(RESERVED & (details or {}).keys()):
        raise validation(
            f"metadata.{key}", "reserved", f"{key} is kept by the actions that change it", received=key
        )


def _check_starter(task_id: str, node: Node, owner: str) -> None:
    """A task that somebody began without a claim is still theirs; a lease that ended says they are gone."""
    starter = node.get("metadata", {}).get("owner")
    if node["status"] == "in_progress" and starter and starter != owner and not _lapsed(node):
        raise conflict(
            f"{task_id} was begun by {starter}",
            remediation="Take another task, or reset this one if nobody works on it any more.",
            task_id=task_id,
            owner=starter,
        )


def _illegal(task_id: str, node: Node, action: str) -> ConflictError:
    legal = list(LEGAL.get(node["status"], {"reset": ""}))
    return conflict(
        f"Cannot {action} {task_id}: it is {node['status']}",
        code="INVALID_STATE",
        remediation=f"What can be done to a task that is {node['status']}: {', '.join(legal)}.",
        task_id=task_id,
        status=node["status"],
        legal=legal,
    )


def _check_holder(task_id: str, node: Node, owner: str | None) -> None:
    held = holder(node)
    if held is not None and held["owner"] != owner:
        _refuse_held(task_id, node)


def _refuse_held(task_id: str, node: Node) -> None:
    held = node["metadata"]["claim"]
    raise conflict(
        f"{task_id} is claimed by {held['owner']} until {held['expires_at']}",
        remediation="Take another task, wait until the lease ends, or name the owner if that is you.",
        task_id=task_id,
        owner=held["owner"],
        expires_at=held["expires_at"],
    )


def _turn(spec: Spec, task_id: str, status: Status, said: str, author: str | None, **facts: Any) -> None:
    node = spec.nodes[task_id]
    before, node["status"] = node["status"], status
    settle(spec)
    title = f"{node.get('title', task_id)}: {before} → {status}"
    note(
        spec,
        "status_change",
        title,
        said,
        task_id=task_id,
        author=author,
        **{"from": before, "to": status, **facts},
    )


def _facts(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.setdefault("metadata", {})
    return found


def _edges(spec: Spec, node_id: str) -> dict[str, Any]:
    node = spec.nodes[node_id]
    if not isinstance(node.get("dependencies"), dict):
        node["dependencies"] = {}
    for key in ("blocks", "blocked_by", "depends"):
        node["dependencies"].setdefault(key, [])
    found: dict[str, Any] = node["dependencies"]
    return found


def join(spec: Spec, node_id: str, blocker: str) -> None:
    for here, key, there in ((node_id, "blocked_by", blocker), (blocker, "blocks", node_id)):
        edges = _edges(spec, here)[key]
        if there not in edges:
            edges.append(there)


def _detach(spec: Spec, node_id: str) -> None:
    parent = spec.nodes.get(str(spec.nodes[node_id].get("parent")))
    if parent is not None:
        parent["children"] = [child for child in parent.get("children", ()) if child != node_id]


def _last_phase(spec: Spec) -> str:
    phases = spec.children(ROOT)
    if not phases:
        raise conflict(
            "The spec has no phase yet", code="INVALID_STATE", remediation='Add one first, with kind="phase".'
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


def id_prefix(parent: str, kind: str) -> str:
    stem = {"phase": "phase", "verify": "verify", "group": "group"}.get(kind, "task")
    numbers = "" if kind == "phase" else parent.partition("-")[2]
    return f"{stem}-{numbers}-" if numbers else f"{stem}-"
