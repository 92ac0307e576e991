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
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from foundry_mcp.core.disk import disk_error, open_state, read_file, replace_file
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

    def __init__(self, folder: int, name: str, record: _Record, answer: dict[str, Any] | None) -> None:
        self._folder = folder
        self._name = name
        self._record = record
        self.answer = answer

    def keep(self, answer: dict[str, Any]) -> None:
        self._record.answer = answer
        try:
            _write(self._folder, self._name, self._record)
        except OSError as error:
            raise disk_error(error, "the record of idempotency keys", effect="applied") from error

    def forget(self) -> None:
        """The call changed nothing, so the key is free again."""
        with suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._folder)


class IdempotencyStore:
    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._swept = 0.0

    @contextmanager
    def slot(self, key: str, operation: str, parameters: Any) -> Iterator[Slot]:
        """Hold `key` for one call of `operation`."""
        # The key is hashed: it is the client's text, and must not become a path.
        stem = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        wanted = sha256(msgspec.json.encode([operation, parameters], order="sorted")).hexdigest()
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(open_state(self._workspace, "idempotency"))
                self._sweep(folder)
                slot = self._open(folder, stack, stem, key, wanted)
            except OSError as error:  # nothing has been begun yet
                raise disk_error(error, "the record of idempotency keys") from error
            yield slot

    def _open(self, folder: int, stack: ExitStack, stem: str, key: str, wanted: str) -> Slot:
        if not stack.enter_context(locked(folder, f"{stem}.lock")):
            raise conflict(
                "The first call with this idempotency key is still under way",
                remediation="Wait a moment and repeat the call with the same key to get its answer.",
                idempotency_key=key,
            )
        name = f"{stem}.json"
        record = _read(folder, name)
        if record is None:
            record = _Record(wanted, time.time())
            _write(folder, name, record)
            return Slot(folder, name, record, None)
        _check(record, key, wanted)
        return Slot(folder, name, record, record.answer)

    def _sweep(self, folder: int) -> None:
        now = time.time()
        if now - self._swept < SWEPT_EVERY_SECONDS:
            return
        self._swept = now
        for name in os.listdir(folder):
            if not name.endswith(".json"):
                continue
            with suppress(OSError):
                if now - os.stat(name, dir_fd=folder).st_mtime > KEPT_SECONDS:
                    lock = f"{name[:-5]}.lock"
                    with locked(folder, lock) as held:
                        if held:
                            os.unlink(name, dir_fd=folder)
                            os.unlink(lock, dir_fd=folder)


def _check(record: _Record, key: str, wanted: str) -> None:
    """Raise unless the record is a finished call with these parameters."""
    if record.answer is None:
        raise conflict(
            "An earlier call with this idempotency key was interrupted",
            remediation="Read the current state to see whether it was applied, then use a new idempotency_key.",
            effect="unknown",
            idempotency_key=key,
        )
    if record.parameters != wanted:
        raise conflict(
            "This idempotency key was used with another operation or other parameters",
            remediation="Use a new idempotency_key for a new call.",
            idempotency_key=key,
        )


def _read(folder: int, name: str) -> _Record | None:
    try:
        record = msgspec.json.decode(read_file(folder, name)[0], type=_Record)
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        # Written by rename, so this is damage from outside: nobody knows what happened then.
        return _Record("", 0.0)
    return None if time.time() - record.created > KEPT_SECONDS else record


def _write(folder: int, name: str, record: _Record) -> None:
    replace_file(folder, name, msgspec.json.encode(record), mode=0o600)
