"""Real parts for the tests: a runtime with a few small operations, the command line, and a server process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from foundry_mcp.core.flags import FLAGS, Flag, Flags
from foundry_mcp.core.rate_limits import RateLimits
from foundry_mcp.core.settings import Settings
from foundry_mcp.operations.declaration import Call, Registry, Surroundings
from foundry_mcp.runtime import Runtime

PATIENCE = 30.0
"""Seconds until a test gives up on a process: long enough for a slow machine, short enough to see the failure."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path


class Records(list[tuple[str, dict[str, Any], BaseException | None]]):
    """What a runtime logged."""

    def __call__(self, message: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
        self.append((message, fields, error))


class Bench:
    """A runtime to try things on, and everything around it that a test may want to look at."""

    def __init__(
        self,
        workspace: Path,
        registry: Registry,
        *,
        known: Mapping[str, Flag] = FLAGS,
        switches: Mapping[str, bool] | None = None,
        limits: Mapping[str, str] | None = None,
    ) -> None:
        self.log = Records()
        self.flags = Flags(known)
        self.flags.set(switches or {}, "a test")
        self.surroundings = Surroundings(workspace, Settings(), self.flags, registry)
        self.runtime = Runtime(
            self.surroundings, log=self.log, rate_limits=RateLimits(limits) if limits else None
        )


def counter_registry() -> Registry:
    """A tool that writes: `counter add` appends to a file, so a test can count what really happened."""
    registry = Registry()

    @registry.operation("counter", "add", cli="counter add", writes=True)
    def add(call: Call, *, amount: int = 1) -> dict[str, Any]:
        """Add to the counter."""
        file = call.surroundings.workspace / "count"
        total = amount + (int(file.read_text(encoding="utf-8")) if file.exists() else 0)
        if not call.dry_run:
            file.write_text(str(total), encoding="utf-8")
        return {"total": total}

    @registry.operation("counter", "read", cli="counter read")
    def read(call: Call) -> dict[str, Any]:
        """Read the counter."""
        file = call.surroundings.workspace / "count"
        return {"total": int(file.read_text(encoding="utf-8")) if file.exists() else 0}

    return registry


@pytest.fixture
def registry() -> Registry:
    return counter_registry()


@pytest.fixture
def make_bench(workspace: Path, registry: Registry) -> Callable[..., Bench]:
    def make(**settings: Any) -> Bench:
        return Bench(workspace, settings.pop("registry", registry), **settings)

    return make


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without anything that would reach into the settings under test."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("FOUNDRY_", "_FOUNDRY", "PYTEST", "COV_"))
    }
    return {**kept, **more}


@pytest.fixture
def environment() -> dict[str, str]:
    return clean_environment()


@pytest.fixture
def cli(workspace: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run `foundry-cli` as a process of its own, in an empty folder, with its output piped."""

    def run(
        *arguments: str | bytes, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-c", "from foundry_mcp.cli import main; main()", *arguments]
        return subprocess.run(
            command,
            cwd=workspace,
            env=clean_environment(**(environment or {})),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )

    return run


class StdioServer:
    """The real server as a process, spoken to in bytes. A read that gets nothing fails instead of hanging."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        command: tuple[str, ...] = ("-m", "foundry_mcp"),
        environment: Mapping[str, str] | None = None,
        stderr: int | None = None,
    ) -> None:
        self.stderr_file = folder / "stderr.log"
        with self.stderr_file.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *command, *options],
                cwd=folder,
                env=clean_environment(**(environment or {})),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors if stderr is None else stderr,
            )
        self._lines: Queue[bytes] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        self._last_id = 0

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The next line of stdout, which must be a message; b"" stands for the end of the stream."""
        line = self._lines.get(timeout=PATIENCE)
        assert line, "the server closed its output"
        message: dict[str, Any] = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def ask(self, line: bytes) -> dict[str, Any]:
        self.send(line)
        return self.receive()

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def request(self, method: str, params: Any) -> dict[str, Any]:
        number = self.next_id()
        answer = self.ask(_message(method, params, id=number))
        assert answer["id"] == number
        return answer

    def call(self, tool: str, arguments: Any, **params: Any) -> dict[str, Any]:
        """Call a tool and return the result as it stands in the message."""
        params = {"name": tool, "arguments": arguments, **params}
        result: dict[str, Any] = self.request("tools/call", params)["result"]
        return result

    def shake_hands(self, name: str = "a test") -> "StdioServer":
        client = {"name": name, "version": "1"}
        self.request(
            "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        )
        self.send(_message("notifications/initialized", {}))
        return self

    def close(self, patience: float = PATIENCE) -> int:
        """Close its input and wait for it to go; what it still said is checked to be messages."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
            code = self.process.wait(patience)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(PATIENCE)
            self.process.stdout.close()
            if self.process.stderr is not None:
                self.process.stderr.close()
        while line := self._lines.get(timeout=PATIENCE):
            json.loads(line)
        return code

    def logs(self) -> list[dict[str, Any]]:
        """Its log; complete once the server has gone."""
        return [json.loads(line) for line in self.stderr_file.read_bytes().splitlines()]


def _message(method: str, params: Any, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()


@pytest.fixture
def start_server(workspace: Path) -> Iterator[Callable[..., StdioServer]]:
    """Start servers that end with the test."""
    started: list[StdioServer] = []

    def start(*options: str, **settings: Any) -> StdioServer:
        started.append(StdioServer(workspace, *options, **settings))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioServer]:
    """One server for all tests of a module: each shows that it lived through the one before."""
    shared = StdioServer(tmp_path_factory.mktemp("server")).shake_hands()
    yield shared
    assert shared.close() == 0
