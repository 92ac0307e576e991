"""The tool `spec`: plans as a whole."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from foundry_mcp.core.errors import ConflictError, validation
from foundry_mcp.core.pagination import DEFAULT_PAGE_SIZE, paginate, query_hash
from foundry_mcp.core.specs import briefing, graph, outline, rules
from foundry_mcp.core.specs.differences import differences
from foundry_mcp.core.specs.lifecycle import enter
from foundry_mcp.core.specs.model import FOLDERS, ROOT, Folder, Spec
from foundry_mcp.core.specs.store import Entry, SpecStore, Written
from foundry_mcp.operations.declaration import Answer, Call, operation
from foundry_mcp.operations.parameters import (
    Cursor,
    Limit,
    Prose,
    SpecId,
    TaskId,
    Timestamp,
    Title,
)

FolderName = Annotated[Folder, Meta(description="Lifecycle folder")]
Search = Annotated[str, Meta(max_length=500, description="Only where this text occurs")]
Tag = Annotated[str, Meta(max_length=100, description="Only with this tag")]
View = Annotated[Literal["full", "outline"], Meta(description="Everything, or ids, titles and states")]
TemplateName = Annotated[outline.Template, Meta(description="Start from a template")]
OutlineText = Annotated[
    str,
    Meta(
        max_length=1_000_000,
        description="Markdown: headings are phases, checkboxes tasks, indented ones subtasks",
    ),
]
Facts = Annotated[dict[str, Any], Meta(description="Merged into the metadata; null takes a key away")]
Lines = Annotated[list[str], Meta(max_length=200, description="Replaces the list of that name")]
Kept = Annotated[int, Meta(ge=0, description="A kept revision")]
Apply = Annotated[bool, Meta(description="Write the fixes instead of showing them")]
Force = Annotated[bool, Meta(description="Also with open tasks")]

MAX_ID_TRIES = 999


@operation("spec", "list", cli="specs list", example="--limit 50")
@operation("spec", "find", cli="specs find", example="--status active --limit 50")
def find(
    call: Call,
    *,
    status: FolderName | None = None,
    text: Search | None = None,
    tag: Tag | None = None,
    updated_since: Timestamp | None = None,
    limit: Limit = DEFAULT_PAGE_SIZE,
    cursor: Cursor | None = None,
) -> Answer:
    """List specs with their progress, in natural order."""
    store = call.surroundings.specs
    entries = store.index((status,) if status else FOLDERS)
    if text or tag or updated_since:
        # Only these look inside the files; the rest is answered from the names.
        rows = store.summaries(entries)
        entries = [
            Entry(row["spec_id"], row["status"])
            for row in rows
            if _matches(store, row, text, tag, updated_since)
        ]
    query = query_hash("spec.find", status=status, text=text, tag=tag, updated_since=updated_since)
    page = paginate(
        entries, key=list, order=lambda key: Entry(*key).rank(), query=query, cursor=cursor, limit=limit
    )
    rows = store.summaries(page.rows)
    for folder, problem in store.problems.items():
        call.warn("SPEC_UNREADABLE", problem, folder=folder)
    for row in rows:
        if "problem" in row:
            call.warn("SPEC_UNREADABLE", row["problem"], spec_id=row["spec_id"])
    return Answer({"specs": rows, "total_count": len(entries)}, page.pagination)


@operation("spec", "get", cli="specs get", example="my-spec --view outline")
def get(call: Call, spec_id: SpecId, *, view: View = "full", phase: TaskId | None = None) -> dict[str, Any]:
    """Read a spec: whole, one phase, or its outline."""
    spec = read(call, spec_id)
    start = phase or ROOT
    spec.node(start)
    document = {key: value for key, value in spec.document.items() if key not in {"hierarchy", "journal"}}
    head = {
        **document,
        "id": spec.id,
        "status": spec.folder,
        "revision": spec.revision,
        "progress": spec.progress(start),
    }
    if phase is not None:
        head["phase"] = phase
    if view == "outline":
        return {"spec": head, "outline": [briefing.line(spec, node_id) for node_id in spec.walk(start)]}
    return {"spec": head, "hierarchy": {node_id: spec.nodes[node_id] for node_id in spec.walk(start)}}


@operation("spec", "create", cli="specs create", example='"My feature" --template feature', writes=True)
def create(
    call: Call,
    title: Title,
    *,
    template: TemplateName | None = None,
    outline: OutlineText | None = None,
    spec_id: SpecId | None = None,
    metadata: Facts | None = None,
) -> dict[str, Any]:
    """Make a new spec from a title, a template or a Markdown outline."""
    if template and outline:
        raise validation("outline", "exclusive", "give a template or an outline, not both")
    document = _drafted(title, template, outline, spec_id, metadata)
    store = call.surroundings.specs
    stem = document["spec_id"].removesuffix("-001")
    for number in range(1, MAX_ID_TRIES + 1):
        try:
            spec = store.create(document, dry_run=call.dry_run)
        except ConflictError as taken:
            if spec_id is not None or taken.code != "ALREADY_EXISTS" or number == MAX_ID_TRIES:
                raise
            document["spec_id"] = f"{stem}-{number + 1:03d}"
        else:
            break
    lines = [briefing.line(spec, node_id) for node_id in spec.order[1:]]
    data = {
        "spec_id": spec.id,
        "title": spec.title,
        "status": spec.folder,
        "revision": spec.revision,
        "outline": lines,
    }
    return {**data, "dry_run": True} if call.dry_run else data


@operation("spec", "update", cli="specs update", example='my-spec --title "A better title"', revises=True)
def update(
    call: Call,
    spec_id: SpecId,
    *,
    title: Title | None = None,
    description: Prose | None = None,
    metadata: Facts | None = None,
    assumptions: Lines | None = None,
    constraints: Lines | None = None,
    risks: Lines | None = None,
    questions: Lines | None = None,
    success_criteria: Lines | None = None,
) -> dict[str, Any]:
    """Change the title and metadata of a spec."""
    said = {
        "description": description,
        "assumptions": assumptions,
        "constraints": constraints,
        "risks": risks,
        "questions": questions,
        "success_criteria": success_criteria,
    }
    facts = {**(metadata or {}), **{key: value for key, value in said.items() if value is not None}}

    def change(spec: Spec) -> None:
        if title is not None:
            spec.document["title"] = spec.nodes[ROOT]["title"] = title
        for key, value in facts.items():
            if value is None:
                spec.metadata.pop(key, None)
            else:
                spec.metadata[key] = value

    written = call.surroundings.specs.write(
        spec_id, change, expected_revision=call.expected_revision, dry_run=call.dry_run
    )
    return told(written, {"title": written.after.title})


@operation("spec", "validate", cli="validate check", example="my-spec")
def validate(call: Call, spec_id: SpecId) -> dict[str, Any]:
    """Check a spec against the rules; each finding says where and how to mend it."""
    found = rules.findings(read(call, spec_id))
    errors = sum(finding.severity == "error" for finding in found)
    return {
        "spec_id": spec_id,
        "valid": not errors,
        "errors": errors,
        "warnings": sum(finding.severity == "warning" for finding in found),
        "findings": [finding.describe() for finding in found],
    }


@operation("spec", "fix", cli="validate fix", example="my-spec --apply", revises=True)
def fix(call: Call, spec_id: SpecId, *, apply: Apply = False) -> dict[str, Any]:
    """Mend what validate found and can be mended: shows first, writes with apply."""
    write = apply and not call.dry_run
    written = call.surroundings.specs.write(
        spec_id, rules.fix, expected_revision=call.expected_revision, dry_run=not write
    )
    left = rules.findings(written.after)
    mended = [finding.describe() for finding in written.result]
    data = {"fixed" if write else "would_fix": mended, "left": [finding.describe() for finding in left]}
    return {**told(written, data), "applied": write and bool(mended)}


@operation("spec", "analyze", cli="specs analyze", example="my-spec")
def analyze(call: Call, spec_id: SpecId) -> dict[str, Any]:
    """Look at the dependencies: cycles, critical path, what can go side by side, files other specs change too."""
    spec = read(call, spec_id)
    path, hours = graph.critical_path(spec)
    turns = graph.waves(spec)
    return {
        "spec_id": spec_id,
        "progress": spec.progress(),
        "cycles": graph.find_cycles(spec),
        "critical_path": path,
        "critical_path_hours": hours,
        "parallel_width": max(map(len, turns), default=0),
        "waves": turns,
        "ready": spec.once(graph.ready),
        "orphans": [node_id for node_id in spec.nodes if node_id not in set(spec.order)],
        "shared_files": briefing.shared_files(call.surroundings.specs, spec),
    }


@operation("spec", "history", cli="specs history", example="my-spec")
def history(
    call: Call, spec_id: SpecId, *, limit: Limit = DEFAULT_PAGE_SIZE, cursor: Cursor | None = None
) -> Answer:
    """List the kept revisions of a spec, latest first."""
    store = call.surroundings.specs
    present = read(call, spec_id)
    numbers = sorted({*store.revisions(spec_id), present.revision}, reverse=True)
    page = paginate(
        numbers,
        key=int,
        order=lambda key: -int(key),
        query=query_hash("spec.history", spec_id=spec_id),
        cursor=cursor,
        limit=limit,
    )
    rows = []
    for number in page.rows:
        spec = store.revision(spec_id, number)
        last = spec.journal[-1].get("title") if spec.journal else None
        rows.append(
            {
                "revision": number,
                "last_updated": spec.document.get("last_updated"),
                "progress": spec.progress()["percentage"],
                "last_entry": last,
            }
        )
    return Answer({"spec_id": spec_id, "revisions": rows, "total_count": len(numbers)}, page.pagination)


@operation("spec", "diff", cli="specs diff", example="my-spec --from-revision 1")
def diff(
    call: Call,
    spec_id: SpecId,
    *,
    from_revision: Kept | None = None,
    to_revision: Kept | None = None,
    limit: Limit = DEFAULT_PAGE_SIZE,
    cursor: Cursor | None = None,
) -> Answer:
    """Show what changed between two revisions; by default between the last two."""
    store = call.surroundings.specs
    present = read(call, spec_id)
    after = present.revision if to_revision is None else to_revision
    older = [number for number in store.revisions(spec_id) if number < after]
    before = from_revision if from_revision is not None else max(older, default=after)
    changes = differences(store.revision(spec_id, before).document, store.revision(spec_id, after).document)
    query = query_hash("spec.diff", spec_id=spec_id, before=before, after=after)
    numbered = list(enumerate(changes))
    page = paginate(numbered, key=lambda row: row[0], query=query, cursor=cursor, limit=limit)
    data = {
        "spec_id": spec_id,
        "from_revision": before,
        "to_revision": after,
        "changes": [change for _, change in page.rows],
        "total_count": len(changes),
    }
    return Answer(data, page.pagination)


@operation("spec", "rollback", cli="specs rollback", example="my-spec 3", revises=True, destructive=True)
def rollback(call: Call, spec_id: SpecId, revision: Kept) -> dict[str, Any]:
    """Put an earlier revision back as a new one; what is there now is kept too."""
    written = call.surroundings.specs.roll_back(
        spec_id, revision, expected_revision=call.expected_revision, dry_run=call.dry_run
    )
    return told(written, {"restored_revision": revision})


@operation("spec", "activate", cli="lifecycle activate", example="my-spec", revises=True)
def activate(call: Call, spec_id: SpecId) -> dict[str, Any]:
    """Begin work on a spec: move it to active."""
    return _enter(call, spec_id, "active")


@operation("spec", "complete", cli="lifecycle complete", example="my-spec", revises=True)
def complete(call: Call, spec_id: SpecId, *, force: Force = False) -> dict[str, Any]:
    """Close a spec whose tasks are done: move it to completed."""
    return _enter(call, spec_id, "completed", force=force)


@operation("spec", "archive", cli="lifecycle archive", example="my-spec", revises=True)
def archive(call: Call, spec_id: SpecId) -> dict[str, Any]:
    """Put a spec aside: move it to archived."""
    return _enter(call, spec_id, "archived")


@operation("spec", "move", cli="lifecycle move", example="my-spec active", revises=True)
def move(call: Call, spec_id: SpecId, to: FolderName, *, force: Force = False) -> dict[str, Any]:
    """Move a spec to another lifecycle folder, if that is legal."""
    return _enter(call, spec_id, to, force=force)


def read(call: Call, spec_id: str) -> Spec:
    """The spec as it is now, with a warning when another file claims to be it too."""
    place = call.surroundings.specs.find(spec_id)
    if place.others:
        folders = [place.folder, *place.others]
        call.warn(
            "DUPLICATE_SPEC",
            f"{spec_id} lies in {' and '.join(folders)}; {place.folder} is read",
            folders=folders,
        )
    return call.surroundings.specs.read(spec_id, place.folder)


def told(written: Written, data: dict[str, Any]) -> dict[str, Any]:
    """The answer of every write: the result, the revision it led to, and what a dry run would have changed."""
    answer = {
        "spec_id": written.after.id,
        **data,
        "revision": written.after.revision,
        "progress": written.after.progress(),
    }
    if written.dry_run:
        answer["revision"] = written.before.revision
        answer["dry_run"] = True
        answer["changes"] = differences(written.before.document, written.after.document)
    return answer


def _enter(call: Call, spec_id: str, to: Folder, *, force: bool = False) -> dict[str, Any]:
    written = call.surroundings.specs.move(
        spec_id,
        to,
        lambda spec: enter(spec, to, force=force),
        expected_revision=call.expected_revision,
        dry_run=call.dry_run,
    )
    return told(written, written.result)


def _drafted(
    title: str, template: str | None, text: str | None, spec_id: str | None, metadata: dict[str, Any] | None
) -> dict[str, Any]:
    document = outline.new_document(title, spec_id=spec_id, metadata=metadata)
    source = outline.TEMPLATES[template] if template else text
    if source:
        outline.read_outline(Spec(document, "pending"), source)
    return document


def _matches(
    store: SpecStore, row: dict[str, Any], text: str | None, tag: str | None, updated_since: str | None
) -> bool:
    if tag is not None and tag not in row.get("tags", ()):
        return False
    if updated_since is not None and str(row.get("last_updated") or "") < updated_since:
        return False
    if text is None:
        return True
    wanted = text.casefold()
    if wanted in row["spec_id"].casefold() or wanted in str(row["title"] or "").casefold():
        return True
    if "problem" in row:
        return False
    spec = store.read(row["spec_id"], row["status"])
    return any(wanted in str(node.get("title", "")).casefold() for node in spec.nodes.values())
