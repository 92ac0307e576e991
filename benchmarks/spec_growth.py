"""What ten times as many specs, or tasks in a spec, cost."""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.commands import SERVER
from benchmarks.json_lines_client import JsonLinesClient
from benchmarks.measurement import Measurement, interleaved, ratio
from benchmarks.sample_specs import SampleSpec, big_spec, sample_specs, write_specs

FEW, MANY = 1000, 10_000
SPEC = "payment-ledger-2025-01-14-001"
LIST = {"action": "list", "limit": 50}
NEXT = {"action": "next", "spec_id": SPEC}
LISTS, NEXTS, ANEW = 500, 300, 50


def measure() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        nexts = _nexts(Path(name, "few-tasks"), Path(name, "many-tasks"))
        return [_lists(Path(name, "few-specs"), Path(name, "many-specs")), *nexts]


def _lists(few: Path, many: Path) -> Measurement:
    write_specs(sample_specs(FEW), few)
    write_specs(sample_specs(MANY), many)
    with JsonLinesClient((SERVER,), few) as at_few, JsonLinesClient((SERVER,), many) as at_many:
        at_few.initialize()
        at_many.initialize()
        page, same = at_few.data("spec", LIST), at_many.data("spec", LIST)
        assert page["specs"] == same["specs"]
        assert (page["total_count"], same["total_count"]) == (FEW, MANY)
        more, fewer = interleaved(
            LISTS,
            partial(at_many.seconds_of_call, "spec", LIST),
            partial(at_few.seconds_of_call, "spec", LIST),
            warm_up=20,
        )
    return ratio(
        f"Growth of `spec list`: {MANY:,} specs beside {FEW:,}",
        "The same first page of 50 specs over stdio, warm, from two servers that differ in how many specs follow.",
        more,
        fewer,
        unit="ms",
        scale=1000,
        at_most=2,
    )


def _nexts(few: Path, many: Path) -> list[Measurement]:
    small, big = big_spec(SPEC, FEW), big_spec(SPEC, MANY)
    write_specs([small], few)
    write_specs([big], many)
    # A server each: what one spec leaves for the garbage collector must not be paid for by the other.
    with JsonLinesClient((SERVER,), few) as at_few, JsonLinesClient((SERVER,), many) as at_many:
        at_few.initialize()
        at_many.initialize()
        warm = interleaved(
            NEXTS,
            partial(at_many.seconds_of_call, "task", NEXT),
            partial(at_few.seconds_of_call, "task", NEXT),
            warm_up=20,
        )
        anew = interleaved(
            ANEW, _after_write(at_many, many, big), _after_write(at_few, few, small), warm_up=3
        )
    what = f"Growth of `task next`: {MANY:,} tasks beside {FEW:,}"
    return [
        ratio(
            f"{what}, warm",
            "Asking over stdio for the next task that can start, of two servers that differ in the size of the spec; nothing is written meanwhile.",
            *warm,
            unit="ms",
            scale=1000,
            at_most=12,
        ),
        ratio(
            f"{what}, after a write",
            "The same, each time after another process has replaced the file, so that it must be read anew.",
            *anew,
            unit="ms",
            scale=1000,
            at_most=12,
        ),
    ]


def _after_write(server: JsonLinesClient, workspace: Path, spec: SampleSpec) -> Callable[[], float]:
    folder = workspace / "specs" / spec.folder
    head, key, rest = spec.content.partition(b'"hierarchy": ')
    revisions = count(1)

    def ask() -> float:
        revision = next(revisions)
        (folder / ".replaced").write_bytes(head + f'"revision": {revision},\n  '.encode() + key + rest)
        os.replace(folder / ".replaced", folder / f"{spec.spec_id}.json")
        data, seconds = server.timed_data("task", NEXT)
        assert data["revision"] == revision
        assert data["task"] is not None
        return seconds

    return ask
