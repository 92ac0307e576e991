"""What changed between two documents, path by path."""

from collections.abc import Iterator
from typing import Any

__all__ = ["differences"]

ABSENT = object()
UNTOLD = frozenset({"revision", "last_updated"})
"""They change with every write, so they tell nothing."""


def differences(before: Any, after: Any) -> list[dict[str, Any]]:
    """Each path whose value was added, removed or changed. A list of plain values is compared as one."""
    return [
        {
            "path": path,
            **({"before": old} if old is not ABSENT else {}),
            **({"after": new} if new is not ABSENT else {}),
        }
        for path, old, new in _walk("", before, after)
        if path not in UNTOLD
    ]


def _walk(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            here = f"{path}/{key}" if path else str(key)
            yield from _walk(here, before.get(key, ABSENT), after.get(key, ABSENT))
    elif _is_log(before) and _is_log(after) and before == after[: len(before)]:
        for index in range(len(before), len(after)):
            yield f"{path}/{index}", ABSENT, after[index]
    elif before is not after and before != after:
        yield path, before, after


def _is_log(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)
