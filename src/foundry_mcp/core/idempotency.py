"""The first answer to an idempotency key, kept for a day and given again to whoever repeats the call.

One small file for each key, and a lock beside it that is held while the call runs:

    no file, lock free     → run, and keep the answer
    no file, lock held     → the first call is still under way
    file says started,
    lock free              → its process died in mid-call, and nobody knows whether the write happened
    file holds an answer   → the same parameters get it again; other parameters are a conflict
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from foundry_mcp.core.errors import conflict
from foundry_mcp.core.locks import locked

__all__ = ["IdempotencyStore"]

KEPT_SECONDS = 24 * 3600
SWEPT_EVERY_SECONDS = 3600


class _Record(msgspec.Struct):
    parameters: str
    created: float
    answer: dict[str, Any] | None = None
    """None as long as the call has not ended."""


class Slot:
    """What a key holds: `answer` of an earlier call, or room for this one's."""

    def __init__(self, path: Path, record: _Record, answer: dict[str, Any] | None) -> None:
        self._path = path
        self._record = record
        self.answer = answer

    def keep(self, answer: dict[str, Any]) -> None:
        self._record.answer = answer
        _write(self._path, self._record)

    def forget(self) -> None:
        """The call changed nothing, so the key is free again."""
        self._path.unlink(missing_ok=True)


class IdempotencyStore:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._swept = 0.0

    @contextmanager
    def slot(self, key: str, operation: str, parameters: Any) -> Iterator[Slot]:
        """Hold `key` for one call of `operation`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()
        # The key is hashed: it is the client's text, and must not become a path.
        path = self._folder / f"{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}.json"
        wanted = sha256(msgspec.json.encode([operation, parameters], order="sorted")).hexdigest()
        with locked(path.with_suffix(".lock")) as held:
            if not held:
                raise conflict(
                    "The first call with this idempotency key is still under way",
                    remediation="Wait a moment and repeat the call with the same key to get its answer.",
                    idempotency_key=key,
                )
            record = _read(path)
            if record is None:
                record = _Record(wanted, time.time())
                _write(path, record)
                yield Slot(path, record, None)
            elif record.answer is None:
                raise conflict(
                    "An earlier call with this idempotency key was interrupted",
                    remediation="Read the current state to see whether it was applied, then use a new idempotency_key.",
                    effect="unknown",
                    idempotency_key=key,
                )
            elif record.parameters != wanted:
                raise conflict(
                    "This idempotency key was used with another operation or other parameters",
                    remediation="Use a new idempotency_key for a new call.",
                    idempotency_key=key,
                )
            else:
                yield Slot(path, record, record.answer)

    def _sweep(self) -> None:
        now = time.time()
        if now - self._swept < SWEPT_EVERY_SECONDS:
            return
        self._swept = now
        for path in self._folder.glob("*.json"):
            with suppress(OSError):
                if now - path.stat().st_mtime > KEPT_SECONDS:
                    with locked(path.with_suffix(".lock")) as held:
                        if held:
                            path.unlink(missing_ok=True)
                            path.with_suffix(".lock").unlink(missing_ok=True)


def _read(path: Path) -> _Record | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_Record)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        # Written by rename, so this is damage from outside: nobody knows what happened then.
        return _Record("", 0.0)
    return None if time.time() - record.created > KEPT_SECONDS else record


def _write(path: Path, record: _Record) -> None:
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
