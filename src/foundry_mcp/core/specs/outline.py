"""A spec from a Markdown outline: headings are phases, checkboxes are tasks, indented ones subtasks.

Every way to create a spec goes through here: a template is an outline, and a bare title is the smallest one.
"""

import re
from datetime import UTC, datetime
from typing import Any, Literal

from foundry_mcp.core.errors import validation
from foundry_mcp.core.specs import tasks
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

_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*\s*$")
_CHECKBOX = re.compile(r"(\s*)(?:[-*+]|\d+[.)])\s+\[([ xX])\]\s+(.+?)\s*$")
_BULLET = re.compile(r"\s+(?:[-*+]|\d+[.)])\s+(.+?)\s*$")
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
    """Add the phases and tasks of an outline to `spec`; returns the title its first heading gives, if any."""
    title: str | None = None
    phase: str | None = None
    parents: list[tuple[int, str]] = []
    done: list[str] = []
    fenced = False
    lowest = _lowest_heading(text)
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        if fenced:
            continue
        if heading := _HEADING.match(line):
            if lowest is not None and len(heading[1]) < lowest:
                title = title or heading[2]
                continue
            phase = tasks.add(spec, heading[2], kind="phase")["task_id"]
            parents = []
        elif checkbox := _CHECKBOX.match(line):
            phase = phase or tasks.add(spec, "Tasks", kind="phase")["task_id"]
            task_id = _add_task(spec, checkbox, phase, parents)
            if checkbox[2] != " ":
                done.append(task_id)
        elif parents and (bullet := _BULLET.match(line)):
            facts = spec.nodes[parents[-1][1]]["metadata"]
            facts.setdefault("acceptance_criteria", []).append(bullet[1])
        elif phase and not parents and line.strip():
            facts = spec.nodes[phase]["metadata"]
            facts["description"] = f"{facts.get('description', '')} {line.strip()}".strip()
    for task_id in done:
        if spec.is_leaf(task_id):
            spec.nodes[task_id]["status"] = "completed"
    tasks.settle(spec)
    spec.journal.clear()  # that it was written down is not news
    return title


def _add_task(spec: Spec, checkbox: re.Match[str], phase: str, parents: list[tuple[int, str]]) -> str:
    depth = len(checkbox[1].expandtabs(4))
    while parents and parents[-1][0] >= depth:
        parents.pop()
    if len(parents) >= MAX_DEPTH:
        raise validation(
            "outline", "depth", f"tasks are nested more than {MAX_DEPTH} deep", received=checkbox[3]
        )
    text = checkbox[3]
    verifies = text.lower().startswith("verify:")
    kind = "subtask" if parents else "verify" if verifies else "task"
    title = text[len("verify:") :].strip() if verifies else text
    task_id = str(tasks.add(spec, title, parent=parents[-1][1] if parents else phase, kind=kind)["task_id"])
    parents.append((depth, task_id))
    return task_id


def _lowest_heading(text: str) -> int | None:
    """The level of the headings that are phases: the second one where a single top heading is the title."""
    levels = [len(match[1]) for line in text.splitlines() if (match := _HEADING.match(line))]
    if not levels:
        return None
    top = min(levels)
    deeper = [level for level in levels if level > top]
    return min(deeper) if levels.count(top) == 1 and deeper else top
