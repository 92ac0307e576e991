"""The files themselves: found, read fresh, written whole, with nothing lost that we do not know."""

import json
import os
import shutil
from typing import Any

import pytest

from foundry_mcp.core.specs import history, store
from foundry_mcp.core.specs.history import KEPT_REVISIONS
from foundry_mcp.core.specs.model import natural


def in_two_folders(desk):
    desk.plan()
    desk.do("journal", "add", spec_id="plan", content="x")
    (desk.specs / "active").mkdir(exist_ok=True)
    shutil.copy(desk.file(), desk.specs / "active" / "plan.json")


def test_a_spec_in_two_folders_is_read_with_a_warning_that_names_them(desk):
    in_two_folders(desk)

    for tool, action in [("spec", "get"), ("spec", "validate"), ("task", "query"), ("journal", "list")]:
        answer = desk.ask(tool, action, spec_id="plan")
        assert answer["success"]
        (said,) = answer["meta"]["warning_details"]
        assert said["code"] == "DUPLICATE_SPEC"
        assert said["context"]["folders"] == ["active", "pending"]
        assert "active is read" in answer["meta"]["warnings"][0]


def test_a_spec_in_two_folders_is_listed_twice_with_its_folders(desk):
    in_two_folders(desk)

    rows = desk.do("spec", "list")["specs"]

    assert [(row["id"], row["status"]) for row in rows] == [("plan", "active"), ("plan", "pending")]


def test_a_spec_in_two_folders_is_not_written(desk):
    in_two_folders(desk)

    for tool, action, arguments in [
        ("task", "complete", {"task_id": "task-1-1"}),
        ("spec", "update", {"title": "x"}),
        ("spec", "archive", {}),
        ("journal", "add", {"content": "x"}),
    ]:
        answer = desk.refused("CONFLICT", tool, action, spec_id="plan", **arguments)
        assert answer["data"]["details"]["folders"] == ["active", "pending"]
    desk.refused("ALREADY_EXISTS", "spec", "create", title="x", spec_id="plan")


def test_a_spec_in_two_folders_is_not_rolled_back(desk):
    in_two_folders(desk)

    desk.refused("CONFLICT", "spec", "rollback", spec_id="plan", revision=1)


# fresh content


def swap_title(path, title, *, in_place=True):
    raw = path.read_bytes()
    old = json.loads(raw)["title"]
    assert len(old) == len(title)
    changed = raw.replace(f'"{old}"'.encode(), f'"{title}"'.encode())
    if in_place:
        with path.open("r+b") as file:
            file.write(changed)
    else:
        aside = path.with_suffix(".tmp")
        aside.write_bytes(changed)
        aside.replace(path)


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "by another file"])
def test_a_file_edited_under_a_running_store_is_seen_fresh_every_time(in_place, desk):
    desk.plan()

    for turn in range(20):
        title = f"T{turn:03d}"
        swap_title(desk.file(), title, in_place=in_place)
        assert desk.do("spec", "get", spec_id="plan")["spec"]["title"] == title
        assert desk.do("spec", "list")["specs"][0]["title"] == title


def test_an_edit_of_the_same_size_after_a_write_of_our_own_is_seen(desk):
    desk.plan()

    for turn in range(20):
        desk.do("journal", "add", spec_id="plan", content=f"{turn}")
        swap_title(desk.file(), f"T{turn:03d}")
        assert desk.do("spec", "get", spec_id="plan")["spec"]["title"] == f"T{turn:03d}"


def test_a_write_builds_on_what_another_hand_wrote_meanwhile(desk):
    desk.plan()
    desk.do("spec", "get", spec_id="plan")
    swap_title(desk.file(), "Hand")

    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")

    assert desk.document()["title"] == "Hand"


def test_files_that_come_and_go_are_listed_as_they_are(desk):
    desk.plan()
    for turn in range(5):
        desk.plan(spec_id=f"extra-{turn}")
        assert len(desk.do("spec", "list")["specs"]) == 2
        desk.file(f"extra-{turn}").unlink()
        assert len(desk.do("spec", "list")["specs"]) == 1


def test_a_spec_moved_by_hand_is_found_where_it_lies(desk):
    desk.plan()
    desk.do("spec", "get", spec_id="plan")
    (desk.specs / "active").mkdir()
    os.rename(desk.file(), desk.specs / "active" / "plan.json")

    assert desk.do("spec", "get", spec_id="plan")["spec"]["status"] == "active"
    assert [row["status"] for row in desk.do("spec", "list")["specs"]] == ["active"]


def test_a_settled_file_is_read_once_and_then_answered_from_its_stat(desk, monkeypatch):
    desk.plan()
    os.utime(desk.file(), (1, 1))
    os.utime(desk.specs / "pending", (1, 1))
    reader = desk.again()
    reader.do("spec", "list")
    reader.do("spec", "get", spec_id="plan")
    monkeypatch.setattr(store, "read_file", lambda *_: pytest.fail("read again"))

    assert reader.do("spec", "list")["specs"][0]["id"] == "plan"
    assert reader.do("spec", "get", spec_id="plan")["spec"]["title"] == "Plan"


