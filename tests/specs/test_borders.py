"""Nothing outside the workspace is read or written, whatever an id says or a link points to."""

import os
import shutil
from typing import Any

import pytest

from foundry_mcp.core.disk import disk
from foundry_mcp.operations import REGISTRY

HOSTILE = {
    "absolute": "/etc/passwd",
    "up": "../secret",
    "up and down": "a/../../secret",
    "dots": "..",
    "dot": ".",
    "hidden": ".secret",
    "NUL": "plan\x00",
    "trailing newline": "plan\n",
    "NUL in front": "\x00plan",
    "drive": "c:x",
    "capital drive": "C:x",
    "backslash": "..\\secret",
    "trailing dot": "plan.",
    "trailing space": "plan ",
    "too long": "a" * 300,
    "longer than a file name": "a" * 201,
    "upper case": "Plan",
    "empty": "",
    "slash": "pending/plan",
    "prefix of another folder": "active/../pending/plan",
    "leading hyphen": "-plan",
    "an option": "--help",
    "full-width letter": "\uff50lan",
    "Cyrillic letter": "\u0440lan",
    "Arabic digit": "plan-\u0663",
    "zero width": "pl\u200ban",
    "underscore": "my_plan",
    "glob": "*",
    "home": "~root",
    "the suffix": "plan.json",
}
IDS = ("spec_id", "task_id", "parent", "phase", "waits_for")
FILLER = {
    "spec_id": "plan",
    "task_id": "task-1-1",
    "title": "x",
    "parent": "phase-1",
    "waits_for": "task-1-2",
    "owner": "me",
    "reason": "x",
    "content": "x",
    "revision": 1,
    "to": "active",
    "changes": [{"action": "complete", "task_id": "task-1-1"}],
}


def places_of_ids():
    for operation in REGISTRY:
        for name in operation.schema["properties"]:
            if name in IDS:
                yield pytest.param(operation, name, id=f"{operation.name}:{name}")


def with_required(operation, **chosen):
    required = {name: FILLER[name] for name in operation.schema.get("required", ())}
    return {**required, **chosen}


@pytest.mark.parametrize(("operation", "field"), list(places_of_ids()))
def test_an_id_that_is_none_is_refused_wherever_one_is_taken(operation, field, desk):
    desk.plan()
    for kind, hostile in HOSTILE.items():
        answer = desk.refused(
            "VALIDATION_ERROR",
            operation.tool,
            operation.action,
            **with_required(operation, **{field: hostile}),
        )
        assert answer["data"]["details"]["field"] == field, kind
        assert answer["data"]["details"]["constraint"] in {"pattern", "max_length"}, kind
    assert not (desk.workspace / "secret").exists()


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_an_id_inside_a_batch_or_a_list_is_checked_too(hostile, desk):
    desk.plan()
    desk.refused("VALIDATION_ERROR", "task", "add", spec_id="plan", title="x", blocked_by=[hostile])
    changes = [{"action": "complete", "task_id": hostile}]
    desk.refused("VALIDATION_ERROR", "task", "batch", spec_id="plan", changes=changes, partial=True)


@pytest.mark.requirement("003.example.validation-error-produced")
def test_an_id_with_forbidden_characters_gives_the_failure_of_the_document(desk):
    answer = desk.refused("VALIDATION_ERROR", "spec", "get", spec_id="Invalid Spec ID!")

    details = answer["data"]["details"]
    assert answer["data"]["error_type"] == "validation"
    assert details["field"] == "spec_id"
    assert details["constraint"] == "pattern"
    assert details["pattern"].startswith("^[a-z0-9")
    assert details["received"] == "Invalid Spec ID!"
    assert answer["error"].startswith("Validation failed: spec_id")


@pytest.fixture
def outside(tmp_path_factory):
    """A folder beside the workspace that holds a plan; nothing there may be read or change."""
    return tmp_path_factory.mktemp("outside")


