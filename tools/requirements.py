"""Every requirement of the source documents and the test that shows it, checked both ways.

tests/requirements.toml lists them. A test says `@pytest.mark.requirement("id")` for each one it shows, or a
parameter does. Packages under `done` must be shown completely; the others may say already where they will be.
"""

import contextlib
import io
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIST = Path("tests/requirements.toml")
KEYS = {"id", "text", "issue", "test"}


class Collected:
    """A pytest plugin that keeps, for each test function, the requirements it or its parameters show."""

    def __init__(self) -> None:
        self.shown: dict[str, set[str]] = defaultdict(set)
        self.errors: list[str] = []

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            shown = self.shown[item.nodeid.split("[", 1)[0]]
            for mark in item.iter_markers("requirement"):
                shown.update(map(str, mark.args))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: cannot be collected\n{report.longreprtext.rstrip()}")


def collect(tests: Path) -> Collected:
    collected = Collected()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = pytest.main(
            ["--collect-only", "--quiet", "--rootdir", str(ROOT), "-p", "no:cacheprovider", str(tests)],
            plugins=[collected],
        )
    if status != pytest.ExitCode.OK and not collected.errors:
        collected.errors.append(f"collection ended with {status!r}\n{said.getvalue().rstrip()}")
    return collected


def faults(listed: Mapping[str, Any], shown: Mapping[str, set[str]]) -> Iterator[str]:
    """What is off between the list and the tests, one line each."""
    done, requirements = set(listed["done"]), listed["requirement"]
    for name, count in Counter(entry.get("id") for entry in requirements).items():
        if count > 1:
            yield f"{name}: listed {count} times"
    for entry in requirements:
        yield from _faults_of(entry, done, shown)
    known = {entry.get("id") for entry in requirements}
    for test, ids in sorted(shown.items()):
        for name in sorted(ids - known):
            yield f"{test}: shows {name}, which is not listed"


def _faults_of(entry: Mapping[str, Any], done: set[int], shown: Mapping[str, set[str]]) -> Iterator[str]:
    name, test = entry.get("id"), entry.get("test")
    if not name or not entry.get("text") or entry.get("issue") not in range(1, 7) or not entry.keys() <= KEYS:
        yield f"{name or entry}: needs id, text and an issue from 1 to 6, may have test, and nothing else"
    elif test is None:
        if entry["issue"] in done:
            marked = [nodeid for nodeid, ids in shown.items() if name in ids]
            hint = f"; {marked[0]} shows it" if marked else ""
            yield f"{name}: package {entry['issue']} is done, but no test is named{hint}"
    elif test not in shown:
        yield f"{name}: {test} does not exist"
    elif entry["issue"] in done and name not in shown[test]:
        yield f'{name}: {test} is not marked requirement("{name}")'


def main() -> int:
    listed = tomllib.loads((ROOT / LIST).read_text(encoding="utf-8"))
    collected = collect(ROOT / "tests")
    wrong = [*collected.errors, *faults(listed, collected.shown)]
    for line in wrong:
        print(line)
    done = [entry for entry in listed["requirement"] if entry["issue"] in listed["done"]]
    verdict = "all shown" if not wrong else f"{len(wrong)} faults"
    print(f"requirements: {len(listed['requirement'])} listed, {len(done)} of done packages, {verdict}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
