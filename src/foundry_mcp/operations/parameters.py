"""Parameters that several operations share, with their limits."""

from typing import Annotated

from msgspec import Meta

from foundry_mcp.core.pagination import MAX_PAGE_SIZE

__all__ = ["Cursor", "IdempotencyKey", "Limit"]

Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE, description="Rows on a page")]
Cursor = Annotated[
    str, Meta(max_length=4096, description="Where the last page ended: meta.pagination.cursor")
]
IdempotencyKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="Repeat a write safely: the same key gets the first answer again",
    ),
]
