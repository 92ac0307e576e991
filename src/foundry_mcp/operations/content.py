"""The tool `content`: what was left out of an answer, given back exactly."""

from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from foundry_mcp.core.archive import Label
from foundry_mcp.core.budget import count_tokens
from foundry_mcp.core.contracts import encode
from foundry_mcp.core.errors import missing, validation
from foundry_mcp.core.pagination import DEFAULT_PAGE_SIZE, decode_cursor, encode_cursor, paginate, query_hash
from foundry_mcp.operations.declaration import Answer, Call, operation
from foundry_mcp.operations.parameters import Cursor, Limit

Hash = Annotated[
    str, Meta(pattern=r"^sha256:[a-f0-9]{64}$(?!\n)", description="From meta.content_archive_hashes")
]
ContentId = Annotated[str, Meta(min_length=1, max_length=500, description="From meta.dropped_content_ids")]
Characters = Annotated[int, Meta(ge=1, le=1_000_000, description="At most so many characters at once")]
Offset = Annotated[int, Meta(ge=0, description="Begin at this character")]

ENVELOPE_TOKENS = 440
"""What the answer takes around the content."""


@operation("content", "get", cli="content get", example="--id task-1-2")
def get(
    call: Call,
    *,
    hash: Hash | None = None,  # noqa: A002 - the name the envelope uses
    id: ContentId | None = None,  # noqa: A002 - likewise
    offset: Offset = 0,
    length: Characters = 20_000,
    cursor: Cursor | None = None,
) -> Answer:
    """Fetch archived content by hash, or one piece of it by id, whole or from an offset."""
    if hash is None and id is None:
        raise missing(
            "hash", remediation="Give a hash from content_archive_hashes, or an id from dropped_content_ids."
        )
    archive = call.surroundings.archive
    label = archive.label(hash) if hash is not None else archive.find(str(id))
    key = label.hash
    try:
        text = archive.get(key).decode("utf-8")
    except UnicodeDecodeError:
        raise validation("hash", "text", "the content is not text", received=key) from None
    if id is not None:
        text = _piece(text, id, label)
    query = query_hash("content.get", hash=key, id=id)
    start = offset if cursor is None else decode_cursor(cursor, query).get("offset")
    if not isinstance(start, int) or not 0 <= start <= len(text):
        raise validation("offset", "maximum", f"the content has {len(text)} characters", received=start)
    part = _fitting(text[start : start + length], call.max_tokens)
    end = start + len(part)
    more = end < len(text)
    pagination: dict[str, Any] = {"has_more": more, "total_count": len(text), "page_size": len(part)}
    if more:
        pagination["cursor"] = encode_cursor(query, offset=end)
    return Answer(
        {"hash": key, "content": part, "start": start, "end": end, "total_characters": len(text)}, pagination
    )


@operation("content", "list", cli="content list")
def list_content(call: Call, *, limit: Limit = DEFAULT_PAGE_SIZE, cursor: Cursor | None = None) -> Answer:
    """List what is archived, latest first."""
    labels = call.surroundings.archive.labels()
    page = paginate(
        labels,
        key=lambda label: [-label.created, label.hash],
        query=query_hash("content.list"),
        cursor=cursor,
        limit=limit,
    )
    rows = [
        {
            "hash": label.hash,
            "name": label.name,
            "operation": label.operation,
            "bytes": label.size,
            "pieces": len(label.pieces),
        }
        for label in page.rows
    ]
    return Answer({"contents": rows, "total_count": len(labels)}, page.pagination)


def _piece(text: str, content_id: str, label: Label) -> str:
    """One entry of an archived list or table, as JSON."""
    with suppress(msgspec.MsgspecError):
        held = msgspec.json.decode(text)
        if isinstance(held, dict) and content_id in held:
            return encode(held[content_id]).decode("utf-8")
        if isinstance(held, list) and content_id in label.pieces:
            return encode(held[label.pieces[content_id]]).decode("utf-8")
    raise validation("id", "known", f"{content_id} is not in {label.hash}", received=content_id)


def _fitting(text: str, max_tokens: int | None) -> str:
    """The beginning of `text` that fits: the answer itself must not be cut again."""
    room = None if max_tokens is None else max(max_tokens - ENVELOPE_TOKENS, 50)
    while room is not None and len(text) > 1 and count_tokens(encode(text)) > room:
        text = text[: len(text) * 2 // 3]
    return text
