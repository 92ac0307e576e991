"""From bytes to a spec: what a file must be to be worked with, and what to do when it is not."""

from typing import Annotated, Any

import msgspec

from foundry_mcp.core.errors import InternalError
from foundry_mcp.core.specs.model import ROOT, Folder, Spec

__all__ = ["parse", "summarize"]


def parse(content: bytes, spec_id: str, folder: Folder) -> Spec:
    """A spec, or SPEC_CORRUPTED that says what is wrong with the file and how to get it back."""
    try:
        document = msgspec.json.decode(content)
        problem = _problem(document, spec_id)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        conflicted = content.startswith((b"<<<<<<< ", b"=======", b">>>>>>> ")) or b"\n<<<<<<< " in content
        problem = (
            "it holds the marks of a merge conflict"
            if conflicted
            else "it is empty"
            if not content.strip()
            else str(error)
        )
    if problem:
        raise InternalError(
            f"specs/{folder}/{spec_id}.json is not a spec: {problem}",
            code="SPEC_CORRUPTED",
            remediation=(
                f'Restore it from version control, or put back a kept revision with spec(action="rollback", '
                f'spec_id="{spec_id}"). The file is left as it is until then.'
            ),
            details={"file": f"specs/{folder}/{spec_id}.json", "problem": problem},
            effect="none",
        )
    return Spec(document, folder)


def summarize(spec: Spec) -> dict[str, Any]:
    """A spec in one row."""
    progress = spec.progress()
    done, total = progress["completed"], progress["total"]
    row = {
        "id": spec.id,
        "spec_id": spec.id,
        "title": spec.title,
        "status": spec.folder,
        "progress": round(done / total, 2) if total else 0.0,
        "completed_tasks": done,
        "total_tasks": total,
        "last_updated": spec.document.get("last_updated"),
        "revision": spec.revision,
    }
    tags = spec.metadata.get("tags")
    return {**row, "tags": tags} if isinstance(tags, list) and tags else row


class _Node(msgspec.Struct):
    """The kinds of what we rely on in a node; everything else may be anything."""

    type: str
    status: str
    title: str = ""
    parent: str | None = None
    children: list[str] = []
    metadata: dict[str, Any] = {}
    dependencies: dict[str, list[str] | None] | None = None


class _Document(msgspec.Struct):
    spec_id: str
    hierarchy: dict[str, _Node]
    title: str | None = None
    revision: Annotated[int, msgspec.Meta(ge=0)] = 0
    last_updated: str | None = None
    metadata: dict[str, Any] = {}
    journal: list[dict[str, Any]] = []


def _problem(document: Any, spec_id: str) -> str | None:
    """What keeps a document from being worked with at all; lesser faults are for `validate`."""
    try:
        known = msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        return str(error)
    if ROOT not in known.hierarchy:
        return f"it has no {ROOT}"
    if known.spec_id != spec_id:
        return f"its spec_id is {known.spec_id!r}, not its file name"
    return None
