"""A measurement: ours beside a yardstick, taken in turns in one run.

A machine that is shared is slow one minute and fast the next, so no time means anything alone: both sides
are taken A, B, A, B, … and compared by the same statistic.
"""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

__all__ = [
    "ENVIRONMENT",
    "Measurement",
    "difference",
    "interleaved",
    "percentile",
    "ratio",
    "seconds_of_process",
]

# Every process starts as a user starts it: settings of whoever runs the benchmark, such as one that keeps
# Python from caching compiled modules, would weigh on one side more than on the other.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FOUNDRY_"))
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    name: str
    compares: str
    """One sentence that says exactly what stands beside what."""
    ours: float
    yardstick: float | None = None
    unit: str
    """Of `ours` and `yardstick`."""
    result: float
    """What the target is about: a ratio, a difference, or `ours` itself."""
    result_unit: str = "×"  # noqa: RUF001 - the sign of a ratio, not a letter
    at_most: float | None = None
    at_least: float | None = None
    middle_half: tuple[float, float] | None = None
    """Between which results half of the pairs lie: how much noise there was."""

    @property
    def target_used(self) -> float | None:
        """1 is exactly the target, less is better."""
        if self.at_most is not None:
            return self.result / self.at_most
        return self.at_least / self.result if self.at_least is not None else None

    @property
    def reached(self) -> bool | None:
        return None if self.target_used is None else self.target_used <= 1


def interleaved(rounds: int, *takers: Callable[[], float], warm_up: int = 1) -> list[list[float]]:
    """What each taker measured, taken in turns; the first rounds are thrown away."""
    taken: list[list[float]] = [[] for _ in takers]
    for number in range(warm_up + rounds):
        for values, take in zip(taken, takers, strict=True):
            value = take()
            if number >= warm_up:
                values.append(value)
    return taken


def ratio(
    name: str,
    compares: str,
    ours: Sequence[float],
    yardstick: Sequence[float],
    *,
    unit: str,
    scale: float = 1,
    percent: int = 50,
    at_most: float | None = None,
) -> Measurement:
    """Ours divided by the yardstick, both at the same percentile."""
    here, there = percentile(ours, percent), percentile(yardstick, percent)
    return Measurement(
        name=name,
        compares=compares,
        ours=here * scale,
        yardstick=there * scale,
        unit=unit,
        result=here / there,
        at_most=at_most,
        middle_half=_middle_half([a / b for a, b in zip(ours, yardstick, strict=True)])
        if percent == 50
        else None,
    )


def difference(
    name: str,
    compares: str,
    ours: Sequence[float],
    yardstick: Sequence[float],
    *,
    unit: str,
    scale: float = 1,
    statistic: Callable[[Sequence[float]], float] = median,
    at_most: float | None = None,
) -> Measurement:
    """Ours less the yardstick, both by the same statistic."""
    here, there = statistic(ours), statistic(yardstick)
    return Measurement(
        name=name,
        compares=compares,
        ours=here * scale,
        yardstick=there * scale,
        unit=unit,
        result=(here - there) * scale,
        result_unit=f"{unit} more",
        at_most=at_most,
        middle_half=_middle_half([(a - b) * scale for a, b in zip(ours, yardstick, strict=True)])
        if statistic is median
        else None,
    )


def percentile(values: Sequence[float], percent: int) -> float:
    return median(values) if percent == 50 else quantiles(values, n=100, method="inclusive")[percent - 1]


def seconds_of_process(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] = ENVIRONMENT
) -> float:
    """The wall time of a process whose output goes into pipes; one that fails is no measurement."""
    began = perf_counter()
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    seconds = perf_counter() - began
    if ended.returncode:
        said = (ended.stdout + ended.stderr).decode("utf-8", "replace")
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {ended.returncode}:\n{said}")
    return seconds


def _middle_half(values: Sequence[float]) -> tuple[float, float]:
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high
