"""Answers that fit: exact token counts, and what to leave out when an answer is too long.

    full             everything, when it fits
    partial          the ends of the longest lists are left out; what stays is whole
    summary          long texts are cut, lists keep their first rows
    reference_only   no content, only where to fetch it

Pure: `fit` says what to send and what to keep; whoever calls it keeps that in the archive before sending. What
stays and what was kept is the whole again: for `partial` each list's missing end under its own hash, for the
others the whole payload under one.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from foundry_mcp.core.archive import hash_of
from foundry_mcp.core.contracts import encode
from foundry_mcp.core.responses import CONTENT_FIDELITY_SCHEMA_VERSION, ToolResponse, warning

__all__ = ["VOCABULARY", "Fitted", "Kept", "count_tokens", "fit"]

VOCABULARY = "o200k_base"
ID_KEYS = ("id", "task_id", "spec_id", "chunk_id", "revision", "name")
MAX_NAMED = 50
"""How many of the dropped pieces are named; all of them are in the archive."""
TABLE_ROWS = 4
"""An object of at least so many objects is a table, and its entries are dropped one by one."""
SUMMARY_LENGTHS = (200, 60, 20)

PAYLOAD = "payload"

Path = tuple[str, ...]


class Kept(NamedTuple):
    """What was left out, and the names of the pieces in it."""

    content: bytes
    name: str
    ids: list[str]

    @property
    def hash(self) -> str:
        return hash_of(self.content)


class Fitted(NamedTuple):
    response: ToolResponse
    kept: list[Kept]


class _Piece(NamedTuple):
    """One entry of a list or a table in the payload."""

    path: Path
    place: int | str
    content_id: str
    tokens: float


def count_tokens(text: str | bytes) -> int:
    """Exactly how many tokens of o200k_base this text is."""
    return len(_tokenizer().encode_ordinary(text if isinstance(text, str) else text.decode("utf-8")))


def fit(response: ToolResponse, max_tokens: int, count: Callable[[ToolResponse], int]) -> Fitted:
    """The response itself, or as much of it as `max_tokens` allows. `count` measures it as it will be sent."""
    total = count(response)
    if total <= max_tokens or not response.success:
        return Fitted(response, [])
    for shorter in _shorter(response, total, max_tokens, count):
        if count(shorter.response) <= max_tokens:
            return shorter
    return _bare(response)


def _shorter(
    response: ToolResponse, total: int, max_tokens: int, count: Callable[[ToolResponse], int]
) -> Iterator[Fitted]:
    """Ever shorter answers, each keeping as much as its level allows."""
    # Bytes tell well enough which pieces to drop; what is left is then counted exactly.
    ratio = total / max(len(encode(response.data)), 1)
    pieces = list(_pieces(response.data, (), ratio))
    weights: dict[Path, float] = {}
    for piece in pieces:
        weights[piece.path] = weights.get(piece.path, 0) + piece.tokens
    # The heaviest list goes first, from its end: rows stand in the order of their value.
    left = sorted(pieces, key=lambda piece: weights[piece.path])
    dropped: list[_Piece] = []
    excess: float = total - max_tokens + COST_OF_SAYING_SO
    while left:
        while left and excess > 0:
            piece = left.pop()
            new_list = all(other.path != piece.path for other in dropped[-1:])
            excess -= (
                piece.tokens
                - (COST_OF_AN_ID if len(dropped) < MAX_NAMED else 0)
                - (COST_OF_A_HASH if new_list else 0)
            )
            dropped.append(piece)
        attempt = _without(response, dropped, len(pieces))
        yield attempt
        excess = max(count(attempt.response) - max_tokens, 1)
    for length in SUMMARY_LENGTHS:
        data = {name: _cut(value, length) for name, value in response.data.items()}
        yield _whole(response, data, "summary", "Long texts and lists were cut to fit the token budget")
    short = {
        name: value
        for name, value in response.data.items()
        if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= 80)
    }
    yield _referring(response, short)
    yield _referring(response, {})


# Tokens that the marks of a shortened answer take, roughly: the count that decides is exact.
COST_OF_SAYING_SO = 130
COST_OF_AN_ID = 6
COST_OF_A_HASH = 60


def _pieces(value: Any, path: Path, ratio: float) -> Iterator[_Piece]:
    if isinstance(value, dict):
        if len(value) >= TABLE_ROWS and all(isinstance(entry, dict) for entry in value.values()):
            for place, entry in value.items():
                yield _Piece(path, place, place, len(encode({place: entry})) * ratio)
        else:
            for name, entry in value.items():
                yield from _pieces(entry, (*path, name), ratio)
    elif isinstance(value, list) and path:
        names = [_own_id(entry) for entry in value]
        repeated = {name for name, times in Counter(names).items() if times > 1}
        for place, (name, entry) in enumerate(zip(names, value, strict=True)):
            content_id = f"{path[-1]}-{place + 1}" if name is None or name in repeated else name
            yield _Piece(path, place, content_id, (len(encode(entry)) + 1) * ratio)


def _own_id(entry: Any) -> str | None:
    if isinstance(entry, dict):
        for name in ID_KEYS:
            if isinstance(entry.get(name), (str, int)):
                return str(entry[name])
    return None


def _without(response: ToolResponse, dropped: list[_Piece], total: int) -> Fitted:
    data: Any = response.data
    kept: list[Kept] = []
    for path in dict.fromkeys(piece.path for piece in dropped):
        gone = [piece for piece in dropped if piece.path == path]
        places = {piece.place for piece in gone}
        whole = _at(response.data, path)
        entries = enumerate(whole) if isinstance(whole, list) else whole.items()
        split: tuple[list[Any], list[Any]] = ([], [])
        for place, entry in entries:
            split[place in places].append((place, entry))
        stays, goes = ([e for _, e in part] if isinstance(whole, list) else dict(part) for part in split)
        data = _replaced(data, path, stays)
        kept.append(Kept(encode(goes), _spelled(path), [piece.content_id for piece in reversed(gone)]))
    ids = [content_id for part in kept for content_id in part.ids]
    message = f"{len(dropped)} of {total} entries left out to fit the token budget"
    meta = _marks(
        response, "partial", kept, message, dropped_count=len(dropped), total_count=total, unit="entries"
    )
    return Fitted(ToolResponse(True, data, None, {**meta, "dropped_content_ids": ids[:MAX_NAMED]}), kept)


def _spelled(path: Path) -> str:
    return "/".join(name.replace("~", "~0").replace("/", "~1") for name in path) or PAYLOAD


def _at(data: Any, path: Path) -> Any:
    for name in path:
        data = data[name]
    return data


def _replaced(data: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    return {**data, path[0]: _replaced(data[path[0]], path[1:], value)}


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= length else f"{value[:length]}…"
    if isinstance(value, list):
        return [_cut(entry, length) for entry in value[: length // 20]]
    if isinstance(value, dict):
        return {name[:length]: _cut(entry, length) for name, entry in list(value.items())[: length // 4]}
    return value


def _referring(response: ToolResponse, data: dict[str, Any]) -> Fitted:
    return _whole(response, data, "reference_only", "The content was left out to fit the token budget")


def _bare(response: ToolResponse) -> Fitted:
    """The least that can be said: where everything is. Not even what else there was to say has room."""
    envelope = ("version", "request_id", "telemetry")
    meta = {key: value for key, value in response.meta.items() if key in envelope}
    return _referring(ToolResponse(True, response.data, None, meta), {})


def _whole(response: ToolResponse, data: dict[str, Any], level: str, message: str) -> Fitted:
    """An answer that stands for its payload, which is kept as a whole."""
    kept = [Kept(encode(response.data), PAYLOAD, [])]
    total = len(kept[0].content)
    meta = _marks(
        response,
        level,
        kept,
        message,
        dropped_count=total - len(encode(data)),
        total_count=total,
        unit="bytes",
    )
    return Fitted(ToolResponse(True, data, None, meta), kept)


def _marks(
    response: ToolResponse, level: str, kept: list[Kept], message: str, **context: Any
) -> dict[str, Any]:
    detail = warning(
        "CONTENT_TRUNCATED", message, **context, reason="token_limit_exceeded", vocabulary=VOCABULARY
    )
    meta = {
        **response.meta,
        "content_fidelity_schema_version": CONTENT_FIDELITY_SCHEMA_VERSION,
        "content_fidelity": level,
        "content_archive_hashes": {f"{part.name}-archive": part.hash for part in kept},
    }
    meta["warnings"] = [*response.meta.get("warnings", ()), message]
    meta["warning_details"] = [*response.meta.get("warning_details", ()), detail]
    return meta


@cache
def _tokenizer() -> Any:
    from splintr import Tokenizer  # noqa: PLC0415 - its vocabulary takes 90 ms to load, which a short answer need not pay

    return Tokenizer.from_pretrained(VOCABULARY)
