"""What the first page of a thousand specs costs, from a server that runs and from a fresh process."""

import json
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.commands import CLI, PREVIOUS, SERVER, previous_environment, previous_release
from benchmarks.json_lines_client import JsonLinesClient
from benchmarks.measurement import ENVIRONMENT, Measurement, interleaved, ratio, seconds_of_process
from benchmarks.sample_specs import sample_specs, write_specs

SPECS, PAGE = 1000, 50
ROUNDS = 30
PROCESSES = 10
LIST = {"action": "list", "limit": PAGE}


def measure() -> list[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        here, there = Path(name, "ours"), Path(name, "previous")
        write_specs(sample_specs(SPECS), here, there)
        environment = previous_environment(there, Path(name))
        return [*_warm(here, there, environment), *_cold(here, there, environment)]


def _warm(here: Path, there: Path, environment: dict[str, str]) -> list[Measurement]:
    with (
        JsonLinesClient((SERVER,), here) as ours,
        JsonLinesClient((previous_release() / "foundry-mcp",), there, environment) as previous,
    ):
        ours.initialize()
        previous.initialize()
        page, page_before = ours.data("spec", LIST), previous.data("spec", LIST)
        assert page["total_count"] == SPECS
        assert _gist(page) == _gist(page_before)
        assert len(page["specs"]) == PAGE
        mine, theirs = interleaved(
            ROUNDS,
            partial(ours.seconds_of_call, "spec", LIST),
            partial(previous.seconds_of_call, "spec", LIST),
            warm_up=3,
        )
    return [
        ratio(
            f"First page of `spec list`, {SPECS:,} specs, warm",
            f"The first {PAGE} of {SPECS:,} specs of 50 tasks each over stdio, beside the same call to"
            f" foundry-mcp {PREVIOUS} on a copy of the same files; both give the same specs.",
            mine,
            theirs,
            unit="ms",
            scale=1000,
            at_most=1 / 100,
        )
    ]


def _cold(here: Path, there: Path, environment: dict[str, str]) -> list[Measurement]:
    before = previous_release() / "foundry-cli"
    assert len(_printed((CLI, "specs", "list"), here, ENVIRONMENT)["specs"]) == PAGE
    assert len(_printed((before, "specs", "find"), there, environment)["specs"]) == SPECS
    mine, theirs = interleaved(
        PROCESSES,
        partial(seconds_of_process, (CLI, "specs", "list"), here),
        partial(seconds_of_process, (before, "specs", "find"), there, environment),
    )
    return [
        ratio(
            f"First page of `specs list`, {SPECS:,} specs, cold process",
            f"Wall time of `foundry-cli specs list` in the same folder, from a fresh process to its end, beside"
            f" `foundry-cli specs find` of foundry-mcp {PREVIOUS}, which knows no pages and prints them all.",
            mine,
            theirs,
            unit="ms",
            scale=1000,
            at_most=1 / 8,
        )
    ]


def _gist(page: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(spec["spec_id"], spec["title"], spec["status"]) for spec in page["specs"]]


def _printed(command: tuple[str | Path, ...], folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=60,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    data: dict[str, Any] = json.loads(ended.stdout)["data"]
    return data
