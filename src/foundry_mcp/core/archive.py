"""What was left out of an answer, and what a digest was made from: kept by its hash, and given back exactly.

One file for each content, `.foundry/archive/<sha256>.zst`, and beside it a small `.json` that says what it is.
The name is the hash of what is inside, so the same content is stored once, and a flipped bit is found when it
is read. Nothing is ever written over: several processes may put the same content at the same time.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foundry_mcp.core.disk import disk_error, open_state, read_file, replace_file
from foundry_mcp.core.errors import InternalError, not_found
from foundry_mcp.core.locks import locked

__all__ = ["Archive", "Label", "hash_of"]

PREFIX = "sha256:"
KEPT_SECONDS = 30 * 24 * 3600
MAX_BYTES = 512 * 1024 * 1024
SWEPT_EVERY_SECONDS = 600
LOCK_SECONDS = 10.0


class Label(msgspec.Struct):
    """What a content is: `ids` names the pieces in it, for whoever knows a piece and not the hash."""

    hash: str
    name: str
    size: int
    created: float
    ids: list[str] = []
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
        """Keep `content`; returns its hash."""
        key = hash_of(content)
        stem = key.removeprefix(PREFIX)
        label = Label(key, name, len(content), time.time(), list(ids), operation)
        try:
            with (
                open_state(self._workspace, "archive") as folder,
                locked(folder, ".lock", timeout=LOCK_SECONDS),
            ):
                if not _exists(folder, f"{stem}.zst"):
                    replace_file(folder, f"{stem}.zst", _zstd().compress(content), mode=0o600)
                replace_file(folder, f"{stem}.json", msgspec.json.encode(label), mode=0o600)
                self._sweep(folder, spare=stem)
        except OSError as error:
            raise disk_error(error, "the archive") from error
        return key

    def get(self, key: str) -> bytes:
        """The content with this hash, exactly; damage is an error, never wrong text."""
        stem = key.removeprefix(PREFIX)
        try:
            with open_state(self._workspace, "archive") as folder:
                packed = read_file(folder, f"{stem}.zst")[0]
                with suppress(OSError):
                    os.utime(f"{stem}.zst", dir_fd=folder)  # what is read is worth keeping
        except FileNotFoundError:
            raise not_found("content", key) from None
        except OSError as error:
            raise disk_error(error, "the archive") from error
        try:
            content = bytes(_zstd().decompress(packed))
        except (_zstd().ZstdError, EOFError) as error:
            raise _damaged(key) from error
        if hash_of(content) != key:
            raise _damaged(key)
        return content

    def labels(self) -> list[Label]:
        """What is kept, latest first."""
        found = []
        with open_state(self._workspace, "archive") as folder:
            for name in os.listdir(folder):
                if name.endswith(".json") and not name.startswith("."):
                    with suppress(OSError, msgspec.MsgspecError):
                        found.append(msgspec.json.decode(read_file(folder, name)[0], type=Label))
        return sorted(found, key=lambda label: (-label.created, label.hash))

    def find(self, content_id: str) -> Label:
        """The latest content that holds the piece `content_id`."""
        for label in self.labels():
            if content_id in label.ids:
                return label
        raise not_found("content", content_id)

    def _sweep(self, folder: int, spare: str) -> None:
        """Let go of what nobody has read for long, and of the oldest beyond the size limit."""
        now = time.time()
        if now - self._swept < SWEPT_EVERY_SECONDS:
            return
        self._swept = now
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


def _damaged(key: str) -> InternalError:
    return InternalError(
        "The archived content is damaged",
        code="CONTENT_CORRUPTED",
        details={"hash": key},
        effect="none",
    )


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - only who archives pays for it
    else:
        from backports import zstd  # noqa: PLC0415 - likewise
    return zstd
