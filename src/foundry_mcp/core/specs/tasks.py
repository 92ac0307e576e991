"""What can happen to the tasks of a spec. Each function checks everything before it changes anything, so a
refused change leaves the spec as it was.

    pending ──start──▶ in_progress ──complete──▶ completed
       ▲  ╲                │    ▲                   │
       │   ╲──complete──▶  │    │                   │
       │                 block  │                   │
       └──unblock── blocked ◀───┘                   │
       └──────────────────reset─────────────────────┘
"""

from collections.abc import Mapping
from typing import Any

from foundry_mcp.core.errors import ConflictError, conflict, validation
from foundry_mcp.core.specs import claims, graph
from foundry_mcp.core.specs.journal import note
from foundry_mcp.core.specs.model import Node, Spec, Status, is_task, now_text
from foundry_mcp.core.specs.structure import settle_above

__all__ = ["block", "claim", "complete", "release", "reset", "start", "unblock"]

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
    facts["completed_at"] = now_text(_text(facts.get("started_at")))
    if message:
        facts["completion_note"] = message
    if evidence:
        facts["evidence"] = evidence
    facts.pop("claim", None)
    said = message or f"Completed: {node.get('title', task_id)}"
    _turn(spec, task_id, "completed", said, owner, {"evidence": evidence} if evidence else {})
    return {"task_id": task_id, "status": "completed"}


def block(
    spec: Spec, task_id: str, reason: str, *, kind: str = "dependency", owner: str | None = None
) -> dict[str, Any]:
    """Say that a task cannot go on, and why."""
    node = _work(spec, task_id, "block", owner)
    _facts(node)["blocker"] = {"reason": reason, "kind": kind, "since": now_text(), "was": node["status"]}
    _turn(spec, task_id, "blocked", f"Blocked: {reason}", owner, {"kind": kind})
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
    waiting = _built_on(spec, task_id) if node["status"] == "completed" else []
    if waiting:
        raise conflict(
            f"{task_id} cannot be reset: {', '.join(waiting)} built on it and is completed",
            code="INVALID_STATE",
            remediation=f"Reset {', '.join(waiting)} first.",
            task_id=task_id,
            completed_dependents=waiting,
        )
    for fact in ("claim", "owner", "blocker", "started_at", "completed_at", "completion_note", "evidence"):
        _facts(node).pop(fact, None)
    _turn(spec, task_id, "pending", message or "Reset", owner)
    return {"task_id": task_id, "status": "pending"}


def claim(spec: Spec, task_id: str | None, owner: str, *, lease_seconds: int) -> dict[str, Any]:
    """Hand a task to one owner for a while: the named one, or the next that is free."""
    if task_id is None:
        task_id = next(claims.free(spec), None)
        if task_id is None:
            return {"task_id": None, "claimed": False}
    else:
        node = _task(spec, task_id)
        if node["status"] in {"completed", "blocked"}:
            raise _illegal(task_id, node, "claim")
        _refuse_parent(spec, task_id, "claim")
        claims.check_holder(task_id, node, owner)
        claims.check_starter(task_id, node, owner)
        waiting = graph.unmet(spec, task_id)
        if waiting:
            return {"task_id": task_id, "claimed": False, "blocked_by": waiting, "can_start": False}
    expires = claims.grant(spec.nodes[task_id], owner, lease_seconds)
    if spec.nodes[task_id]["status"] == "in_progress":  # taken over from somebody whose lease had ended
        _facts(spec.nodes[task_id])["owner"] = owner
    return {"task_id": task_id, "claimed": True, "owner": owner, "expires_at": expires}


def release(spec: Spec, task_id: str, owner: str) -> dict[str, Any]:
    """Give a task back before its lease ends."""
    node = _task(spec, task_id)
    _refuse_parent(spec, task_id, "release")
    claims.check_holder(task_id, node, owner)
    claims.check_starter(task_id, node, owner)
    if claims.holder(node) is None and node["status"] != "in_progress":
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
    claims.check_holder(task_id, node, owner)
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


def _turn(
    spec: Spec,
    task_id: str,
    status: Status,
    said: str,
    author: str | None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    node = spec.nodes[task_id]
    before, node["status"] = node["status"], status
    settle_above(spec, task_id)
    title = f"{node.get('title', task_id)}: {before} → {status}"
    turned = {**(facts or {}), "from": before, "to": status}
    note(spec, "status_change", title, said, task_id=task_id, author=author, facts=turned)


def _built_on(spec: Spec, task_id: str) -> list[str]:
    """The completed tasks that could only be completed because this one was, or what it is part of."""
    later = [
        other for node_id in (task_id, *spec.ancestors(task_id)) for other in graph.dependents(spec, node_id)
    ]
    below = dict.fromkeys(leaf for other in later for leaf in spec.walk(other) if spec.is_leaf(leaf))
    return [leaf for leaf in below if spec.nodes[leaf]["status"] == "completed"]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _facts(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.setdefault("metadata", {})
    return found
