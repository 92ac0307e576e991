"""What the contract costs a model that reads it, in tokens."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import splintr

from benchmarks.commands import SERVER
from benchmarks.json_lines_client import JsonLinesClient
from benchmarks.measurement import Measurement
from benchmarks.sample_rows import PAGE, ROWS
from foundry_mcp.core.contracts import encode
from foundry_mcp.core.flags import Flags
from foundry_mcp.core.settings import Settings
from foundry_mcp.operations.declaration import Answer, Call, Registry, Surroundings
from foundry_mcp.runtime import Request, Runtime

ANSWERS = 200
LAST_PAGE = {"has_more": False, "total_count": 20, "page_size": 20}


def measure() -> list[Measurement]:
    counting = f"o200k_base tokens of a whole answer less those of its `data` alone, both compact JSON, most of {ANSWERS}"
    return [
        _added("`server health`", f"{counting} answers of the running server.", _health(), at_most=40),
        _added("20 rows", f"{counting} answers of the runtime.", _listing(None), at_most=40),
        _added(
            "20 rows and the last page's pagination",
            "The same with the `meta.pagination` of a last page; no target, because it says what the rows do not.",
            _listing(LAST_PAGE),
        ),
        _added(
            "20 rows, pagination and a cursor",
            "The same with a cursor for the next page; its length follows the sort key of the listing.",
            _listing(PAGE),
        ),
    ]


def _added(what: str, compares: str, answers: Iterator[str], at_most: float | None = None) -> Measurement:
    tokens = splintr.Tokenizer.from_pretrained("o200k_base").encode
    counted = [
        (len(tokens(text)), len(tokens(encode(json.loads(text)["data"]).decode("utf-8")))) for text in answers
    ]
    whole, data = max(counted, key=lambda pair: pair[0] - pair[1])
    return Measurement(
        name=f"Tokens the envelope adds to {what}",
        compares=compares,
        ours=whole,
        yardstick=data,
        unit="tokens",
        result=whole - data,
        result_unit="tokens more",
        at_most=at_most,
    )


def _health() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name, JsonLinesClient((SERVER,), Path(name)) as client:
        client.initialize()
        for _ in range(ANSWERS):
            yield client.call("server", {"action": "health"})["content"][0]["text"]


def _listing(pagination: dict[str, Any] | None) -> Iterator[str]:
    registry = Registry()

    @registry.operation("spec", "list", cli="specs list")
    def find(_call: Call) -> Answer:
        return Answer({"specs": ROWS}, pagination=pagination)

    surroundings = Surroundings(Path.cwd(), Settings(), Flags(), registry)
    runtime = Runtime(surroundings, log=lambda *_, **__: None)
    for _ in range(ANSWERS):
        yield runtime.call(Request("spec", {"action": "list"})).body.decode("utf-8")
