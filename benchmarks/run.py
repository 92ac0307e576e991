"""Measure: everything, and write docs/benchmarks.md with its picture; or only what is named, and print it."""

import argparse
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # Python puts the folder of the script there

from benchmarks.report import line, markdown, picture  # noqa: E402 - found through the line above

# In the order of the report. Each module has `measure() -> list[Measurement]`.
MODULES = (
    "cli_start",
    "server_start",
    "server_call",
    "envelope_time",
    "envelope_tokens",
    "spec_list",
    "task_calls",
    "spec_growth",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(MODULES)}")
    names = parser.parse_args().names
    if unknown := sorted({*names} - {*MODULES}):
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(MODULES)}")
    taken = list(measured(names or MODULES))
    if not names:
        (ROOT / "docs" / "benchmarks.md").write_text(markdown(taken), encoding="utf-8")
        (ROOT / "docs" / "benchmarks.svg").write_text(picture(taken), encoding="utf-8")
        print("Written: docs/benchmarks.md, docs/benchmarks.svg")


def measured(names):
    for name in names:
        print(f"{name} …", flush=True)
        for measurement in importlib.import_module(f"benchmarks.{name}").measure():
            print(f"  {line(measurement)}", flush=True)
            yield measurement


if __name__ == "__main__":
    main()
