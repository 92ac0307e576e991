"""Who works on what: a claim is a lease that ends by itself, so nobody who dies keeps a task."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from foundry_mcp.core.errors import conflict
from foundry_mcp.core.specs import graph
from foundry_mcp.core.specs.model import Node, Spec, now_text

__all__ = ["check_holder", "check_starter", "free", "grant", "holder", "refuse_held"]


def grant(node: Node, owner: str, seconds: int) -> str:
    """Lease a task to `owner`; returns when the lease ends."""
    until = datetime.now(UTC) + timedelta(seconds=seconds)
    expires = until.isoformat(timespec="seconds").replace("+00:00", "Z")
    node.setdefault("metadata", {})["claim"] = {
        "owner": owner,
        "claimed_at": now_text(),
        "expires_at": expires,
    }
    return expires


def free(spec: Spec) -> Iterator[str]:
    """What anybody may take now: begun by somebody whose lease has ended, or ready and unclaimed."""
    for node_id in spec.once(_claimed):
        if spec.nodes[node_id]["status"] == "in_progress" and _lapsed(spec.nodes[node_id]):
            yield node_id
    for node_id in spec.once(graph.ready):
        if holder(spec.nodes[node_id]) is None:
            yield node_id


def _claimed(spec: Spec) -> list[str]:
    return [node_id for node_id in spec.leaves if _claim(spec.nodes[node_id]) is not None]


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


def check_holder(task_id: str, node: Node, owner: str | None) -> None:
    held = holder(node)
    if held is not None and held["owner"] != owner:
        refuse_held(task_id, node)


def refuse_held(task_id: str, node: Node) -> None:
    held = node["metadata"]["claim"]
    raise conflict(
        f"{task_id} is claimed by {held['owner']} until {held['expires_at']}",
        remediation="Take another task, wait until the lease ends, or name the owner if that is you.",
        task_id=task_id,
        owner=held["owner"],
        expires_at=held["expires_at"],
    )


def check_starter(task_id: str, node: Node, owner: str) -> None:
    """A task that somebody began without a claim is still theirs; a lease that ended says they are gone."""
    starter = node.get("metadata", {}).get("owner")
    if node["status"] == "in_progress" and starter and starter != owner and not _lapsed(node):
        raise conflict(
            f"{task_id} was begun by {starter}",
            remediation="Take another task, or reset this one if nobody works on it any more.",
            task_id=task_id,
            owner=starter,
        )