def test_what_a_reader_was_given_is_not_changed_by_a_write_that_fails(desk):
    desk.plan()
    before = desk.do("spec", "get", spec_id="plan")
    desk.do("task", "depend", spec_id="plan", task_id="task-1-2", waits_for="task-1-1", dry_run=True)
    changes = [{"action": "complete", "task_id": "task-1-1"}, {"action": "unblock", "task_id": "task-1-1"}]
    desk.refused("INVALID_STATE", "task", "batch", spec_id="plan", changes=changes)

    assert desk.do("spec", "get", spec_id="plan") == before


# a clock that goes backwards


def test_a_clock_that_goes_backwards_never_turns_the_journal_round(desk, clock):
    desk.plan()
    updated = []
    for step in (0, -3600, 10, -86_400, 100_000, -1):
        clock.pass_seconds(step)
        desk.do("journal", "add", spec_id="plan", content=f"{step}")
        updated.append(desk.document()["last_updated"])

    entries = desk.document()["journal"]
    times = [entry["timestamp"] for entry in entries]
    assert [entry["content"] for entry in entries] == ["0", "-3600", "10", "-86400", "100000", "-1"]
    assert times == sorted(times)
    assert updated == sorted(updated)
    listed = desk.do("journal", "list", spec_id="plan")["entries"]
    assert [entry["content"] for entry in listed] == [entry["content"] for entry in entries]


def test_a_rollback_and_a_move_never_turn_last_updated_back(desk, clock):
    desk.plan()
    desk.do("journal", "add", spec_id="plan", content="x")
    latest = desk.document()["last_updated"]
    clock.pass_seconds(-5000)
    desk.do("spec", "rollback", spec_id="plan", revision=1)
    assert desk.document()["last_updated"] >= latest
    desk.do("spec", "activate", spec_id="plan")
    assert desk.document()["last_updated"] >= latest
    times = [entry["timestamp"] for entry in desk.document()["journal"]]
    assert times == sorted(times)


def test_a_task_never_ends_before_it_began(desk, clock):
    desk.plan()
    desk.do("task", "start", spec_id="plan", task_id="task-1-1")
    clock.pass_seconds(-5000)
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")

    facts = desk.node("task-1-1")["metadata"]
    assert facts["completed_at"] >= facts["started_at"]


def test_history_keeps_its_order_whatever_the_clock_says(desk, clock):
    desk.plan()
    for _ in range(3):
        clock.pass_seconds(-1000)
        desk.do("journal", "add", spec_id="plan", content="x")

    rows = desk.do("spec", "history", spec_id="plan")["revisions"]

    assert [row["revision"] for row in rows] == [4, 3, 2, 1]


# nothing lost


EVERY_WRITE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "update": ("spec", "update", {"description": "new"}),
    "fix": ("spec", "fix", {"apply": True}),
    "move": ("spec", "archive", {}),
    "claim": ("task", "claim", {"owner": "me"}),
    "start": ("task", "start", {"task_id": "task-1-10"}),
    "complete": ("task", "complete", {"task_id": "task-1-10"}),
    "add": ("task", "add", {"title": "x", "parent": "phase-2"}),
    "edit": ("task", "update", {"task_id": "task-1-10", "title": "x"}),
    "remove": ("task", "remove", {"task_id": "verify-1-1"}),
    "depend": ("task", "depend", {"task_id": "task-1-10", "waits_for": "task-1-1"}),
    "carry": ("task", "move", {"task_id": "task-1-10", "parent": "phase-2"}),
    "journal": ("journal", "add", {"content": "x"}),
    "batch": ("task", "batch", {"changes": [{"action": "complete", "task_id": "task-1-10"}]}),
}


def assert_kept(before, after, path=""):
    """Everything that was there is there, in the order it was in, unless a write means to change it."""
    if isinstance(before, dict) and isinstance(after, dict):
        order = [key for key in after if key in before]
        assert order == [key for key in before if key in after], path
        for key in before:
            assert key in after, f"{path}/{key} is gone"
            assert_kept(before[key], after[key], f"{path}/{key}")
    elif isinstance(before, list) and path.endswith("/journal"):
        assert after[: len(before)] == before
    elif path.rsplit("/", 1)[-1] not in {"status", "completed_tasks", "total_tasks", "last_updated"}:
        assert before == after, path


@pytest.mark.parametrize("name", EVERY_WRITE)
def test_unknown_fields_and_the_order_of_keys_survive_every_kind_of_write(name, desk, legacy):
    legacy["hierarchy"]["phase-2"]["total_tasks"] = 7  # something to fix
    desk.put(legacy, "active")
    tool, action, arguments = EVERY_WRITE[name]
    spec_id = legacy["spec_id"]
    desk.do("spec", "get", spec_id=spec_id)

    desk.do(tool, action, spec_id=spec_id, **arguments)

    after = desk.document(spec_id)
    assert after["revision"] == 1
    before = json.loads(json.dumps(legacy))
    nodes = before["hierarchy"]
    if name == "update":
        before["metadata"].pop("description", None)
    if name == "edit":
        nodes["task-1-10"]["title"] = "x"
    if name == "remove":
        del nodes["verify-1-1"]
        nodes["phase-1-verify"]["children"] = []
    if name == "add":
        nodes["phase-2"]["children"].append("task-2-2")
    if name == "depend":
        nodes["task-1-10"]["dependencies"]["blocked_by"] = ["task-1-1"]
        nodes["task-1-1"]["dependencies"]["blocks"] = ["task-1-10"]
    if name == "carry":
        nodes["phase-1-files"]["children"].remove("task-1-10")
        nodes["phase-2"]["children"].append("task-1-10")
        nodes["task-1-10"]["parent"] = "phase-2"
    assert_kept(before, after)
    assert desk.file(spec_id).read_bytes().endswith(b"}\n")


