"""The tool `journal`: what happened to a spec, and what was thought about it."""

from typing import Annotated, Any

from msgspec import Meta

from foundry_mcp.core.pagination import DEFAULT_PAGE_SIZE, paginate, query_hash
from foundry_mcp.core.specs import journal
from foundry_mcp.core.specs.model import Spec
from foundry_mcp.operations.declaration import Answer, Call, operation
from foundry_mcp.operations.parameters import (
    Cursor,
    Limit,
    SpecId,
    TaskId,
    Timestamp,
    Title,
)
from foundry_mcp.operations.spec import read, told

Content = Annotated[str, Meta(min_length=1, max_length=100_000, description="What to write down")]
EntryKind = Annotated[journal.Kind, Meta(description="Kind of entry")]
Author = Annotated[str, Meta(min_length=1, max_length=200, description="Who wrote it")]


@operation(
    "journal", "add", cli="journal add", example="my-spec 'Chose SQLite' --kind decision", revises=True
)
def add(
    call: Call,
    spec_id: SpecId,
    content: Content,
    *,
    title: Title | None = None,
    kind: EntryKind = "note",
    task_id: TaskId | None = None,
    author: Author | None = None,
) -> dict[str, Any]:
    """Write an entry into the journal of a spec or one of its tasks."""

    def change(spec: Spec) -> dict[str, Any]:
        if task_id is not None:
            spec.node(task_id)
        head = title or content.splitlines()[0][:120]
        return journal.note(spec, kind, head, content, task_id=task_id, author=author or call.session.client)

    written = call.surroundings.specs.write(
        spec_id, change, expected_revision=call.expected_revision, dry_run=call.dry_run
    )
    return told(written, {"entry": written.result})


@operation("journal", "list", cli="journal list", example="my-spec --kind decision")
def list_entries(
    call: Call,
    spec_id: SpecId,
    *,
    task_id: TaskId | None = None,
    kind: EntryKind | None = None,
    author: Author | None = None,
    since: Timestamp | None = None,
    limit: Limit = DEFAULT_PAGE_SIZE,
    cursor: Cursor | None = None,
) -> Answer:
    """List journal entries in the order they were written."""
    spec = read(call, spec_id)
    found = journal.select(spec, task_id=task_id, kind=kind, author=author, since=since)
    query = query_hash(
        "journal.list", spec_id=spec_id, task_id=task_id, kind=kind, author=author, since=since
    )
    page = paginate(found, key=lambda row: row[0], query=query, cursor=cursor, limit=limit)
    return Answer(
        {"spec_id": spec_id, "entries": [entry for _, entry in page.rows], "total_count": len(found)},
        page.pagination,
    )
