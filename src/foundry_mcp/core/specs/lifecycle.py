"""The folders a spec goes through, and the moves that are legal between them.

pending ⇄ active ⇄ completed        any ──▶ archived ──▶ pending, active
"""

from typing import Any

from foundry_mcp.core.errors import conflict
from foundry_mcp.core.specs.journal import note
from foundry_mcp.core.specs.model import Folder, Spec

__all__ = ["LEGAL_MOVES", "enter"]

LEGAL_MOVES: dict[str, tuple[Folder, ...]] = {
    "pending": ("active", "archived"),
    "active": ("pending", "completed", "archived"),
    "completed": ("active", "archived"),
    "archived": ("pending", "active"),
}


def enter(spec: Spec, to: Folder, *, force: bool = False, author: str | None = None) -> dict[str, Any]:
    """Note the move in the spec; INVALID_STATE, with the legal ones, if it is none of them."""
    legal = LEGAL_MOVES[spec.folder]
    if to not in legal:
        raise conflict(
            f"{spec.id} is {spec.folder} and cannot become {to}",
            code="INVALID_STATE",
            remediation=f"From {spec.folder} a spec can become {', '.join(legal)}.",
            spec_id=spec.id,
            status=spec.folder,
            legal=list(legal),
        )
    open_tasks = [node_id for node_id in spec.leaves if spec.nodes[node_id]["status"] != "completed"]
    if to == "completed" and open_tasks and not force:
        raise conflict(
            f"{spec.id} has {len(open_tasks)} open tasks",
            code="INVALID_STATE",
            remediation="Complete them first, or complete the spec as it is with force=true.",
            spec_id=spec.id,
            open_tasks=open_tasks[:20],
            open_count=len(open_tasks),
        )
    if "status" in spec.document:  # the files of earlier versions say it twice
        spec.document["status"] = to
    note(
        spec,
        "status_change",
        f"Spec: {spec.folder} → {to}",
        author=author,
        facts={"from": spec.folder, "to": to},
    )
    return {"spec_id": spec.id, "status": to, "previous_status": spec.folder}
