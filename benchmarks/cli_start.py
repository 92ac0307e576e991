"""How long a person or a script waits for one command."""

import tempfile
from functools import partial
from pathlib import Path

from benchmarks.commands import CLI, PREVIOUS, PYTHON, previous_release
from benchmarks.measurement import Measurement, interleaved, ratio, seconds_of_process

ROUNDS = 25


def measure() -> list[Measurement]:
    before = previous_release() / "foundry-cli"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stage in ("pending", "active", "completed", "archived"):
            (folder / "specs" / stage).mkdir(parents=True)
        ours, previous, click = interleaved(
            ROUNDS,
            partial(seconds_of_process, (CLI, "server", "health"), folder),
            partial(seconds_of_process, (before, "specs", "find"), folder),
            partial(seconds_of_process, (PYTHON, "-c", "import click"), folder),
            warm_up=2,
        )
    return [
        ratio(
            f"CLI call, cold process, beside foundry-mcp {PREVIOUS}",
            f"Wall time of `foundry-cli server health`, from a fresh process to its end, output into a pipe,"
            f" beside `foundry-cli specs find` of foundry-mcp {PREVIOUS} in the same folder without specs.",
            ours,
            previous,
            unit="ms",
            scale=1000,
            at_most=1 / 8,
        ),
        ratio(
            "CLI call, cold process, beside importing click",
            'The same wall time beside `python -c "import click"` with the same Python.',
            ours,
            click,
            unit="ms",
            scale=1000,
            at_most=4,
        ),
    ]
