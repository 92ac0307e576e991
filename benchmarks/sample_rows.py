"""A page of twenty rows as a listing of specs has them."""

from typing import Any

from foundry_mcp.core.pagination import paginate, query_hash

__all__ = ["PAGE", "ROWS"]

_TITLES = (
    "Session tokens that expire",
    "Import of invoices from CSV files",
    "Search across all projects",
    "Retry of failed webhook deliveries",
)
_STATUSES = ("active", "pending", "completed", "archived")

ROWS: list[dict[str, Any]] = [
    {
        "spec_id": f"{_TITLES[number % 4].lower().replace(' ', '-')}-2026-{number + 1:03d}",
        "title": f"{_TITLES[number % 4]}, part {number + 1}",
        "status": _STATUSES[number % 4],
        "progress": round(number * 4.9, 1),
        "total_tasks": 12 + number,
        "completed_tasks": number * (12 + number) // 20,
        "blocked_tasks": number % 3,
    }
    for number in range(20)
]

PAGE: dict[str, Any] = paginate(
    [*ROWS, {**ROWS[-1], "spec_id": "the-next-page"}],
    key=lambda row: row["spec_id"],
    query=query_hash("spec.list", status=None),
    limit=20,
).pagination
"""What stands beside the rows: there is one page more."""