@pytest.fixture
def bait(desk, make_desk, outside):
    """A whole spec outside, with a title that must never be seen."""
    maker = make_desk("maker")
    maker.plan(spec_id="plan")
    document = maker.document()
    document["title"] = document["hierarchy"]["spec-root"]["title"] = "SECRET"
    lure = maker.put(document, "elsewhere")
    target = outside / "plan.json"
    shutil.move(lure, target)
    shutil.rmtree(maker.workspace)
    return target


def whole(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def every_call():
    for operation in REGISTRY:
        if operation.tool in {"spec", "task", "journal"}:
            chosen = {"spec_id": "plan"} if "spec_id" in operation.schema["properties"] else {}
            more = {"apply": True} if operation.action == "fix" else {}
            yield operation.tool, operation.action, with_required(operation, **chosen, **more)


EVERY_CALL = [pytest.param(call, id=f"{call[0]}.{call[1]}") for call in every_call()]
REFUSALS = {"FORBIDDEN", "SPEC_NOT_FOUND", "ALREADY_EXISTS", "NOT_FOUND"}


def assert_sees_nothing(desk, call, outside):
    before = whole(outside)
    tool, action, arguments = call
    answer = desk.ask(tool, action, **arguments)
    assert "SECRET" not in str(answer)
    assert str(outside) not in str(answer)
    assert whole(outside) == before
    if (tool, action) not in {("spec", "list"), ("spec", "find")}:
        assert not answer["success"], answer
        assert answer["data"]["error_code"] in REFUSALS, answer
        assert answer["data"]["effect"] == "none", answer
    return answer


@pytest.mark.parametrize("call", EVERY_CALL)
def test_a_spec_file_that_is_a_link_is_not_followed(call, desk, bait, outside):
    (desk.specs / "pending").mkdir(parents=True)
    (desk.specs / "pending" / "plan.json").symlink_to(bait)

    answer = assert_sees_nothing(desk, call, outside)

    assert (desk.specs / "pending" / "plan.json").is_symlink()
    if call[0] == "spec" and call[1] in {"list", "find"}:
        assert [row["title"] for row in answer["data"]["specs"]] == [None]


@pytest.mark.parametrize("call", EVERY_CALL)
def test_a_status_folder_that_is_a_link_is_not_followed(call, desk, bait, outside):
    desk.specs.mkdir()
    (desk.specs / "pending").symlink_to(outside, target_is_directory=True)

    assert_sees_nothing(desk, call, outside)


@pytest.mark.parametrize("call", EVERY_CALL)
def test_a_specs_folder_that_is_a_link_is_not_followed(call, desk, bait, outside):
    (outside / "pending").mkdir()
    shutil.move(bait, outside / "pending" / "plan.json")
    desk.specs.symlink_to(outside, target_is_directory=True)

    assert_sees_nothing(desk, call, outside)


def test_a_linked_folder_leaves_the_specs_of_the_others_alone(desk, outside):
    desk.plan()
    (desk.specs / "active").symlink_to(outside, target_is_directory=True)

    assert "plan" in [row["id"] for row in desk.do("spec", "list")["specs"]]
    desk.refused("SPEC_NOT_FOUND", "spec", "get", spec_id="nowhere")
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")


def test_a_spec_is_not_moved_into_a_folder_that_is_a_link(desk, outside):
    desk.plan()
    (desk.specs / "active").symlink_to(outside, target_is_directory=True)

    desk.refused("FORBIDDEN", "spec", "activate", spec_id="plan")

    assert whole(outside) == {}


def test_a_link_to_a_spec_of_the_same_workspace_is_not_followed_either(desk):
    desk.plan()
    (desk.specs / "pending" / "copy.json").symlink_to("plan.json")

    desk.refused("FORBIDDEN", "task", "complete", spec_id="copy", task_id="task-1-1")


@pytest.mark.parametrize("target", ["history/plan", "history"])
def test_a_history_that_is_a_link_is_not_followed(target, desk, outside):
    desk.plan()
    place = desk.workspace / ".foundry" / target
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(outside, target_is_directory=True)

    desk.refused("FORBIDDEN", "task", "complete", spec_id="plan", task_id="task-1-1")

    assert whole(outside) == {}


@pytest.mark.parametrize("target", [".foundry", ".foundry/locks", ".foundry/idempotency"])
def test_a_state_folder_that_is_a_link_is_not_followed(target, desk, outside):
    desk.plan()
    place = desk.workspace / target
    shutil.rmtree(place, ignore_errors=True)
    place.symlink_to(outside, target_is_directory=True)

    desk.refused("FORBIDDEN", "task", "complete", spec_id="plan", task_id="task-1-1", idempotency_key="k")

    assert whole(outside) == {}


def test_a_lock_that_is_a_link_is_not_followed(desk, outside):
    desk.plan()
    lock = desk.workspace / ".foundry" / "locks" / "plan.lock"
    lock.unlink()
    lock.symlink_to(outside / "made")

    desk.refused("FORBIDDEN", "task", "complete", spec_id="plan", task_id="task-1-1")

    assert whole(outside) == {}


def test_an_unfinished_file_that_is_a_link_is_not_written_through(desk, outside):
    desk.plan()
    victim = outside / "victim"
    victim.write_bytes(b"untouched")
    (desk.specs / "pending" / ".plan.json.new").symlink_to(victim)

    desk.ask("task", "complete", spec_id="plan", task_id="task-1-1")

    assert victim.read_bytes() == b"untouched"
    desk.do("task", "complete", spec_id="plan", task_id="task-1-2")


class Swap:
    """Between two system calls, put a link to the outside where a folder or file was."""

    def __init__(self, monkeypatch, place, target):
        self.place, self.target = place, target
        self.count, self.at = 0, -1
        for name in ("open", "link", "rename", "unlink", "close", "fsync", "write"):
            monkeypatch.setattr(disk, name, self._wrapped(getattr(disk, name)))

    def _wrapped(self, real):
        def call(*arguments, **named):
            if self.count == self.at:
                aside = self.place.with_name(f"{self.place.name}-aside")
                os.rename(self.place, aside)
                self.place.symlink_to(self.target)
            self.count += 1
            return real(*arguments, **named)

        return call

    def arm(self, at):
        self.count, self.at = 0, at


SWAPPED = {
    "the file": "specs/pending/plan.json",
    "the folder": "specs/pending",
    "all folders": "specs",
    "the history": ".foundry/history",
    "the history of the spec": ".foundry/history/plan",
}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "read": ("task", {"action": "query", "spec_id": "plan"}),
    "write": ("task", {"action": "complete", "spec_id": "plan", "task_id": "task-1-1"}),
    "move": ("spec", {"action": "archive", "spec_id": "plan"}),
    "rollback": ("spec", {"action": "rollback", "spec_id": "plan", "revision": 1}),
}
CODES = {"FORBIDDEN", "SPEC_NOT_FOUND", "NOT_FOUND", "INTERNAL_ERROR"}


