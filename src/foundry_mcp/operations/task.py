"""The tool `task`: the work in a spec, shared by everybody who does it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from foundry_mcp.core.errors import FoundryError, unknown_name, validation
from foundry_mcp.core.pagination import DEFAULT_PAGE_SIZE, Page, paginate, query_hash
from foundry_mcp.core.specs import briefing, claims, graph, structure, tasks
from foundry_mcp.core.specs.model import ROOT, Spec, Status, natural
from foundry_mcp.core.specs.store import OpenSpec
from foundry_mcp.operations.declaration import (
    DRY_RUN,
    EXPECTED_REVISION,
    IDEMPOTENCY,
    MAX_TOKENS,
    Answer,
    Call,
    Operation,
    operation,
)
from foundry_mcp.operations.parameters import (
    Cursor,
    Limit,
    Owner,
    Prose,
    SpecId,
    TaskId,
    Title,
)
from foundry_mcp.operations.spec import read, told

StatusName = Annotated[Status, Meta(description="Only in this state")]
PhaseId = Annotated[TaskId, Meta(description="Only below this phase, group or task")]
Search = Annotated[str, Meta(max_length=500, description="Only where this text occurs")]
Lease = Annotated[int, Meta(ge=1, le=86_400, description="How long the claim lasts, in seconds")]
Reason = Annotated[str, Meta(min_length=1, max_length=2000, description="Why it cannot go on")]
BlockKind = Annotated[
    Literal["dependency", "technical", "resource", "decision"],
    Meta(description="What kind of obstacle it is"),
]
Evidence = Annotated[
    dict[str, Any], Meta(description='What shows it: {"files": [...], "commands": [...], "commit": "..."}')
]
NodeKind = Annotated[Literal["task", "subtask", "verify", "group", "phase"], Meta(description="What to add")]
Facts = Annotated[
    dict[str, Any],
    Meta(description="Merged into its metadata: acceptance_criteria, file_path, estimated_hours …"),
]
Blockers = Annotated[list[TaskId], Meta(max_length=100, description="What it waits for")]
Removes = Annotated[bool, Meta(description="Take the edge away instead")]
Changes = Annotated[
    list[dict[str, Any]],
    Meta(min_length=1, max_length=500, description='Such as {"action": "complete", "task_id": "task-1-2"}'),
]
Partial = Annotated[bool, Meta(description="Keep what succeeds even if something fails")]


@operation("task", "query", cli="tasks query", example="my-spec --status pending")
def query(
    call: Call,
    spec_id: SpecId,
    *,
    status: StatusName | None = None,
    phase: PhaseId | None = None,
    owner: Owner | None = None,
    text: Search | None = None,
    limit: Limit = DEFAULT_PAGE_SIZE,
    cursor: Cursor | None = None,
) -> Answer:
    """List the tasks of a spec in the order of the work."""
    spec = read(call, spec_id)
    below = None if phase is None else _below(spec, phase)
    found = list(spec.tasks if status is None else spec.once(briefing.by_status).get(status, ()))
    if below is not None or owner is not None or text is not None:
        found = [
            task_id
            for task_id in found
            if (below is None or task_id in below)
            and (owner is None or briefing.owner(spec, task_id) == owner)
            and (text is None or briefing.mentions(spec, task_id, text.casefold()))
        ]
    bound = query_hash("task.query", spec_id=spec_id, status=status, phase=phase, owner=owner, text=text)
    page = _page(spec, found, bound, cursor, limit)
    rows = [briefing.row(spec, task_id) for task_id in page.rows]
    return Answer(
        {"spec_id": spec_id, "tasks": rows, "total_count": len(spec.tasks), "filtered_count": len(found)},
        page.pagination,
    )


@operation("task", "get", cli="tasks get", example="my-spec task-1-1")
def get(call: Call, spec_id: SpecId, task_id: TaskId) -> dict[str, Any]:
    """Give everything that is needed to start a task."""
    spec = read(call, spec_id)
    spec.node(task_id)
    return {"spec_id": spec_id, "revision": spec.revision, "task": briefing.whole(spec, task_id)}


@operation("task", "next", cli="tasks next", example="my-spec")
def next_task(call: Call, spec_id: SpecId) -> dict[str, Any]:
    """Give the next task that can start and nobody has claimed."""
    spec = read(call, spec_id)
    free = next(claims.free(spec), None)
    data: dict[str, Any] = {"spec_id": spec_id, "revision": spec.revision, "progress": spec.progress()}
    if free is not None:
        return {**data, "task": briefing.whole(spec, free), "can_start": True}
    state = briefing.standstill(spec)
    if state != "completed":
        call.warn("TASK_BLOCKED", f"Nothing can start now: {state.replace('_', ' ')}", state=state)
    return {**data, "task": None, "can_start": False, "state": state}


@operation("task", "ready", cli="tasks ready", example="my-spec")
def ready(
    call: Call, spec_id: SpecId, *, limit: Limit = DEFAULT_PAGE_SIZE, cursor: Cursor | None = None
) -> Answer:
    """List all that could start now, side by side."""
    spec = read(call, spec_id)
    found = spec.once(graph.ready)
    page = _page(spec, found, query_hash("task.ready", spec_id=spec_id), cursor, limit)
    rows = [briefing.row(spec, task_id) for task_id in page.rows]
    return Answer({"spec_id": spec_id, "tasks": rows, "total_count": len(found)}, page.pagination)


@operation("task", "progress", cli="tasks progress", example="my-spec")
def progress(call: Call, spec_id: SpecId) -> dict[str, Any]:
    """Count what is done, as a whole and by phase."""
    spec = read(call, spec_id)
    phases = [
        {
            "id": node_id,
            "title": spec.nodes[node_id].get("title"),
            "status": spec.nodes[node_id]["status"],
            **spec.progress(node_id),
        }
        for node_id in spec.order
        if spec.nodes[node_id]["type"] == "phase"
    ]
    states = [spec.nodes[node_id]["status"] for node_id in spec.leaves]
    counts = {state: states.count(state) for state in ("pending", "in_progress", "completed", "blocked")}
    return {
        "spec_id": spec_id,
        "revision": spec.revision,
        "progress": spec.progress(),
        "by_status": counts,
        "phases": phases,
    }


@operation("task", "claim", cli="tasks claim", example="my-spec --owner agent-1", revises=True)
def claim(
    call: Call, spec_id: SpecId, task_id: TaskId | None = None, *, owner: Owner, lease_seconds: Lease = 3600
) -> dict[str, Any]:
    """Take a task for yourself, the named one or the next free one, until the lease ends."""

    def change(spec: Spec) -> dict[str, Any]:
        return tasks.claim(spec, task_id, owner, lease_seconds=lease_seconds)

    return _write(call, spec_id, change)


@operation("task", "release", cli="tasks release", example="my-spec task-1-1 --owner agent-1", revises=True)
def release(call: Call, spec_id: SpecId, task_id: TaskId, *, owner: Owner) -> dict[str, Any]:
    """Give a claimed task back."""
    return _write(call, spec_id, lambda spec: tasks.release(spec, task_id, owner))


@operation("task", "start", cli="tasks start", example="my-spec task-1-1", revises=True)
def start(
    call: Call, spec_id: SpecId, task_id: TaskId, *, owner: Owner | None = None, note: Prose = ""
) -> dict[str, Any]:
    """Begin a task; one that waits for others is not begun, and the answer says for what."""
    return _write(
        call,
        spec_id,
        lambda spec: tasks.start(spec, task_id, owner=owner, message=note),
    )


@operation(
    "task", "complete", cli="tasks complete", example="my-spec task-1-1 --note 'All tests pass'", revises=True
)
def complete(
    call: Call,
    spec_id: SpecId,
    task_id: TaskId,
    *,
    note: Prose = "",
    evidence: Evidence | None = None,
    owner: Owner | None = None,
) -> dict[str, Any]:
    """Finish a task, with a note and what shows that it is done."""

    def change(spec: Spec) -> dict[str, Any]:
        return tasks.complete(spec, task_id, owner=owner, message=note, evidence=evidence)

    return _write(call, spec_id, change)


@operation(
    "task",
    "block",
    cli="tasks block",
    example="my-spec task-1-1 --reason 'Waiting for approval'",
    revises=True,
)
def block(
    call: Call,
    spec_id: SpecId,
    task_id: TaskId,
    *,
    reason: Reason,
    kind: BlockKind = "dependency",
    owner: Owner | None = None,
) -> dict[str, Any]:
    """Say that a task cannot go on, and why."""
    return _write(
        call,
        spec_id,
        lambda spec: tasks.block(spec, task_id, reason, kind=kind, owner=owner),
    )


@operation("task", "unblock", cli="tasks unblock", example="my-spec task-1-1", revises=True)
def unblock(
    call: Call, spec_id: SpecId, task_id: TaskId, *, note: Prose = "", owner: Owner | None = None
) -> dict[str, Any]:
    """Say that a blocked task can go on."""
    return _write(
        call,
        spec_id,
        lambda spec: tasks.unblock(spec, task_id, message=note, owner=owner),
    )


@operation("task", "reset", cli="tasks reset", example="my-spec task-1-1", revises=True)
def reset(
    call: Call, spec_id: SpecId, task_id: TaskId, *, note: Prose = "", owner: Owner | None = None
) -> dict[str, Any]:
    """Take a task back to pending."""
    return _write(
        call,
        spec_id,
        lambda spec: tasks.reset(spec, task_id, message=note, owner=owner),
    )


@operation("task", "add", cli="tasks add", example="my-spec 'Write the tests' --parent phase-2", revises=True)
def add(
    call: Call,
    spec_id: SpecId,
    title: Title,
    *,
    parent: TaskId | None = None,
    type: NodeKind = "task",  # noqa: A002 - the name the files use
    description: Prose = "",
    metadata: Facts | None = None,
    blocked_by: Blockers | None = None,
) -> dict[str, Any]:
    """Add a task, subtask, verification, group or phase."""

    def change(spec: Spec) -> dict[str, Any]:
        return structure.add(
            spec,
            title,
            parent=parent,
            kind=type,
            description=description,
            details=metadata,
            blocked_by=blocked_by,
        )

    return _write(call, spec_id, change)


@operation(
    "task", "update", cli="tasks update", example="my-spec task-1-1 --title 'A better title'", revises=True
)
def update(
    call: Call,
    spec_id: SpecId,
    task_id: TaskId,
    *,
    title: Title | None = None,
    description: Prose | None = None,
    metadata: Facts | None = None,
) -> dict[str, Any]:
    """Change what a task says."""

    def change(spec: Spec) -> dict[str, Any]:
        return structure.update(spec, task_id, title=title, description=description, details=metadata)

    return _write(call, spec_id, change)


@operation("task", "move", cli="tasks move", example="my-spec task-1-1 phase-2", revises=True)
def move(call: Call, spec_id: SpecId, task_id: TaskId, parent: TaskId) -> dict[str, Any]:
    """Put a task below another phase, group or task."""
    return _write(call, spec_id, lambda spec: structure.move(spec, task_id, parent))


@operation("task", "remove", cli="tasks remove", example="my-spec task-1-1", revises=True, destructive=True)
def remove(call: Call, spec_id: SpecId, task_id: TaskId) -> dict[str, Any]:
    """Take a task and everything below it out of the spec."""
    return _write(call, spec_id, lambda spec: structure.remove(spec, task_id))


@operation("task", "depend", cli="tasks depend", example="my-spec task-1-2 task-1-1", revises=True)
def depend(
    call: Call, spec_id: SpecId, task_id: TaskId, waits_for: TaskId, *, remove: Removes = False
) -> dict[str, Any]:
    """Let a task wait for another, or no longer; a circle is refused."""
    return _write(
        call,
        spec_id,
        lambda spec: structure.depend(spec, task_id, waits_for, remove=remove),
    )


@operation(
    "task",
    "batch",
    cli="tasks batch",
    example='my-spec --changes \'[{"action": "complete", "task_id": "task-1-1"}]\'',
    revises=True,
)
def batch(call: Call, spec_id: SpecId, *, changes: Changes, partial: Partial = False) -> dict[str, Any]:
    """Make many changes in one write: all of them or none, or with partial what succeeds."""
    prepared = [_prepare(call, spec_id, index, change) for index, change in enumerate(changes)]
    failures: list[dict[str, Any]] = []

    def apply(spec: Spec) -> list[dict[str, Any]]:
        # The same operations, on the spec that is open here instead of one they would open themselves.
        inside = replace(call, surroundings=replace(call.surroundings))
        inside.surroundings.specs = OpenSpec(spec)
        results = []
        for index, (declared, parameters) in enumerate(prepared):
            try:
                told_of_it = _plain(declared.run(inside, **parameters))
            except FoundryError as failure:
                if not partial:
                    failure.details["change"] = index
                    raise
                task_id = parameters.get("task_id")
                failures.append(
                    {
                        "change": index,
                        "task_id": task_id,
                        "error": failure.message,
                        "error_code": failure.code,
                    }
                )
            else:
                results.append({key: value for key, value in told_of_it.items() if key not in ENVELOPE})
        return results

    written = call.surroundings.specs.write(
        spec_id, apply, expected_revision=call.expected_revision, dry_run=call.dry_run
    )
    data: dict[str, Any] = {
        "processed": len(written.result),
        "failed": len(failures),
        "results": written.result,
    }
    if failures:
        data["failures"] = failures
        call.warn(
            "PARTIAL_FAILURE", f"{len(failures)} of {len(changes)} changes failed", failed=len(failures)
        )
    return told(written, data)


SHARED = (IDEMPOTENCY, DRY_RUN, EXPECTED_REVISION, MAX_TOKENS)
ENVELOPE = frozenset({"spec_id", "revision", "progress"})
"""What the answer of the batch says once for all its changes."""


def _prepare(
    call: Call, spec_id: str, index: int, change: dict[str, Any]
) -> tuple[Operation, dict[str, Any]]:
    """The operation a change means, with its parameters checked before anything is opened."""
    registry = call.surroundings.registry
    actions = [str(d.action) for d in registry.tools["task"].values() if d.writes and d.action != "batch"]
    if change.get("action") not in actions:
        raise unknown_name(
            "action of a change", change.get("action"), actions, field=f"changes[{index}].action"
        )
    declared = registry.find("task", change["action"])
    for key in ("spec_id", *SHARED):
        if key in change:
            raise validation(f"changes[{index}].{key}", "batch", f"{key} is said once, for the whole batch")
    try:
        parameters = declared.parse(
            {**{k: v for k, v in change.items() if k != "action"}, "spec_id": spec_id}
        )
    except FoundryError as failure:
        failure.details["change"] = index
        raise
    values = {name: getattr(parameters, name) for name in parameters.__struct_fields__}
    return declared, {name: value for name, value in values.items() if name not in SHARED}


def _write(
    call: Call,
    spec_id: str,
    change: Callable[[Spec], dict[str, Any]],
) -> dict[str, Any]:
    written = call.surroundings.specs.write(
        spec_id, change, expected_revision=call.expected_revision, dry_run=call.dry_run
    )
    if written.result.get("can_start") is False:
        call.warn(
            "TASK_BLOCKED", "Task blocked by incomplete dependencies", blocked_by=written.result["blocked_by"]
        )
    elif written.result.get("claimed") is False:
        state = briefing.standstill(written.after)
        call.warn("TASK_BLOCKED", f"Nothing can be claimed now: {state.replace('_', ' ')}", state=state)
    elif written.result.get("status") == "blocked":
        call.warn("TASK_BLOCKED", "Task is blocked and cannot proceed")
    return told(written, written.result)


def _page(spec: Spec, found: list[str], bound: str, cursor: str | None, limit: int) -> Page[str]:
    """A page of tasks in the order of the work.

    A place in it is the way down to a task, not the task: it holds its ground when the task is removed.
    """
    phases = {node_id: place for place, node_id in enumerate(spec.children(ROOT))}

    def way(task_id: str) -> list[str]:
        return [*reversed([above for above in spec.ancestors(task_id) if above != ROOT]), task_id]

    def rank(steps: Any) -> tuple[Any, ...]:
        if not isinstance(steps, list) or not steps or steps[0] not in phases:
            raise TypeError("no such place any more")
        return (phases[steps[0]], *map(natural, steps[1:]))

    return paginate(found, key=way, order=rank, query=bound, cursor=cursor, limit=limit)


def _plain(result: Answer | dict[str, Any]) -> dict[str, Any]:
    return result.data if isinstance(result, Answer) else result


def _below(spec: Spec, phase: str) -> set[str]:
    spec.node(phase)
    return set(spec.walk(phase))
