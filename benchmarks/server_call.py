"""What a call costs once the server runs."""

import tempfile
from pathlib import Path

from benchmarks.commands import BARE_SERVER, SERVER
from benchmarks.json_lines_client import JsonLinesClient
from benchmarks.measurement import Measurement, interleaved, ratio

ROUNDS = 3000


def measure() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with JsonLinesClient((SERVER,), folder) as ours, JsonLinesClient(BARE_SERVER, folder) as bare:
            ours.initialize()
            bare.initialize()
            health, echo = interleaved(
                ROUNDS,
                lambda: ours.seconds_of_call("server", {"action": "health"}),
                lambda: bare.seconds_of_call("echo", {"text": "hello"}),
                warm_up=300,
            )
    return [
        ratio(
            "A `server health` call over stdio, p50",
            "From writing the request to having read the answer, one call at a time, in turns with `echo` of"
            " five letters on the bare server; median.",
            health,
            echo,
            unit="µs",
            scale=1e6,
            at_most=1.25,
        ),
        ratio(
            "A `server health` call over stdio, p99",
            "The same calls; one in a hundred takes longer.",
            health,
            echo,
            unit="µs",
            scale=1e6,
            percent=99,
        ),
    ]
