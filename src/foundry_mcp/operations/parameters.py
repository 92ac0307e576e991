"""Parameters that several operations share, with their limits."""

from typing import Annotated

from msgspec import Meta

from foundry_mcp.core.pagination import MAX_PAGE_SIZE

__all__ = [
    "Cursor",
    "DryRun",
    "IdempotencyKey",
    "Limit",
    "MaxTokens",
    "Owner",
    "Prose",
    "Revision",
    "SpecId",
    "TaskId",
    "Timestamp",
    "Title",
]

NAME = r"^[a-z0-9][a-z0-9-]*$(?!\n)"  # in Python a bare $ also stands before a last line break

SpecId = Annotated[str, Meta(pattern=NAME, max_length=200, description="The spec")]
TaskId = Annotated[str, Meta(pattern=NAME, max_length=200, description="The task")]
Title = Annotated[str, Meta(min_length=1, max_length=500, description="A short title")]
Prose = Annotated[str, Meta(max_length=100_000, description="Text, Markdown if you like")]
Owner = Annotated[
    str, Meta(min_length=1, max_length=200, description="Who does it; claims are held under this name")
]
Timestamp = Annotated[
    str, Meta(pattern=r"^\d{4}-\d\d-\d\d([T ].*)?$", max_length=40, description="Since this time, ISO 8601")
]
Revision = Annotated[int, Meta(ge=0, description="Write only if the spec is still at this revision")]
DryRun = Annotated[bool, Meta(description="Show the change, write nothing")]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE, description="Rows on a page")]
Cursor = Annotated[
    str, Meta(max_length=4096, description="Where the last page ended: meta.pagination.cursor")
]
MaxTokens = Annotated[int, Meta(ge=500, le=1_000_000, description="Shorten the answer to fit")]
IdempotencyKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="Repeat a write safely: the same key gets the first answer again",
    ),
]