@pytest.mark.parametrize("name", EVERY_WRITE)
def test_a_rollback_after_any_write_brings_the_file_back_as_it_was(name, desk, legacy):
    legacy["hierarchy"]["phase-2"]["total_tasks"] = 7  # something to fix
    desk.put(legacy, "active")
    tool, action, arguments = EVERY_WRITE[name]
    spec_id = legacy["spec_id"]
    desk.do(tool, action, spec_id=spec_id, **arguments)

    desk.do("spec", "rollback", spec_id=spec_id, revision=0)

    after = desk.document(spec_id)
    assert after["hierarchy"] == legacy["hierarchy"]
    assert {k: after[k] for k in legacy if k not in {"journal", "last_updated"}} == {
        k: legacy[k] for k in legacy if k not in {"journal", "last_updated"}
    }
    assert after["revision"] == 2
    assert after["journal"][: len(legacy["journal"])] == legacy["journal"]


def test_a_file_of_an_earlier_version_lists_validates_and_works(desk, legacy):
    desk.put(legacy, "active")
    spec_id = legacy["spec_id"]

    (row,) = desk.do("spec", "find", tag="legacy")["specs"]

    assert (row["id"], row["title"], row["status"], row["revision"]) == (spec_id, "Café ☕", "active", 0)
    assert (row["completed_tasks"], row["total_tasks"], row["progress"]) == (1, 6, 0.17)
    assert desk.do("spec", "validate", spec_id=spec_id)["findings"] == []
    assert [r["task_id"] for r in desk.do("task", "ready", spec_id=spec_id)["tasks"]] == [
        "task-1-2-1",
        "task-1-2-2",
        "task-1-10",
    ]
    waiting = desk.do("task", "get", spec_id=spec_id, task_id="verify-1-1")["task"]
    assert waiting["blocked_by"] == ["phase-1-files"]


def test_a_write_into_a_plan_without_counts_writes_no_false_ones(desk):
    desk.plan()
    desk.edit(lambda d: [node.pop("total_tasks") for node in d["hierarchy"].values()])

    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")

    assert desk.node("phase-1").get("total_tasks") in {None, 2}
    assert desk.node("spec-root").get("total_tasks") in {None, 4}


def test_a_write_that_changes_nothing_writes_nothing(desk):
    desk.plan()
    before = desk.tree()

    assert desk.do("task", "update", spec_id="plan", task_id="task-1-1", title="a")["revision"] == 1
    assert desk.do("spec", "update", spec_id="plan", title="Plan")["revision"] == 1
    assert desk.do("spec", "fix", spec_id="plan", apply=True)["applied"] is False

    assert desk.tree() == before
    assert desk.store.revisions("plan") == []


def test_the_history_is_bounded_and_keeps_the_latest(desk, monkeypatch):
    assert KEPT_REVISIONS >= 100
    monkeypatch.setattr(history, "KEPT_REVISIONS", 3)
    desk.plan()
    for number in range(8):
        desk.do("journal", "add", spec_id="plan", content=f"{number}")

    assert desk.store.revisions("plan") == [6, 7, 8]
    desk.refused("NOT_FOUND", "spec", "rollback", spec_id="plan", revision=1)
    assert desk.do("spec", "rollback", spec_id="plan", revision=6)["revision"] == 10


def test_an_edit_in_place_of_the_present_file_leaves_the_history_alone(desk):
    desk.plan()
    desk.do("journal", "add", spec_id="plan", content="x")
    kept = desk.workspace / ".foundry" / "history" / "plan" / "1.json"
    before = kept.read_bytes()

    swap_title(desk.file(), "Hand")

    assert kept.read_bytes() == before


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["task-1-10", "task-1-2", "task-1-1"], ["task-1-1", "task-1-2", "task-1-10"]),
        (["b", "a-2", "a-10", "a"], ["a", "a-2", "a-10", "b"]),
        (["10", "9", "1-b", "1-a"], ["1-a", "1-b", "9", "10"]),
    ],
)
def test_names_are_sorted_as_a_person_would(names, expected):
    assert sorted(names, key=natural) == expected


def test_specs_are_listed_in_natural_order_across_the_folders(desk):
    for name in ("a-10", "a-9", "b", "a-1"):
        desk.plan(spec_id=name)
    desk.do("spec", "activate", spec_id="a-9")

    assert [row["id"] for row in desk.do("spec", "list")["specs"]] == ["a-1", "a-9", "a-10", "b"]
