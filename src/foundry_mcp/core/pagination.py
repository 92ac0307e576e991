"""Pages that neither skip nor repeat, and cursors that only fit the query they came from.

A cursor is base64 of a small JSON object: a hash of the query, the place reached, and a check value over
both. The place is the sort key of the last row handed out, not a count, so rows written or removed
meanwhile move nothing that stays. The check value is no secret: a cursor opens nothing that its own query
would not; it makes sure that an altered cursor is an error instead of a wrong page.
"""

from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Callable, Sequence
from hashlib import blake2s
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from foundry_mcp.core.errors import invalid_cursor

__all__ = [
    "DEFAULT_PAGE_SIZE",
    "MAX_PAGE_SIZE",
    "Page",
    "decode_cursor",
    "encode_cursor",
    "paginate",
    "query_hash",
]

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 500
MAX_CURSOR_LENGTH = 4096
CHECK_KEY = "check"

Row = TypeVar("Row")

_encode = msgspec.json.Encoder(order="sorted").encode


class Page(NamedTuple, Generic[Row]):
    rows: Sequence[Row]
    pagination: dict[str, Any]


def query_hash(operation: str, **query: Any) -> str:
    """What a cursor is bound to: the operation, its filters and its order, but not the size of a page."""
    return blake2s(_encode([operation, query]), digest_size=6).hexdigest()


def encode_cursor(query: str | None, **place: Any) -> str:
    """A cursor for the query with this hash; `place` is what the reader needs to go on."""
    body = {"query_hash": query, **place}
    return b64encode(_encode({**body, CHECK_KEY: _check(body)})).decode("ascii")


def decode_cursor(cursor: str, query: str) -> dict[str, Any]:
    """The place a cursor holds, or INVALID_CURSOR when it is not one of this query's."""
    if not isinstance(cursor, str) or not cursor or len(cursor) > MAX_CURSOR_LENGTH:
        raise invalid_cursor("is not one that this server gave out", cursor)
    try:
        body = msgspec.json.decode(b64decode(cursor, validate=True), type=dict[str, Any])
        owner = body.pop("query_hash", None)
        body.pop(CHECK_KEY, None)
        genuine = encode_cursor(owner, **body) == cursor
    except (
        ValueError,
        TypeError,
        RecursionError,
    ) as error:  # bad base64, UTF-8 or JSON, or JSON without an end
        raise invalid_cursor("is not one that this server gave out", cursor) from error
    if not genuine:
        raise invalid_cursor("has been altered or is not one that this server gave out", cursor)
    if owner != query:
        raise invalid_cursor("belongs to another query, filter or order", cursor)
    return body


def paginate(
    rows: Sequence[Row],
    *,
    key: Callable[[Row], Any],
    query: str,
    cursor: str | None = None,
    limit: int = DEFAULT_PAGE_SIZE,
    order: Callable[[Any], Any] | None = None,
) -> Page[Row]:
    """The page after `cursor` of `rows`, which are sorted by `order` of their `key`.

    Keys are unique JSON values; `order` makes them comparable where they are not by themselves.
    """
    if limit < 1:
        raise ValueError("a page holds at least one row")
    rank = order or _comparable
    start = 0
    if cursor is not None:
        place = decode_cursor(cursor, query)
        if "after" not in place:
            raise invalid_cursor("holds no place", cursor)
        try:
            start = bisect_right(rows, rank(place["after"]), key=lambda row: rank(key(row)))
        except (TypeError, RecursionError) as error:  # a key of another kind than these rows have
            raise invalid_cursor("does not fit this order", cursor) from error
    page = rows[start : start + limit]
    has_more = start + len(page) < len(rows)
    pagination: dict[str, Any] = {"has_more": has_more, "total_count": len(rows), "page_size": limit}
    if has_more:
        pagination = {"cursor": encode_cursor(query, after=key(page[-1])), **pagination}
    return Page(page, pagination)


def _check(body: dict[str, Any]) -> str:
    return blake2s(_encode(body), digest_size=4).hexdigest()


def _comparable(value: Any) -> Any:
    """JSON has no tuples, so a key that went through a cursor comes back as lists; compare like with like."""
    return tuple(_comparable(part) for part in value) if isinstance(value, (list, tuple)) else value
