"""What was left out of an answer, and what a digest was made from: kept by its hash, and given back exactly.

One file for each content, `.foundry/archive/<sha256>.zst`, and beside it a small `.json` that says what it is.
The name is the hash of what is inside, so the same content is stored once, and a flipped bit is found when it
is read. Nothing is ever written over: several processes may put the same content at the same time.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foundry_mcp.core.disk import disk_error, open_state, read_file, replace_file
from foundry_mcp.core.errors import InternalError, not_found, unavailable
from foundry_mcp.core.locks import locked

__all__ = ["Archive", "Label", "hash_of"]

PREFIX = "sha256:"
KEPT_SECONDS = 30 * 24 * 3600
MAX_BYTES = 512 * 1024 * 1024
SWEPT_EVERY_SECONDS = 600
UNFINISHED_SECONDS = 3600
LOCK_SECONDS = 10.0


class Label(msgspec.Struct):
    """What a content is. `pieces` names the entries in it and where they stand, for whoever knows only a piece."""

    hash: str
    name: str
    size: int
    created: float
    pieces: dict[str, int] = {}
    operation: str = ""


class Archive:
    def __init__(
        self, workspace: Path, *, max_bytes: int = MAX_BYTES, kept_seconds: float = KEPT_SECONDS
    ) -> None:
        self._workspace = workspace
        self._max_bytes = max_bytes
        self._kept_seconds = kept_seconds
        self._swept = 0.0

    def put(self, content: bytes, name: str, *, ids: Sequence[str] = (), operation: str = "") -> str:
        """Keep `content`; returns its hash. `ids` names its entries, in their order."""
        key = hash_of(content)
        stem = key.removeprefix(PREFIX)
        try:
            with (
                open_state(self._workspace, "archive") as folder,
                locked(folder, ".lock", timeout=LOCK_SECONDS) as held,
            ):
                if not held:
                    raise unavailable("The archive is being written by somebody else", retry_after_seconds=1)
                if _unpacked(folder, stem) == content:
                    os.utime(f"{stem}.zst", dir_fd=folder)  # it is wanted again, so its time begins anew
                else:
                    replace_file(folder, f"{stem}.zst", _zstd().compress(content), mode=0o600)
                known = _label(folder, f"{stem}.json")
                pieces = {
                    **(known.pieces if known else {}),
                    **{name: place for place, name in enumerate(ids)},
                }
                label = Label(key, name, len(content), time.time(), pieces, operation)
                replace_file(folder, f"{stem}.json", msgspec.json.encode(label), mode=0o600)
                self._sweep(folder, spare=stem)
        except OSError as error:
            raise disk_error(error, "the archive") from error
        return key

    def get(self, key: str) -> bytes:
        """The content with this hash, exactly; damage is an error, never wrong text."""
        stem = key.removeprefix(PREFIX)
        with self._open() as folder:
            if not _exists(folder, f"{stem}.zst"):
                raise not_found("content", key)
            content = _unpacked(folder, stem)
            with suppress(OSError):
                os.utime(f"{stem}.zst", dir_fd=folder)  # what is read is worth keeping
        if content is None or hash_of(content) != key:
            raise InternalError(
                "The archived content is damaged",
                code="CONTENT_CORRUPTED",
                details={"hash": key},
                effect="none",
            )
        return content

    def label(self, key: str) -> Label:
        """What the content with this hash is; a label that was lost says only its hash."""
        stem = key.removeprefix(PREFIX)
        with self._open() as folder:
            if not _exists(folder, f"{stem}.zst"):
                raise not_found("content", key)
            return _label(folder, f"{stem}.json") or Label(key, "", 0, 0.0)

    def labels(self) -> list[Label]:
        """What is kept, latest first."""
        with self._open() as folder:
            names = [
                name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith(".")
            ]
            found = [label for name in names if (label := _label(folder, name)) is not None]
        return sorted(found, key=lambda label: (-label.created, label.hash))

    def find(self, content_id: str) -> Label:
        """The latest content that holds the piece `content_id`."""
        for label in self.labels():
            if content_id in label.pieces:
                return label
        raise not_found("content", content_id)

    @contextmanager
    def _open(self) -> Iterator[int]:
        try:
            with open_state(self._workspace, "archive") as folder:
                yield folder
        except OSError as error:
            raise disk_error(error, "the archive") from error

    def _sweep(self, folder: int, spare: str) -> None:
        """Let go of what nobody has read for long, and of the oldest beyond the size limit."""
        now = time.time()
        if now - self._swept < SWEPT_EVERY_SECONDS:
            return
        self._swept = now
        for name in os.listdir(folder):
            with suppress(OSError):
                if name.endswith(".new") and now - os.stat(name, dir_fd=folder).st_mtime > UNFINISHED_SECONDS:
                    os.unlink(name, dir_fd=folder)  # whoever wrote it was killed
        total = 0
        for entry in sorted(_entries(folder), key=lambda entry: -entry.used):
            total += entry.size
            if entry.stem != spare and (total > self._max_bytes or now - entry.used > self._kept_seconds):
                for suffix in ("json", "zst"):
                    with suppress(OSError):
                        os.unlink(f"{entry.stem}.{suffix}", dir_fd=folder)


class _Entry(NamedTuple):
    stem: str
    size: int
    used: float


def hash_of(content: bytes) -> str:
    return PREFIX + sha256(content).hexdigest()


def _entries(folder: int) -> Iterator[_Entry]:
    for name in os.listdir(folder):
        if name.endswith(".zst") and not name.startswith("."):
            with suppress(OSError):
                stat = os.stat(name, dir_fd=folder)
                yield _Entry(name[:-4], stat.st_size, stat.st_mtime)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _unpacked(folder: int, stem: str) -> bytes | None:
    """What a file holds; none when it is absent or damaged."""
    try:
        return bytes(_zstd().decompress(read_file(folder, f"{stem}.zst")[0]))
    except (FileNotFoundError, EOFError, _zstd().ZstdError):
        return None


def _label(folder: int, name: str) -> Label | None:
    try:
        return msgspec.json.decode(read_file(folder, name)[0], type=Label)
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return None  # whatever stands there instead hides nothing but itself


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - only who archives pays for it
    else:
        from backports import zstd  # noqa: PLC0415 - likewise
    return zstd
