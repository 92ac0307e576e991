"""Files that are no specs any more: named, left alone, restored on request; the others go on."""

import json
import os
from typing import Any

import pytest

TEXT_OF_A_MERGE = """{
<<<<<<< HEAD
  "spec_id": "plan",
=======
  "spec_id": "plan2",
>>>>>>> other
"""


def flipped(raw: bytes) -> bytes:
    """One bit, in the first bracket."""
    return bytes([raw[0] ^ 0x10]) + raw[1:]


DAMAGE = {
    "truncated": lambda raw: raw[: len(raw) // 2],
    "cut by one byte": lambda raw: raw.rstrip()[:-1],
    "empty": lambda raw: b"",
    "only white space": lambda raw: b" \n\t",
    "a flipped bit": flipped,
    "a flipped bit inside": lambda raw: raw.replace(b'"hierarchy"', b'"hierarchx"', 1),
    "a flipped bit in a quote": lambda raw: raw.replace(b'"hierarchy":', b'"hierarchy2:', 1),
    "invalid UTF-8": lambda raw: raw.replace(b"Plan", b"Pl\xffn", 1),
    "zeros": lambda raw: bytes(len(raw)),
    "merge conflict at the top": lambda raw: TEXT_OF_A_MERGE.lstrip("{\n").encode(),
    "merge conflict": lambda raw: TEXT_OF_A_MERGE.encode(),
    "not an object": lambda raw: b"[]",
    "no hierarchy": lambda raw: b'{"spec_id": "plan"}',
    "another spec": lambda raw: raw.replace(b'"plan"', b'"nalp"', 1),
    "a node that is none": lambda raw: raw.replace(b'"type": "phase"', b'"type": 7', 1),
    "children that are none": lambda raw: raw.replace(b'"children": []', b'"children": {}', 1),
    "a journal that is none": lambda raw: raw.replace(b'"journal": [', b'"journal": 1, "x": [', 1),
    "far too deep": lambda raw: b"[" * 100_000,
}

WRITES: list[tuple[str, str, dict[str, Any]]] = [
    ("spec", "update", {"title": "x"}),
    ("spec", "fix", {"apply": True}),
    ("spec", "activate", {}),
    ("spec", "complete", {"force": True}),
    ("spec", "archive", {}),
    ("spec", "move", {"to": "active"}),
    ("task", "claim", {"owner": "me"}),
    ("task", "claim", {"owner": "me", "task_id": "task-1-1"}),
    ("task", "release", {"owner": "me", "task_id": "task-1-1"}),
    ("task", "start", {"task_id": "task-1-1"}),
    ("task", "complete", {"task_id": "task-1-1"}),
    ("task", "block", {"task_id": "task-1-1", "reason": "x"}),
    ("task", "unblock", {"task_id": "task-1-1"}),
    ("task", "reset", {"task_id": "task-1-1"}),
    ("task", "add", {"title": "x"}),
    ("task", "update", {"task_id": "task-1-1", "title": "x"}),
    ("task", "move", {"task_id": "task-1-1", "parent": "phase-2"}),
    ("task", "remove", {"task_id": "task-1-1"}),
    ("task", "depend", {"task_id": "task-1-1", "waits_for": "task-1-2"}),
    ("task", "batch", {"changes": [{"action": "complete", "task_id": "task-1-1"}], "partial": True}),
    ("journal", "add", {"content": "x"}),
]
READS: list[tuple[str, str, dict[str, Any]]] = [
    ("spec", "get", {}),
    ("spec", "validate", {}),
    ("spec", "analyze", {}),
    ("spec", "diff", {}),
    ("task", "query", {}),
    ("task", "get", {"task_id": "task-1-1"}),
    ("task", "next", {}),
    ("task", "ready", {}),
    ("task", "progress", {}),
    ("journal", "list", {}),
]


@pytest.fixture
def damaged(desk):
    """Break a plan at revision 2 in one of the ways."""

    def damage(kind):
        desk.plan()
        desk.do("journal", "add", spec_id="plan", content="before the damage")
        desk.plan(spec_id="sound")
        path = desk.file()
        path.write_bytes(DAMAGE[kind](path.read_bytes()))
        return desk

    return damage


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_named_with_the_way_to_restore_it(kind, damaged):
    answer = damaged(kind).refused("SPEC_CORRUPTED", "spec", "get", spec_id="plan")

    assert answer["data"]["details"]["file"] == "specs/pending/plan.json"
    assert "specs/pending/plan.json" in answer["error"]
    assert "version control" in answer["data"]["remediation"]
    assert 'action="rollback"' in answer["data"]["remediation"]
    assert answer["data"]["error_type"] == "internal"
    if "merge" in kind:
        assert "merge conflict" in answer["error"]
    if kind in {"empty", "only white space"}:
        assert "empty" in answer["error"]


@pytest.mark.parametrize("kind", DAMAGE)
def test_other_specs_are_listed_and_worked_on_beside_a_damaged_one(kind, damaged):
    desk = damaged(kind)

    answer = desk.ask("spec", "list")
    rows = {row["id"]: row for row in answer["data"]["specs"]}

    assert rows["sound"]["title"] == "Sound"
    assert "specs/pending/plan.json" in rows["plan"]["problem"]
    assert answer["meta"]["warning_details"][0]["code"] == "SPEC_UNREADABLE"
    assert answer["meta"]["warnings"] == [rows["plan"]["problem"]]
    assert [row["id"] for row in desk.do("spec", "find", text="sound")["specs"]] == ["sound"]
    assert desk.do("task", "complete", spec_id="sound", task_id="task-1-1")["status"] == "completed"
    assert desk.do("spec", "analyze", spec_id="sound")["shared_files"] == []


@pytest.mark.parametrize("kind", ["truncated", "empty", "merge conflict", "no hierarchy"])
def test_no_operation_writes_over_a_damaged_file(kind, damaged):
    desk = damaged(kind)
    desk.refused("ALREADY_EXISTS", "spec", "create", title="x", spec_id="plan")
    for tool, action, arguments in WRITES + READS:
        desk.refused("SPEC_CORRUPTED", tool, action, spec_id="plan", **arguments)


def test_the_list_of_writes_above_is_complete(desk):
    declared = {
        (operation.tool, operation.action)
        for operation in desk.runtime.surroundings.registry
        if operation.writes
    }

    assert declared == {(tool, action) for tool, action, _ in WRITES} | {
        ("spec", "create"),
        ("spec", "rollback"),
    }


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_rollback_restores_a_damaged_spec_and_keeps_the_damaged_file(kind, damaged):
    desk = damaged(kind)
    broken = desk.file().read_bytes()
    known = {**desk.tree()}

    data = desk.do("spec", "rollback", spec_id="plan", revision=1)

    assert data["restored_revision"] == 1
    assert desk.do("spec", "validate", spec_id="plan")["valid"]
    assert desk.document()["journal"][-1]["title"] == "Rolled back to revision 1"
    kept = list((desk.workspace / ".foundry" / "history" / "plan").glob("damaged-*.json"))
    assert [path.read_bytes() for path in kept] == [broken]
    assert desk.tree()["specs/pending/sound.json"] == known["specs/pending/sound.json"]
    assert desk.do("task", "complete", spec_id="plan", task_id="task-1-1")["status"] == "completed"


def test_a_rollback_of_a_damaged_spec_can_be_shown_first(damaged):
    desk = damaged("truncated")
    before = desk.tree()

    data = desk.do("spec", "rollback", spec_id="plan", revision=1, dry_run=True)

    assert data["dry_run"] is True
    assert desk.tree() == before


def test_a_revision_that_was_not_kept_is_not_found_and_says_which_are(damaged):
    answer = damaged("truncated").refused("NOT_FOUND", "spec", "rollback", spec_id="plan", revision=9)

    assert answer["data"]["details"]["kept"] == [1]


@pytest.mark.parametrize("action", ["get", "history", "validate"])
def test_a_damaged_spec_says_which_revisions_it_can_be_rolled_back_to(action, damaged):
    answer = damaged("truncated").refused("SPEC_CORRUPTED", "spec", action, spec_id="plan")

    assert answer["data"]["details"]["kept_revisions"] == [1]


def test_a_rollback_of_a_damaged_file_gives_no_revision_number_twice(damaged):
    desk = damaged("truncated")  # it was revision 2
    desk.do("spec", "rollback", spec_id="plan", revision=1)

    desk.refused(
        "VERSION_CONFLICT", "task", "complete", spec_id="plan", task_id="task-1-1", expected_revision=2
    )


def test_every_damaged_file_is_kept(damaged):
    desk = damaged("truncated")
    desk.do("spec", "rollback", spec_id="plan", revision=1)
    desk.file().write_bytes(b"{ again")
    desk.do("spec", "rollback", spec_id="plan", revision=1)

    kept = (desk.workspace / ".foundry" / "history" / "plan").glob("damaged-*.json")
    assert len(list(kept)) == 2


WRONG_KINDS = {
    "title of a number": lambda d: d.update(title=5),
    "title of a task of a number": lambda d: d["hierarchy"]["task-1-1"].update(title=5),
    "revision of text": lambda d: d.update(revision="x"),
    "revision of null": lambda d: d.update(revision=None),
    "children of objects": lambda d: d["hierarchy"]["phase-1"].update(children=[{"a": 1}]),
    "dependencies of a list": lambda d: d["hierarchy"]["task-1-1"].update(dependencies=["task-1-2"]),
    "blocked_by of a number": lambda d: d["hierarchy"]["task-1-1"].update(dependencies={"blocked_by": 5}),
    "blocked_by of objects": lambda d: d["hierarchy"]["task-1-1"].update(dependencies={"blocked_by": [{}]}),
    "parent of a list": lambda d: d["hierarchy"]["task-1-1"].update(parent=["phase-1"]),
    "journal of text": lambda d: d.update(journal=["x"]),
    "journal without a title": lambda d: d.update(journal=[{"x": 1}]),
    "last_updated of a number": lambda d: d.update(last_updated=5),
    "claim without an owner": lambda d: d["hierarchy"]["task-1-1"]["metadata"].update(
        claim={"expires_at": "9999-01-01T00:00:00Z"}
    ),
    "files of a number": lambda d: d["hierarchy"]["task-1-1"]["metadata"].update(files=5),
    "a tree that bites its tail": lambda d: [
        d["hierarchy"]["task-1-1"].update(children=["phase-1"]),
        *(node.pop("total_tasks") for node in d["hierarchy"].values()),
    ],
    "a value nested very deep": lambda d: d.update(x=json.loads("[" * 900 + "]" * 900)),
}
HARMLESS = {
    "description of a number": lambda d: d["hierarchy"]["task-1-1"]["metadata"].update(description=5),
    "hours of text": lambda d: d["hierarchy"]["task-1-1"]["metadata"].update(estimated_hours="3"),
    "tags of text": lambda d: d["metadata"].update(tags="x"),
    "no counts": lambda d: [node.pop("total_tasks") for node in d["hierarchy"].values()],
    "no dependencies": lambda d: [node.pop("dependencies") for node in d["hierarchy"].values()],
    "null dependencies": lambda d: d["hierarchy"]["task-1-1"].update(dependencies=None),
    "no metadata": lambda d: [d.pop("metadata"), *(n.pop("metadata") for n in d["hierarchy"].values())],
    "no journal": lambda d: d.pop("journal"),
    "no revision": lambda d: d.pop("revision"),
    "no dates": lambda d: [d.pop("generated"), d.pop("last_updated")],
    "no children": lambda d: [n.pop("children") for n in d["hierarchy"].values() if not n["children"]],
}


@pytest.mark.parametrize("kind", [*WRONG_KINDS, *HARMLESS])
def test_a_value_of_the_wrong_kind_never_ends_in_an_unexpected_error(kind, desk):
    desk.plan()
    desk.plan(spec_id="sound")
    desk.edit({**WRONG_KINDS, **HARMLESS}[kind])

    listed = [row["id"] for row in desk.do("spec", "list")["specs"]]

    assert listed == ["plan", "sound"]
    desk.do("spec", "find", text="nothing like it")
    for tool, action, arguments in [*READS, ("spec", "history", {}), *WRITES]:
        shown = {"dry_run": True} if (tool, action, arguments) in WRITES else {}
        answer = desk.ask(tool, action, spec_id="plan", **shown, **arguments)
        assert answer["success"] or answer["data"]["error_code"] != "INTERNAL_ERROR", (tool, action, answer)
        if kind in HARMLESS and action != "release":
            assert answer["data"].get("error_code") in {None, "INVALID_STATE"}, (tool, action, answer)
    desk.ask("task", "complete", spec_id="plan", task_id="task-1-1")


def test_a_file_name_that_is_no_text_leaves_the_other_specs_alone(desk):
    desk.plan()
    with open(os.fsencode(desk.specs / "pending") + b"/\xff.json", "wb") as file:
        file.write(b"{}")

    assert "plan" in [row["id"] for row in desk.do("spec", "list")["specs"]]


def test_a_pipe_among_the_specs_is_not_waited_for(desk, start_worker):
    desk.plan()
    pipe = desk.specs / "pending" / "pipe.json"
    os.mkfifo(pipe)
    worker = start_worker()
    worker.send(desk, call=["spec", {"action": "list"}])

    assert worker.answers_within(3), "it waits for somebody to write"


def test_a_folder_with_the_name_of_a_spec_is_an_answer(desk):
    desk.plan()
    (desk.specs / "pending" / "folder.json").mkdir()

    answer = desk.ask("spec", "get", spec_id="folder")

    assert not answer["success"]
    assert answer["data"]["details"]["file"] == "specs/pending/folder.json"
    assert [row["id"] for row in desk.do("spec", "list")["specs"]] == ["folder", "plan"]
