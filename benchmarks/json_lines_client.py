"""An MCP client of a few lines, so that what is measured is the server: JSON lines over pipes, nothing else."""

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from benchmarks.measurement import ENVIRONMENT

__all__ = ["JsonLinesClient", "request_line"]

PROTOCOL = "2025-11-25"
PATIENCE_SECONDS = 30


def request_line(number: int, method: str, params: dict[str, Any]) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message, separators=(",", ":")).encode("utf-8") + b"\n"


class JsonLinesClient:
    """A server process and the pipes to it; its stderr goes into a file, as with a client that keeps logs."""

    def __init__(
        self, command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] = ENVIRONMENT
    ) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._pending = b""
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def initialize(self) -> None:
        self.exchange(
            "initialize",
            {
                "protocolVersion": PROTOCOL,
                "capabilities": {},
                "clientInfo": {"name": "benchmark", "version": "1"},
            },
        )
        os.write(self._to, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of a tool call that must succeed."""
        return self.exchange("tools/call", {"name": tool, "arguments": arguments})[0]

    def seconds_of_call(self, tool: str, arguments: dict[str, Any]) -> float:
        """From the first byte written to the last byte read; packing and unpacking stand outside."""
        return self.exchange("tools/call", {"name": tool, "arguments": arguments})[1]

    def data(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What a server of ours or of an earlier release answers."""
        return self.timed_data(tool, arguments)[0]

    def timed_data(self, tool: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """The `data` of an envelope that says it succeeded, and the seconds; older servers do not set `isError`."""
        result, seconds = self.exchange("tools/call", {"name": tool, "arguments": arguments})
        envelope = json.loads(result["content"][0]["text"])
        if not envelope["success"]:
            raise RuntimeError(f"{tool} {arguments} failed: {envelope}")
        data: dict[str, Any] = envelope["data"]
        return data, seconds

    def exchange(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], float]:
        self._number += 1
        line = request_line(self._number, method, params)
        began = perf_counter()
        self._write(line)
        answer = self._read_line()
        seconds = perf_counter() - began
        message = json.loads(answer)
        result: dict[str, Any] | None = message.get("result")
        if message.get("id") != self._number or result is None or result.get("isError"):
            raise RuntimeError(f"{method} was not answered as expected: {message}")
        return result, seconds

    def _write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._to, line) :]

    def _read_line(self) -> bytes:
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._from], [], [], PATIENCE_SECONDS)
            chunk = os.read(self._from, 1 << 16) if ready else b""
            if not chunk:
                self._said.seek(0)
                said = self._said.read().decode("utf-8", "replace")
                raise RuntimeError(f"the server {'went away' if ready else 'does not answer'}:\n{said}")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line
