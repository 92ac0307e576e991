"""Specs to measure with: made up, the same every time, in the form in which people have them on disk.

The files are what foundry-mcp 0.16.0 writes, so both programs read the same bytes, and as large as those of
its users: about 750 bytes for a task and 550 for an entry of the journal.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

__all__ = ["SampleSpec", "big_spec", "sample_specs", "write_specs"]

SEED = 20_250_114
FOLDERS = ("pending", "active", "completed", "archived")
BEGUN = 11
"""Tasks done in the phase that is under way: two digits, so that natural and plain order name the same next one."""

SUBJECTS = (
    "audit-log",
    "billing",
    "checkout",
    "consent",
    "dashboard",
    "digest",
    "exporter",
    "gateway",
    "importer",
    "inbox",
    "ledger",
    "login",
    "mailer",
    "metrics",
    "notifier",
    "onboarding",
    "payment",
    "planner",
    "profile",
    "queue",
    "refund",
    "reports",
    "scheduler",
    "search",
    "session",
    "settings",
    "shipping",
    "storage",
    "support",
    "sync",
    "tenant",
    "timeline",
    "token",
    "uploader",
    "usage",
    "webhook",
    "workflow",
)
CONCERNS = (
    "accessibility",
    "backfill",
    "caching",
    "cleanup",
    "consistency",
    "deduplication",
    "encryption",
    "fallback",
    "hardening",
    "history",
    "idempotency",
    "indexing",
    "isolation",
    "latency",
    "limits",
    "localization",
    "migration",
    "observability",
    "pagination",
    "permissions",
    "quotas",
    "recovery",
    "replay",
    "retention",
    "retries",
    "rollout",
    "sharding",
    "throttling",
    "tracing",
    "validation",
)
STEPS = (
    "Add the {concern} table for the {subject}",
    "Move the {subject} behind an interface",
    "Handle a timeout of the {subject} without losing {concern}",
    "Write the {concern} rules of the {subject} down as tests",
    "Show the state of {concern} in the {subject} page",
    "Replace the hand-written {concern} of the {subject}",
    "Measure the {subject} with and without {concern}",
    "Document how the {subject} deals with {concern}",
)


WORK_DONE = (
    "Done as described. What was there before is kept behind the same interface, and callers need no change:"
    " the two that reached inside were moved first. Tests cover the ordinary way, a timeout, a repeated call and"
    " an empty answer; all pass, and the slow one now takes a third of its time. Left for later: the names."
)


class SampleSpec(msgspec.Struct, frozen=True):
    spec_id: str
    folder: str
    content: bytes


def sample_specs(count: int, *, tasks: int = 50) -> Iterator[SampleSpec]:
    """Specs of `tasks` tasks each in all folders, sorted by id: fewer of them are the first ones of more."""
    random = Random(SEED)  # noqa: S311 - made up, not secret
    ids = sorted(
        f"{subject}-{concern}-2025-{month:02d}-{1 + (month * 5 + len(subject)) % 28:02d}-001"
        for month in range(1, 13)
        for subject in SUBJECTS
        for concern in CONCERNS
    )
    assert count <= len(ids)
    for spec_id in ids[:count]:
        folder = random.choices(FOLDERS, (25, 10, 60, 5))[0]
        share = {"pending": 0.0, "active": random.random(), "completed": 1.0, "archived": 0.5}[folder]
        yield _sample_spec(random, spec_id, folder, tasks, per_phase=10, done=int(share * tasks))


def big_spec(spec_id: str, tasks: int) -> SampleSpec:
    """An active spec in phases of fifty tasks, with a fifth of the work done and a phase begun."""
    random = Random(SEED)  # noqa: S311 - made up, not secret
    return _sample_spec(random, spec_id, "active", tasks, per_phase=50, done=tasks // 5 + BEGUN)


def _sample_spec(
    random: Random, spec_id: str, folder: str, tasks: int, *, per_phase: int, done: int
) -> SampleSpec:
    """A spec of which the first `done` tasks are completed; each phase waits for the one before it."""
    subject, concern = random.choice(SUBJECTS), random.choice(CONCERNS)
    title = f"{concern.capitalize()} of the {subject}"
    hierarchy: dict[str, Any] = {"spec-root": _node("spec", title, None)}
    journal: list[dict[str, Any]] = []
    for number in range(1, -(-tasks // per_phase) + 1):
        phase_id = f"phase-{number}"
        phase = hierarchy[phase_id] = _node("phase", f"{random.choice(CONCERNS).capitalize()}", "spec-root")
        phase["metadata"] = {"purpose": f"Bring {random.choice(CONCERNS)} to the {subject}"}
        hierarchy["spec-root"]["children"].append(phase_id)
        if number > 1:
            _wait(hierarchy, phase_id, f"phase-{number - 1}")
        for place in range(1, min(per_phase, tasks - (number - 1) * per_phase) + 1):
            kind = "verify" if place == per_phase else "task"
            task_id = f"{kind}-{number}-{place}"
            task = hierarchy[task_id] = _task(random, kind, phase_id)
            phase["children"].append(task_id)
            if place > 1 and random.random() < 0.4:
                _wait(hierarchy, task_id, f"task-{number}-{random.randrange(1, place)}")
            if (number - 1) * per_phase + place <= done:
                _finish(task, task_id, journal)
        _count(hierarchy, phase_id)
    _count(hierarchy, "spec-root")
    root = hierarchy["spec-root"]
    document: dict[str, Any] = {
        "spec_id": spec_id,
        "title": title,
        "generated": "2025-01-14T09:00:00Z",
        "last_updated": "2025-02-20T16:30:00.125000Z",
        "metadata": {
            "description": f"What the {subject} needs for {concern}, phase by phase.",
            "objectives": [random.choice(STEPS).format(subject=subject, concern=concern) for _ in range(3)],
            "complexity": random.choice(("low", "medium", "high")),
            "estimated_hours": tasks * 1.5,
            "assumptions": ["The interface stays as it is", "There is one writer at a time"],
            "tags": [subject, concern],
        },
        "progress_percentage": 100 * root["completed_tasks"] // root["total_tasks"],
        "status": folder,
        "current_phase": None,
        "hierarchy": hierarchy,
        "journal": journal,
    }
    content = msgspec.json.format(msgspec.json.encode(document), indent=2)
    return SampleSpec(spec_id, folder, content)


def write_specs(specs: Iterable[SampleSpec], *workspaces: Path) -> None:
    """Make workspaces that each have a copy of these specs."""
    for workspace in workspaces:
        for folder in FOLDERS:
            (workspace / "specs" / folder).mkdir(parents=True)
    for spec in specs:
        for workspace in workspaces:
            (workspace / "specs" / spec.folder / f"{spec.spec_id}.json").write_bytes(spec.content)


def _node(kind: str, title: str, parent: str | None) -> dict[str, Any]:
    return {
        "type": kind,
        "title": title,
        "status": "pending",
        "parent": parent,
        "children": [],
        "total_tasks": 0,
        "completed_tasks": 0,
        "metadata": {},
        "dependencies": {"blocks": [], "blocked_by": [], "depends": []},
    }


def _task(random: Random, kind: str, phase: str) -> dict[str, Any]:
    subject, concern = random.choice(SUBJECTS), random.choice(CONCERNS)
    task = _node(kind, random.choice(STEPS).format(subject=subject, concern=concern), phase)
    task["total_tasks"] = 1
    task["metadata"] = {
        "description": f"The {subject} must keep its promises about {concern} while this is changed.",
        "file_path": f"src/{subject.replace('-', '_')}/{concern}.py",
        "estimated_hours": random.choice((0.5, 1, 2, 4)),
        "task_category": random.choice(("implementation", "refactoring", "investigation")),
        "acceptance_criteria": [f"{concern.capitalize()} is tested", "Nothing else changes"],
        "details": f"Begin with what {random.choice(SUBJECTS)} does today; keep its interface as it is.",
    }
    return task


def _wait(hierarchy: dict[str, Any], node_id: str, blocker: str) -> None:
    hierarchy[node_id]["dependencies"]["blocked_by"].append(blocker)
    hierarchy[blocker]["dependencies"]["blocks"].append(node_id)


def _finish(task: dict[str, Any], task_id: str, journal: list[dict[str, Any]]) -> None:
    task["status"], task["completed_tasks"] = "completed", 1
    task["metadata"] |= {
        "started_at": "2025-02-20T15:10:00.250000Z",
        "completed_at": "2025-02-20T16:30:00.125000Z",
        "needs_journaling": False,
        "journaled_at": "2025-02-20T16:30:00.125000Z",
        "actual_hours": 1.334,
    }
    journal.append(
        {
            "timestamp": "2025-02-20T16:30:00.125000Z",
            "entry_type": "status_change",
            "title": f"Task Completed: {task['title']}",
            "content": WORK_DONE,
            "author": "foundry-mcp",
            "metadata": {},
            "task_id": task_id,
        }
    )


def _count(hierarchy: dict[str, Any], node_id: str) -> None:
    node = hierarchy[node_id]
    below = [hierarchy[child] for child in node["children"]]
    node["total_tasks"] = sum(child["total_tasks"] for child in below)
    node["completed_tasks"] = sum(child["completed_tasks"] for child in below)
    if node["completed_tasks"]:
        node["status"] = "completed" if node["completed_tasks"] == node["total_tasks"] else "in_progress"
