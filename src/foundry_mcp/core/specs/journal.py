"""The journal of a spec: what happened, in the order it happened, whatever the clock said."""

from collections.abc import Mapping
from typing import Any, Literal

from foundry_mcp.core.specs.model import Spec, now_text

__all__ = ["Kind", "note", "select"]

Kind = Literal["status_change", "note", "worklog", "decision", "blocker", "deviation"]
OURS = "foundry-mcp"


def note(
    spec: Spec,
    kind: str,
    title: str,
    content: str = "",
    *,
    task_id: str | None = None,
    author: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Add an entry. Its time is never before the last one's."""
    last = spec.journal[-1].get("timestamp") if spec.journal else None
    entry: dict[str, Any] = {
        "timestamp": now_text(last if isinstance(last, str) else None),
        "entry_type": kind,
        "title": title,
        "content": content,
        "author": author or OURS,
        "metadata": dict(facts or {}),
        **({"task_id": task_id} if task_id else {}),
    }
    spec.journal.append(entry)
    spec.turned()
    return entry


def select(
    spec: Spec,
    *,
    task_id: str | None = None,
    kind: str | None = None,
    author: str | None = None,
    since: str | None = None,
) -> list[tuple[int, dict[str, Any]]]:
    """The entries that match, each with its place: entries are only ever added, so a place stays what it is."""
    wanted = {"entry_type": kind, "author": author}
    among = enumerate(spec.journal) if task_id is None else spec.once(_by_task).get(task_id, ())
    return [
        (index, entry)
        for index, entry in among
        if all(value is None or entry.get(key) == value for key, value in wanted.items())
        and (since is None or str(entry.get("timestamp", "")) >= since)
    ]


def _by_task(spec: Spec) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for index, entry in enumerate(spec.journal):
        found.setdefault(str(entry.get("task_id")), []).append((index, entry))
    return found
