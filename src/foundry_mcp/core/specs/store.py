"""Specs on disk: `specs/{pending,active,completed,archived}/<spec_id>.json`, one file each.

Reading takes no lock: a file is replaced, never rewritten, so it is the old one or the new one. Writing
takes the spec's lock, reads anew, changes, keeps the old file for the history, and puts the new one in its
place. What was read is cached by stat, and a stat younger than the clock's grain is not trusted.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from msgspec.json import encode
from msgspec.json import format as indent

from foundry_mcp.core.disk import disk, disk_error, open_folder, open_state, read_file, replace_file
from foundry_mcp.core.errors import (
    AuthorizationError,
    FoundryError,
    InternalError,
    conflict,
    not_found,
    unavailable,
)
from foundry_mcp.core.locks import locked
from foundry_mcp.core.specs.document import parse, summarize
from foundry_mcp.core.specs.history import History
from foundry_mcp.core.specs.journal import note
from foundry_mcp.core.specs.model import FOLDERS, Folder, Spec, copied, natural, now_text

__all__ = ["Entry", "OpenSpec", "Place", "SpecStore", "Written"]

LOCK_SECONDS = 10.0
CACHED_SPECS = 64
CACHED_SUMMARIES = 20_000
GRAIN_SECONDS = 0.05
"""A file changed less than this long before it was looked at may change again without its stat showing it."""

PRECEDENCE: tuple[Folder, ...] = ("active", "pending", "completed", "archived")
"""Which one is read when the same id wrongly lies in several folders."""

_IS_SPEC = re.compile(r"[a-z0-9][a-z0-9-]*\.json").fullmatch
_NONE: list[str] = []

Result = TypeVar("Result")
Stamp = tuple[int, int, int]


class Place(NamedTuple):
    """Where a spec lies; `others` are further folders that wrongly hold the same id."""

    folder: Folder
    others: tuple[Folder, ...] = ()


class Entry(NamedTuple):
    """A line of the index."""

    spec_id: str
    folder: Folder

    def rank(self) -> tuple[Any, ...]:
        return natural(self.spec_id), self.folder


class Written(NamedTuple):
    before: Spec
    after: Spec
    result: Any
    dry_run: bool


class _Seen(NamedTuple):
    """Something read from disk, and the stat it had; what had just changed then is not trusted later."""

    stamp: Stamp
    what: Any
    settled: bool

    def is_still(self, stamp: Stamp) -> bool:
        return self.settled and self.stamp == stamp


class SpecStore:
    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.root = workspace / "specs"
        self._listings: dict[Folder, _Seen] = {}
        self._indexes: dict[tuple[Folder, ...], tuple[list[list[str]], list[Entry]]] = {}
        self._specs: dict[tuple[Folder, str], _Seen] = {}
        self._summaries: dict[Entry, _Seen] = {}
        self._history = History(workspace)
        self._guard = Lock()
        self.problems: dict[Folder, str] = {}
        """Folders that could not be entered when the specs were last listed, and why."""

    # Reading

    def names(self, folder: Folder) -> list[str]:
        """The ids in a folder, in natural order. Asking again costs one stat as long as nobody wrote there."""
        try:
            with self._folder(folder) as descriptor:
                stamp = _stamp(os.fstat(descriptor))
                known = self._listings.get(folder)
                if known is not None and known.is_still(stamp):
                    names: list[str] = known.what
                    return names
                found = [name[:-5] for name in os.listdir(descriptor) if _IS_SPEC(name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise disk_error(error, f"specs/{folder}") from error
        found.sort(key=natural)
        self._listings[folder] = _Seen(stamp, found, _settled(stamp))
        return found

    def find(self, spec_id: str) -> Place:
        """The folder of a spec; SPEC_NOT_FOUND with the nearest ids otherwise."""
        found: list[Folder] = []
        try:
            with open_folder(self.root) as top:
                # A folder that is a link is followed here and refused when the file is opened.
                found += [folder for folder in PRECEDENCE if _exists(f"{folder}/{spec_id}.json", top)]
        except FileNotFoundError:
            pass
        except OSError as error:
            raise disk_error(error, "specs") from error
        if not found:
            everything = [entry.spec_id for entry in self.index()]
            raise not_found("spec", spec_id, code="SPEC_NOT_FOUND", near=everything, spec_id=spec_id)
        return Place(found[0], tuple(found[1:]))

    def read(self, spec_id: str, folder: Folder | None = None) -> Spec:
        """A spec as it is on disk now. It is shared with other readers: change it only in `write`."""
        place = folder or self.find(spec_id).folder
        name = f"{spec_id}.json"
        try:
            with self._folder(place) as descriptor:
                stamp = _stamp(os.stat(name, dir_fd=descriptor, follow_symlinks=False))
                known = self._specs.get((place, spec_id))
                if known is not None and known.is_still(stamp):
                    spec: Spec = known.what
                    return spec
                content, stat = read_file(descriptor, name)
        except FileNotFoundError:
            raise not_found("spec", spec_id, code="SPEC_NOT_FOUND", spec_id=spec_id) from None
        except OSError as error:
            raise disk_error(error, f"specs/{place}/{name}") from error
        try:
            spec = parse(content, spec_id, place)
        except InternalError as damage:
            damage.details["kept_revisions"] = self.revisions(spec_id)
            raise
        self._remember(spec, _stamp(stat), settled=_settled(_stamp(stat)))
        return spec

    def index(self, folders: tuple[Folder, ...] = FOLDERS) -> list[Entry]:
        """Every spec of these folders in natural order. Asking again costs a stat for each folder."""
        names = [self._readable(folder) for folder in folders]
        known = self._indexes.get(folders)
        if known is not None and all(old is new for old, new in zip(known[0], names, strict=True)):
            return known[1]
        entries = [
            Entry(name, folder) for folder, found in zip(folders, names, strict=True) for name in found
        ]
        entries.sort(key=Entry.rank)
        self._indexes[folders] = (names, entries)
        return entries

    def _readable(self, folder: Folder) -> list[str]:
        """The names in a folder; one that may not be entered hides itself, not the others."""
        try:
            names = self.names(folder)
            self.problems.pop(folder, None)
        except AuthorizationError as error:
            self.problems[folder] = error.message
            return _NONE
        return names

    def summaries(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """The gist of each spec; one that cannot be read says so and leaves the others alone."""
        rows: dict[Entry, dict[str, Any]] = {}
        for folder in {entry.folder for entry in entries}:
            with suppress(OSError), self._folder(folder) as descriptor:
                for entry in entries:
                    if entry.folder == folder:
                        rows[entry] = self._summary(entry, descriptor)
        return [rows[entry] for entry in entries if entry in rows]

    def _summary(self, entry: Entry, folder: int) -> dict[str, Any]:
        try:
            stamp = _stamp(os.stat(f"{entry.spec_id}.json", dir_fd=folder, follow_symlinks=False))
            known = self._summaries.get(entry)
            if known is not None and known.is_still(stamp):
                row: dict[str, Any] = known.what
                return row
            content, stat = read_file(folder, f"{entry.spec_id}.json")
            row = summarize(parse(content, entry.spec_id, entry.folder))
        except FoundryError as failure:
            return _unreadable(entry, failure.message)
        except OSError as error:
            return _unreadable(entry, disk_error(error, f"specs/{entry.folder}/{entry.spec_id}.json").message)
        with self._guard:
            while len(self._summaries) >= CACHED_SUMMARIES:
                self._summaries.pop(next(iter(self._summaries)))
            self._summaries[entry] = _Seen(_stamp(stat), row, _settled(_stamp(stat)))
        return row

    # Writing

    def create(self, document: dict[str, Any], folder: Folder = "pending", *, dry_run: bool = False) -> Spec:
        """Put a new spec on disk; an id that is taken in any folder is ALREADY_EXISTS."""
        spec_id = document["spec_id"]
        with self._locked(spec_id):
            self._refuse_taken(spec_id)
            document["revision"] = 1
            document["last_updated"] = now_text()
            spec = Spec(document, folder)
            if not dry_run:
                self._put(spec)
            return spec

    def write(
        self,
        spec_id: str,
        change: Callable[[Spec], Result],
        *,
        expected_revision: int | None = None,
        dry_run: bool = False,
    ) -> Written:
        """Apply `change` to the spec as it is on disk, alone. What `change` raises leaves everything as it was."""
        with self._locked(spec_id):
            return self._write_locked(spec_id, change, expected_revision, dry_run=dry_run)

    def move(
        self,
        spec_id: str,
        to: Folder,
        change: Callable[[Spec], Result],
        *,
        expected_revision: int | None = None,
        dry_run: bool = False,
    ) -> Written:
        """Apply `change`, then move the file to another folder in one step: it is never in both, never in none."""
        with self._locked(spec_id), ExitStack() as stack:
            target = None if dry_run else stack.enter_context(self._entered(to))  # before anything is written
            written = self._write_locked(spec_id, change, expected_revision, dry_run=dry_run)
            name, origin = f"{spec_id}.json", written.before.folder
            if target is not None and origin != to:
                try:
                    with self._folder(origin) as source:
                        disk.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
                        disk.fsync(target)
                        disk.fsync(source)
                except OSError as error:
                    raise disk_error(error, f"specs/{to}/{name}", effect="unknown") from error
                self._specs.pop((origin, spec_id), None)
            return written._replace(after=Spec(written.after.document, to))

    @contextmanager
    def _entered(self, folder: Folder) -> Iterator[int]:
        try:
            with self._folder(folder, create=True) as descriptor:
                yield descriptor
        except OSError as error:
            raise disk_error(error, f"specs/{folder}") from error

    # History

    def revisions(self, spec_id: str) -> list[int]:
        """The kept revisions before the present one, oldest first."""
        return self._history.revisions(spec_id)

    def revision(self, spec_id: str, number: int) -> Spec:
        """A spec as it was at a revision, the present one included."""
        present = self.read(spec_id)
        if number == present.revision:
            return present
        return parse(self._history.read(spec_id, number), spec_id, present.folder)

    def roll_back(
        self, spec_id: str, number: int, *, expected_revision: int | None = None, dry_run: bool = False
    ) -> Written:
        """Put a kept revision back as a new one; the present file is kept too, also when it is damaged."""
        with self._locked(spec_id):
            folder = self._only_place(spec_id)
            last = max(self.revisions(spec_id), default=0)
            before: Spec | None = None
            try:
                before = self.read(spec_id, folder)
                last = before.revision
                label = str(last)
            except InternalError as damage:
                if damage.code != "SPEC_CORRUPTED":
                    raise
                last += 1  # the one that is damaged had a number too
                label = f"damaged-{time.time_ns()}"
            if expected_revision is not None and (before is None or before.revision != expected_revision):
                raise _version_conflict(spec_id, expected_revision, before.revision if before else None)
            after = Spec(copied(parse(self._history.read(spec_id, number), spec_id, folder).document), folder)
            if before is not None:
                after.document["journal"] = copied(before.document).get(
                    "journal", []
                )  # what happened has happened
            note(after, "note", f"Rolled back to revision {number}")
            after.document["revision"] = last + 1
            after.document["last_updated"] = now_text(before.document.get("last_updated") if before else None)
            if not dry_run:
                with self._folder(folder) as source:
                    self._history.keep(spec_id, source, label)
                self._put(after)
            return Written(before or after, after, None, dry_run)

    # Detail

    def _write_locked(
        self, spec_id: str, change: Callable[[Spec], Result], expected_revision: int | None, *, dry_run: bool
    ) -> Written:
        folder = self._only_place(spec_id)
        before = self.read(spec_id, folder)
        if expected_revision is not None and expected_revision != before.revision:
            raise _version_conflict(spec_id, expected_revision, before.revision)
        after = before.draft()
        result = change(after)
        after.finish()
        if after.document == before.document:
            return Written(before, before, result, dry_run)
        after.document["revision"] = before.revision + 1
        after.document["last_updated"] = now_text(before.document.get("last_updated"))
        if not dry_run:
            with self._folder(folder) as source:
                self._history.keep(spec_id, source, str(before.revision))
            self._put(after)
        return Written(before, after, result, dry_run)

    def _only_place(self, spec_id: str) -> Folder:
        place = self.find(spec_id)
        if place.others:
            raise conflict(
                f"{spec_id} lies in more than one folder",
                remediation="Compare the files and keep one of them; nothing is written until then.",
                spec_id=spec_id,
                folders=[place.folder, *place.others],
            )
        return place.folder

    @contextmanager
    def _folder(self, folder: Folder, *, create: bool = False) -> Iterator[int]:
        if create:
            self.root.mkdir(exist_ok=True)
        with open_folder(self.root) as top, open_folder(folder, top, create=create) as descriptor:
            yield descriptor

    @contextmanager
    def _locked(self, spec_id: str) -> Iterator[None]:
        try:
            with (
                open_state(self.workspace, "locks") as folder,
                locked(folder, f"{spec_id}.lock", timeout=LOCK_SECONDS) as held,
            ):
                if not held:
                    raise unavailable(
                        f"{spec_id} is being written by somebody else", retry_after_seconds=1, effect="none"
                    )
                yield
        except OSError as error:
            raise disk_error(error, f"{spec_id}.json") from error

    def _refuse_taken(self, spec_id: str) -> None:
        try:
            place = self.find(spec_id)
        except FoundryError as error:
            if error.code == "SPEC_NOT_FOUND":
                return
            raise
        raise conflict(
            f"A spec with this id already exists: {spec_id}",
            code="ALREADY_EXISTS",
            spec_id=spec_id,
            folder=place.folder,
        )

    def _put(self, spec: Spec) -> None:
        name = f"{spec.id}.json"
        content = indent(encode(spec.document), indent=2) + b"\n"
        try:
            with self._folder(spec.folder, create=True) as descriptor:
                stat = replace_file(descriptor, name, content)
        except OSError as error:
            raise disk_error(error, f"specs/{spec.folder}/{name}") from error
        # A file that we have just put there has a number of its own, so its stat cannot be mistaken.
        self._remember(spec, _stamp(stat), settled=True)

    def _remember(self, spec: Spec, stamp: Stamp, *, settled: bool) -> None:
        with self._guard:
            while len(self._specs) >= CACHED_SPECS:
                self._specs.pop(next(iter(self._specs)))
            self._specs[spec.folder, spec.id] = _Seen(stamp, spec, settled)


class OpenSpec(SpecStore):
    """A spec that is being written: a further change joins the write under way."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def write(self, spec_id: str, change: Callable[[Spec], Any], **_: Any) -> Written:  # noqa: ARG002 - it is the one that is open
        result = change(self._spec)
        self._spec.turned()
        return Written(self._spec, self._spec, result, dry_run=False)


def _unreadable(entry: Entry, problem: str) -> dict[str, Any]:
    return {
        "id": entry.spec_id,
        "spec_id": entry.spec_id,
        "title": None,
        "status": entry.folder,
        "problem": problem,
    }


def _version_conflict(spec_id: str, expected: int, revision: int | None) -> FoundryError:
    return conflict(
        f"{spec_id} is at revision {revision}, not {expected}",
        code="VERSION_CONFLICT",
        spec_id=spec_id,
        expected_revision=expected,
        revision=revision,
    )


def _exists(name: str, within: int) -> bool:
    try:
        os.stat(name, dir_fd=within, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _stamp(stat: os.stat_result) -> Stamp:
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _settled(stamp: Stamp) -> bool:
    return time.time() - stamp[0] / 1e9 > GRAIN_SECONDS
