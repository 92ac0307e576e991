"""Measurements as a line, as a page and as a picture."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version

from benchmarks.measurement import Measurement

__all__ = ["line", "markdown", "picture"]

_VERDICTS = {True: "yes", False: "**no**", None: "-"}


def line(taken: Measurement) -> str:
    """One measurement for a terminal."""
    verdict = {True: "reached", False: "MISSED", None: "no target"}[taken.reached]
    beside = f" beside {_value(taken.yardstick, taken.unit)}" if taken.yardstick is not None else ""
    aim = f", target {_target(taken)}" if taken.reached is not None else ""
    return (
        f"{taken.name}: {_value(taken.ours, taken.unit)}{beside}, {_value(taken.result, taken.result_unit)}"
        f"{aim}: {verdict}"
    )


def markdown(measurements: Sequence[Measurement]) -> str:
    """The page docs/benchmarks.md."""
    held = [taken.reached for taken in measurements if taken.reached is not None]
    rows = "\n".join(_row(number, taken) for number, taken in enumerate(measurements, 1))
    notes = "\n".join(f"{number}. {_note(taken)}" for number, taken in enumerate(measurements, 1))
    return f"""\
<!-- Written by `make bench`; do not edit. -->
# Benchmarks

{sum(held)} of {len(held)} targets reached on {datetime.now(UTC):%Y-%m-%d}, with `make bench`: Python {platform.python_version()}, \
{platform.system()} {platform.machine()}, {os.cpu_count()} cores, mcp {version("mcp")}, msgspec {version("msgspec")}.

Each result compares two things measured in turns in the same run, so a slow or busy machine weighs on both sides.

![Each result as a share of its target](benchmarks.svg)

| | measure | ours | yardstick | result | target | reached |
|---|---|---:|---:|---:|---:|---|
{rows}

What each number compares:

{notes}
"""


def _row(number: int, taken: Measurement) -> str:
    cells = (
        str(number),
        taken.name,
        _value(taken.ours, taken.unit),
        "-" if taken.yardstick is None else _value(taken.yardstick, taken.unit),
        _value(taken.result, taken.result_unit),
        _target(taken),
        _VERDICTS[taken.reached],
    )
    return f"| {' | '.join(cells)} |"


def _note(taken: Measurement) -> str:
    if taken.middle_half is None:
        return taken.compares
    low, high = (_number(bound) for bound in taken.middle_half)
    return f"{taken.compares} Half of the pairs lie between {low} and {high} {taken.result_unit}."


def _target(taken: Measurement) -> str:
    if taken.at_most is not None:
        return f"≤ {_value(taken.at_most, taken.result_unit)}"
    return f"≥ {_value(taken.at_least, taken.result_unit)}" if taken.at_least is not None else "-"


def _value(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}".rstrip()


def _number(value: float) -> str:
    if value == int(value):
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}" if value < 1 else f"{value:.2f}"


WIDTH, LABEL, BAR, ROW, TOP = 860, 400, 340, 30, 44
LONGEST = 1.5  # targets that a bar can show; a longer one is cut and says its number

_STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #24292f }
    .faint { fill: #57606a; font-size: 12px }
    .good { fill: #2da44e } .bad { fill: #cf222e }
    .track { fill: #eaeef2 } .target { stroke: #24292f; stroke-width: 1.5; stroke-dasharray: 4 3 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .faint { fill: #9198a1 }
      .good { fill: #3fb950 } .bad { fill: #f85149 }
      .track { fill: #30363d } .target { stroke: #e6edf3 }
    }"""


def picture(measurements: Sequence[Measurement]) -> str:
    """The picture docs/benchmarks.svg: a bar for each target, and a line where the target is."""
    held = [taken for taken in measurements if taken.target_used is not None]
    height = TOP + ROW * len(held) + 14
    target = LABEL + BAR / LONGEST
    bars = "\n".join(_bar(taken, TOP + ROW * number) for number, taken in enumerate(held))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">
  <title>Each result as a share of its target; shorter is better</title>
  <style>{_STYLE}
  </style>
  <text x="{target:.0f}" y="22" text-anchor="middle" class="faint">target</text>
  <text x="{LABEL}" y="22" class="faint">shorter is better</text>
{bars}
  <line x1="{target:.0f}" x2="{target:.0f}" y1="30" y2="{height - 10}" class="target"/>
</svg>
"""


def _bar(taken: Measurement, top: int) -> str:
    used = taken.target_used or 0.0
    width = BAR * min(used, LONGEST) / LONGEST
    middle = top + 15
    name = escape(taken.name.replace("`", ""))
    return f"""\
  <text x="{LABEL - 12}" y="{middle}" text-anchor="end">{name}</text>
  <rect x="{LABEL}" y="{top}" width="{BAR}" height="20" rx="3" class="track"/>
  <rect x="{LABEL}" y="{top}" width="{width:.1f}" height="20" rx="3" class="{"good" if taken.reached else "bad"}"/>
  <text x="{LABEL + BAR + 10}" y="{middle}">{used:.0%} of target</text>"""