@pytest.mark.parametrize("what", SWAPPED)
@pytest.mark.parametrize("deed", CALLS)
def test_a_link_swapped_in_between_any_two_steps_leads_nowhere(
    deed, what, desk, bait, outside, copy_of, monkeypatch
):
    desk.plan()
    desk.do("journal", "add", spec_id="plan", content="one")
    tool, arguments = CALLS[deed]
    for folder in (outside / "pending", outside / "plan"):
        folder.mkdir()
        for name in ("plan.json", "1.json", "2.json"):
            shutil.copy(bait, folder / name)
    before = whole(outside)
    counter = Swap(monkeypatch, desk.workspace, outside)
    probe = copy_of(desk)
    counter.arm(-1)
    probe.do(tool, **arguments)
    steps, refused = counter.count, 0

    for number in range(steps):
        monkeypatch.undo()
        fresh = copy_of(desk)
        target = bait if what == "the file" else outside / "pending" if what == "the folder" else outside
        if what == "the history of the spec":
            target = outside / "plan"
        swap = Swap(monkeypatch, fresh.workspace / SWAPPED[what], target)
        swap.arm(number)
        answer = fresh.ask(tool, **arguments)
        assert "SECRET" not in str(answer), number
        assert whole(outside) == before, number
        if not answer["success"]:
            refused += 1
            assert answer["data"]["error_code"] in CODES, (number, answer)

    assert refused or (deed == "read" and "history" in what), "no swap was ever noticed"
