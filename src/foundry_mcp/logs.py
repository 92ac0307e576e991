"""Logs: JSON lines on stderr, never on stdout, which belongs to the protocol."""

import logging
import sys
from datetime import UTC, datetime
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


def configure_logs(level: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to stderr as JSON lines."""
    if level.lower() not in LEVELS:
        raise unknown_name("log level", level, LEVELS, field="log_level")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=LEVELS[level.lower()], handlers=[handler], force=True)
