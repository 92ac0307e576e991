"""How long a client waits for a server that it has just started."""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.commands import BARE_SERVER, SERVER
from benchmarks.json_lines_client import JsonLinesClient
from benchmarks.measurement import Measurement, interleaved, ratio

ROUNDS = 25


def measure() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, bare = interleaved(
            ROUNDS,
            partial(seconds_to_first_answer, (SERVER,), folder, "server", {"action": "health"}),
            partial(seconds_to_first_answer, BARE_SERVER, folder, "echo", {"text": "hello"}),
            warm_up=2,
        )
    return [
        ratio(
            "Server start to first answer over stdio",
            "From starting the process, through `initialize`, to the answer of the first `tools/call`:"
            " `server health` beside `echo` on a bare one-tool server (low-level server and stdio of the same SDK).",
            ours,
            bare,
            unit="ms",
            scale=1000,
            at_most=1.15,
        )
    ]


def seconds_to_first_answer(
    command: Sequence[str | Path], folder: Path, tool: str, arguments: dict[str, Any]
) -> float:
    began = perf_counter()
    with JsonLinesClient(command, folder) as client:
        client.initialize()
        client.call(tool, arguments)
        return perf_counter() - began
