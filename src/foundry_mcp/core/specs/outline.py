"""A spec from a Markdown outline: headings are phases, checkboxes are tasks, indented ones subtasks.

Every way to create a spec goes through here: a template is an outline, and a bare title is the smallest one.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from foundry_mcp.core.errors import validation
from foundry_mcp.core.specs import structure
from foundry_mcp.core.specs.model import ROOT, Spec, now_text

__all__ = ["TEMPLATES", "Template", "new_document", "read_outline", "slug"]

Template = Literal["feature", "bugfix", "research"]

TEMPLATES: dict[str, str] = {
    "feature": """
## Understand
- [ ] Write down what must be true when it is done
- [ ] Find the code it touches
## Build
- [ ] Implement it
- [ ] Write the tests
## Check
- [ ] verify: Run all tests
- [ ] verify: Review the change
""",
    "bugfix": """
## Reproduce
- [ ] Write a failing test
## Mend
- [ ] Find the cause
- [ ] Mend it
## Check
- [ ] verify: Run all tests
""",
    "research": """
## Question
- [ ] Write the question and what would answer it
## Sources
- [ ] Collect sources
- [ ] Digest them
## Answer
- [ ] Write the answer with citations
- [ ] verify: Verify every citation
""",
}

_HEADING = re.compile(r"(#{1,6})\s+([^\s#].*?)\s*#*\s*$")
_CHECKBOX = re.compile(r"(\s*)(?:[-*+]|\d+[.)])\s+\[([ xX])\]\s+(\S.*?)\s*$")
_BULLET = re.compile(r"\s+(?:[-*+]|\d+[.)])\s+(\S.*?)\s*$")
_FENCE = re.compile(r"\s*(```|~~~)")
MAX_DEPTH = 6


def new_document(
    title: str, *, spec_id: str | None = None, metadata: dict[str, Any] | None = None
) -> dict[str, Any]:
    """An empty spec."""
    return {
        "spec_id": spec_id or f"{slug(title)}-{datetime.now(UTC):%Y-%m-%d}-001",
        "title": title,
        "generated": now_text(),
        "last_updated": now_text(),
        "revision": 0,
        "metadata": {"description": "", "objectives": [], "assumptions": [], **(metadata or {})},
        "hierarchy": {
            ROOT: {
                "type": "spec",
                "title": title,
                "status": "pending",
                "parent": None,
                "children": [],
                "total_tasks": 0,
                "completed_tasks": 0,
                "metadata": {},
                "dependencies": {"blocks": [], "blocked_by": [], "depends": []},
            }
        },
        "journal": [],
    }


def slug(title: str) -> str:
    """The part of an id that a title gives; a title without Latin letters or digits gives "spec"."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:80].strip("-") or "spec"


def read_outline(spec: Spec, text: str) -> str | None:
    """Add the phases and tasks of an outline to an empty spec; returns the title its first heading gives, if any."""
    lines = list(_unfenced(text))
    level = _phase_level(lines)
    title: str | None = None
    phase: str | None = None
    parents: list[tuple[int, str]] = []
    ids = _Ids()
    for line in lines:
        if heading := _HEADING.match(line):
            if level is not None and len(heading[1]) < level:
                title = title or heading[2]
                continue
            phase = structure.attach(spec, ids.next(ROOT, "phase"), heading[2], ROOT, "phase")
            parents = []
        elif checkbox := _CHECKBOX.match(line):
            phase = phase or structure.attach(spec, ids.next(ROOT, "phase"), "Tasks", ROOT, "phase")
            _add_task(spec, ids, checkbox, phase, parents)
        elif parents and (bullet := _BULLET.match(line)):
            spec.nodes[parents[-1][1]]["metadata"].setdefault("acceptance_criteria", []).append(bullet[1])
        elif phase and not parents and line.strip():
            spec.nodes[phase]["metadata"].setdefault("description", []).append(line.strip())
    for node in spec.nodes.values():
        if isinstance(node["metadata"].get("description"), list):
            node["metadata"]["description"] = " ".join(node["metadata"]["description"])
    structure.settle(spec)
    return title


class _Ids:
    """Numbers for the nodes of a spec that has none yet."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def next(self, parent: str, kind: str) -> str:
        prefix = structure.id_prefix(parent, kind)
        self._last[prefix] = self._last.get(prefix, 0) + 1
        return f"{prefix}{self._last[prefix]}"


def _add_task(
    spec: Spec, ids: _Ids, checkbox: re.Match[str], phase: str, parents: list[tuple[int, str]]
) -> None:
    depth = len(checkbox[1].expandtabs(4))
    while parents and parents[-1][0] >= depth:
        parents.pop()
    if len(parents) >= MAX_DEPTH:
        raise validation(
            "outline", "depth", f"tasks are nested more than {MAX_DEPTH} deep", received=checkbox[3]
        )
    text = checkbox[3]
    verifies = text.lower().startswith("verify:") and not parents
    kind = "subtask" if parents else "verify" if verifies else "task"
    title = text[len("verify:") :].strip() or text if verifies else text
    parent = parents[-1][1] if parents else phase
    if spec.nodes[parent]["type"] == "verify":  # what is indented below a check belongs to the check itself
        spec.nodes[parent]["metadata"].setdefault("acceptance_criteria", []).append(title)
        return
    task_id = structure.attach(spec, ids.next(parent, kind), title, parent, kind)
    spec.nodes[task_id]["status"] = "completed" if checkbox[2] != " " else "pending"
    parents.append((depth, task_id))


def _unfenced(text: str) -> Iterator[str]:
    """The lines outside of code blocks; a block ends with the mark it began with."""
    fence = None
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence is None:
            if mark:
                fence = mark[1]
            else:
                yield line
        elif mark and mark[1] == fence:
            fence = None


def _phase_level(lines: list[str]) -> int | None:
    """The level of the headings that are phases: the second one where a single top heading is the title."""
    levels = [len(match[1]) for line in lines if (match := _HEADING.match(line))]
    if not levels:
        return None
    top = min(levels)
    deeper = [level for level in levels if level > top]
    return min(deeper) if levels.count(top) == 1 and deeper else top
