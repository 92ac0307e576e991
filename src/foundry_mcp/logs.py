"""Logs: JSON lines on stderr, never on stdout, which belongs to the protocol.

A client that starts a server and never reads its stderr fills the pipe; a server that writes its log
itself would then stop in mid-call, for ever. So a thread of its own writes, and what it cannot keep up with
is dropped and counted.
"""

import atexit
import logging
import sys
from collections import deque
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any, TextIO

import msgspec

from foundry_mcp.core.errors import unknown_name

__all__ = ["configure_logs"]

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
MAX_WAITING = 2000
LAST_WORDS_SECONDS = 1.0
BATCH_SECONDS = 0.05


class JsonLines(logging.Formatter):
    """One object a line; whatever the caller passed as `extra={"fields": {...}}` stands beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode("utf-8", "replace")


class Background(logging.Handler):
    """Formats and writes from a thread of its own, a few lines at a time, and may block as long as it likes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: deque[logging.LogRecord] = deque()
        self._dropped = 0
        self._wake, self._closing = Event(), Event()
        self._writer = Thread(target=self._write, name="log", daemon=True)
        self._writer.start()
        atexit.register(self.close)

    def createLock(self) -> None:  # noqa: N802 - the name logging gave it
        """Nothing to guard: appending to a deque is one step."""
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append(record)
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Let the last lines out, if somebody reads them."""
        self._closing.set()
        self._wake.set()
        self._writer.join(LAST_WORDS_SECONDS)
        super().close()

    def _write(self) -> None:
        while not (self._closing.is_set() and not self._waiting):
            self._wake.wait()
            self._closing.wait(BATCH_SECONDS)
            self._wake.clear()
            lines = []
            while self._waiting:
                lines.append(self.format(self._waiting.popleft()))
            if self._dropped:
                lines.append(f'{{"level":"warning","message":"log lines dropped","count":{self._dropped}}}')
                self._dropped = 0
            try:
                self._stream.write("".join(f"{line}\n" for line in lines))
                self._stream.flush()
            except (OSError, ValueError):  # nobody is there to read any more
                return


def configure_logs(level: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to stderr as JSON lines."""
    if level.lower() not in LEVELS:
        raise unknown_name("log level", level, LEVELS, field="log_level")
    handler = Background(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=LEVELS[level.lower()], handlers=[handler], force=True)
