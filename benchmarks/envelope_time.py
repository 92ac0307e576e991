"""What the contract costs in time: an answer that is built, checked and encoded, beside its bare rows."""

from functools import partial
from timeit import Timer
from typing import Any

from benchmarks.measurement import Measurement, difference, interleaved
from benchmarks.sample_rows import PAGE, ROWS
from foundry_mcp.core.contracts import Contract, encode, render
from foundry_mcp.core.responses import new_request_id, success_response

ROUNDS = 1500
CALLS = 200


def measure() -> list[Measurement]:
    ours, bare = interleaved(
        ROUNDS,
        partial(seconds_of, Timer(lambda: envelope(ROWS))),
        partial(seconds_of, Timer(lambda: encode(ROWS))),
        warm_up=50,
    )
    return [
        difference(
            "Envelope of 20 rows: built, checked and encoded",
            "`success_response` with request id, telemetry and pagination, its checks, the wire form and its"
            " encoding, less the encoding of the same 20 rows alone with the same encoder; medians.",
            ours,
            bare,
            unit="µs",
            scale=1e6,
            at_most=10,
        ),
        difference(
            "The same envelope, undisturbed",
            "The best of the same rounds: a target in µs depends on how busy the machine is, and others can only add.",
            ours,
            bare,
            unit="µs",
            scale=1e6,
            statistic=min,
        ),
    ]


def envelope(rows: list[dict[str, Any]]) -> bytes:
    response = success_response(
        {"specs": rows}, request_id=new_request_id(), telemetry={"duration_ms": 0.42}, pagination=PAGE
    )
    return encode(render(response, Contract.V2, operation="spec.list"))


def seconds_of(timer: Timer) -> float:
    return timer.timeit(CALLS) / CALLS
