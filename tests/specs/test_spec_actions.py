"""The tool `spec`, action by action, as the doors call it."""

import datetime as dt
import itertools
from typing import Any

import pytest

from foundry_mcp.core.specs.lifecycle import LEGAL_MOVES
from foundry_mcp.core.specs.model import FOLDERS

shows = pytest.mark.requirement


def walk(desk, tool, action, rows, between=None, **arguments):
    """The pagination loop of the documents, as it stands there."""
    found = []
    cursor = None
    while True:
        response = desk.ask(tool, action, cursor=cursor, **arguments)
        assert response["success"], response
        found.extend(response["data"][rows])
        if not response["meta"]["pagination"]["has_more"]:
            break
        cursor = response["meta"]["pagination"]["cursor"]
        if between:
            between()
    return found


# list and find


@shows("000.edge-case.empty-query")
def test_a_query_that_matches_nothing_is_a_success_with_empty_arrays_and_zero_counts(desk):
    for action in ("list", "find"):
        answer = desk.ask("spec", action)
        assert answer["success"]
        assert answer["error"] is None
        assert answer["data"] == {"specs": [], "total_count": 0}
        assert answer["meta"]["pagination"] == {"has_more": False, "total_count": 0, "page_size": 50}
    desk.plan()
    for arguments in (
        {"text": "nothing"},
        {"tag": "none"},
        {"status": "archived"},
        {"updated_since": "2999-01-01"},
    ):
        assert desk.do("spec", "find", **arguments) == {"specs": [], "total_count": 0}
    empty = desk.ask("task", "query", spec_id="plan", status="blocked")
    assert empty["data"]["tasks"] == []
    assert empty["data"]["filtered_count"] == 0
    assert empty["meta"]["pagination"]["has_more"] is False
    assert desk.do("journal", "list", spec_id="plan")["entries"] == []


def test_a_row_of_the_list_says_what_a_reader_needs(desk):
    desk.plan(metadata={"tags": ["x"]})
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")

    (row,) = desk.do("spec", "list")["specs"]

    assert row.pop("last_updated") == desk.document()["last_updated"]
    assert row == {
        "id": "plan",
        "spec_id": "plan",
        "title": "Plan",
        "status": "pending",
        "progress": 0.25,
        "completed_tasks": 1,
        "total_tasks": 4,
        "revision": 2,
        "tags": ["x"],
    }


def test_specs_are_found_by_folder_text_tag_and_date(desk):
    desk.plan(spec_id="one", metadata={"tags": ["red", "blue"]})
    desk.plan("## P\n- [ ] Build the ENGINE\n", spec_id="two", metadata={"tags": ["blue"]})
    desk.do("spec", "activate", spec_id="two")
    desk.edit(lambda d: d.update(last_updated="2020-01-01T00:00:00Z"), "one")

    def found(**arguments):
        return [row["id"] for row in desk.do("spec", "find", **arguments)["specs"]]

    assert found(status="active") == ["two"]
    assert found(text="engine") == ["two"]  # in the title of a task
    assert found(text="ONE") == ["one"]  # in the id
    assert found(tag="blue") == ["one", "two"]
    assert found(tag="red", status="active") == []
    assert found(updated_since="2021-01-01") == ["two"]
    assert found(updated_since="2020-01-01") == ["one", "two"]
    assert found(text="two", tag="blue", status="active") == ["two"]


def test_the_total_counts_all_that_match_and_not_the_page(desk):
    for number in range(5):
        desk.plan("", spec_id=f"s-{number}")

    answer = desk.ask("spec", "find", limit=2)

    assert answer["data"]["total_count"] == 5
    assert answer["meta"]["pagination"]["total_count"] == 5
    assert answer["meta"]["pagination"]["page_size"] == 2


# get


@shows("001.example.spec-get", "003.data.spec-get")
def test_a_spec_answers_with_its_head_and_its_hierarchy(desk):
    desk.plan()
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")

    data = desk.do("spec", "get", spec_id="plan")

    assert set(data) == {"spec", "hierarchy"}
    head = data["spec"]
    assert (head["spec_id"], head["id"], head["title"], head["status"]) == ("plan", "plan", "Plan", "pending")
    assert head["progress"] == {"completed": 1, "total": 4, "percentage": 25}
    assert head["revision"] == 2
    assert "hierarchy" not in head
    assert data["hierarchy"] == desk.document()["hierarchy"]


@shows("000.edge-case.spec-with-tasks")
def test_a_spec_and_its_tasks_are_each_named_in_the_data(desk):
    desk.plan()

    outline = desk.do("spec", "get", spec_id="plan", view="outline")
    progress = desk.do("task", "progress", spec_id="plan")

    assert set(outline) == {"spec", "outline"}
    lines = [(line["id"], line["type"], line["depth"], line["status"]) for line in outline["outline"]]
    assert lines == [
        ("spec-root", "spec", 0, "pending"),
        ("phase-1", "phase", 1, "pending"),
        ("task-1-1", "task", 2, "pending"),
        ("task-1-2", "task", 2, "pending"),
        ("phase-2", "phase", 1, "pending"),
        ("task-2-1", "task", 2, "pending"),
        ("task-2-2", "task", 2, "pending"),
    ]
    assert progress["spec_id"] == "plan"
    assert progress["progress"] == {"completed": 0, "total": 4, "percentage": 0}
    assert [phase["id"] for phase in progress["phases"]] == ["phase-1", "phase-2"]


def test_one_phase_can_be_read_alone(desk):
    desk.plan()
    desk.do("task", "complete", spec_id="plan", task_id="task-2-1")

    data = desk.do("spec", "get", spec_id="plan", phase="phase-2")

    assert list(data["hierarchy"]) == ["phase-2", "task-2-1", "task-2-2"]
    assert data["spec"]["progress"] == {"completed": 1, "total": 2, "percentage": 50}
    desk.refused("TASK_NOT_FOUND", "spec", "get", spec_id="plan", phase="phase-9")


@shows("003.handling.success", "000.edge-case.missing-spec", "000.error-cause.SPEC_NOT_FOUND")
def test_a_spec_that_is_not_there_says_so_with_the_nearest_and_a_remedy(desk):
    desk.plan(spec_id="my-feature")

    response = desk.ask("spec", "get", spec_id="my-feature")
    assert response["success"]
    assert response["data"]["spec"]["title"] == "My-feature"

    response = desk.refused("SPEC_NOT_FOUND", "spec", "get", spec_id="my-featur")
    assert "my-featur" in response["error"]
    assert "my-feature" in response["data"].get("remediation", "")


@shows("003.example.not-found-produced")
def test_an_unknown_spec_names_its_kind_and_its_id(desk):
    answer = desk.refused(
        "SPEC_NOT_FOUND", "task", "complete", spec_id="nonexistent-spec", task_id="task-1-1"
    )

    assert answer["error"] == "Spec not found: nonexistent-spec"
    assert answer["data"]["error_type"] == "not_found"
    assert answer["data"]["details"]["resource_type"] == "spec"
    assert answer["data"]["details"]["resource_id"] == "nonexistent-spec"
    assert answer["data"]["details"]["spec_id"] == "nonexistent-spec"


# create


def test_a_title_gives_an_id_with_the_date_and_a_number(desk):
    today = dt.datetime.now(dt.UTC).date()
    days = {f"{day:%Y-%m-%d}" for day in (today, today + dt.timedelta(days=1))}

    ids = [desk.do("spec", "create", title="My feature: v2!")["spec_id"] for _ in range(3)]

    assert [spec_id.rsplit("-", 1)[1] for spec_id in ids] == ["001", "002", "003"]
    for spec_id in ids:
        stem, year, month, day, _ = spec_id.rsplit("-", 4)
        assert stem == "my-feature-v2"
        assert f"{year}-{month}-{day}" in days
        assert desk.file(spec_id).parent.name == "pending"


@pytest.mark.parametrize("title", ["日本語", "!!!", "   ", "é", "x" * 500, "-" * 40])
def test_any_title_gives_a_legal_id(title, desk):
    spec_id = desk.do("spec", "create", title=title)["spec_id"]

    assert desk.do("spec", "get", spec_id=spec_id)["spec"]["title"] == title


@shows("003.error-cause.ALREADY_EXISTS")
def test_an_id_that_is_taken_in_any_folder_already_exists(desk):
    desk.plan()
    desk.do("spec", "archive", spec_id="plan")

    answer = desk.refused("ALREADY_EXISTS", "spec", "create", title="x", spec_id="plan")

    assert answer["data"]["details"]["folder"] == "archived"
    assert answer["data"]["error_type"] == "conflict"


@pytest.mark.parametrize(("template", "verifies"), [("feature", 2), ("bugfix", 1), ("research", 1)])
def test_each_template_gives_a_valid_plan_that_can_be_worked_through(template, verifies, desk):
    desk.do("spec", "create", title="T", spec_id="plan", template=template)

    kinds = [node["type"] for node in desk.document()["hierarchy"].values()]

    assert kinds.count("verify") == verifies
    assert kinds.count("phase") == 3
    assert desk.do("spec", "validate", spec_id="plan")["findings"] == []
    while (found := desk.do("task", "next", spec_id="plan"))["task"]:
        desk.do("task", "complete", spec_id="plan", task_id=found["task"]["task_id"])
    assert found["state"] == "completed"
    desk.do("spec", "activate", spec_id="plan")
    desk.do("spec", "complete", spec_id="plan")


def test_a_template_and_an_outline_exclude_each_other(desk):
    desk.refused("VALIDATION_ERROR", "spec", "create", title="x", template="feature", outline="## a")
    desk.refused("VALIDATION_ERROR", "spec", "create", title="x", template="nonsense")


def test_creating_can_be_shown_first(desk):
    data = desk.do("spec", "create", title="x", spec_id="plan", template="bugfix", dry_run=True)

    assert data["dry_run"] is True
    assert [line["title"] for line in data["outline"] if line["type"] == "phase"] == [
        "Reproduce",
        "Mend",
        "Check",
    ]
    assert desk.tree() == {}


def test_metadata_given_at_creation_is_kept(desk):
    desk.do("spec", "create", title="x", spec_id="plan", metadata={"tags": ["a"], "owner": "me"})

    assert desk.document()["metadata"]["owner"] == "me"
    assert desk.document()["metadata"]["objectives"] == []


# update


def test_title_lists_and_metadata_can_be_changed_and_taken_away(desk):
    desk.plan(metadata={"old": 1})

    desk.do(
        "spec",
        "update",
        spec_id="plan",
        title="Better",
        description="why",
        metadata={"old": None, "tags": ["t"]},
        assumptions=["a"],
        constraints=["c"],
        risks=["r"],
        questions=["q"],
        success_criteria=["s"],
    )

    document = desk.document()
    assert document["title"] == document["hierarchy"]["spec-root"]["title"] == "Better"
    assert "old" not in document["metadata"]
    assert {key: document["metadata"][key] for key in ("description", "tags", "assumptions")} == {
        "description": "why",
        "tags": ["t"],
        "assumptions": ["a"],
    }
    for key in ("constraints", "risks", "questions", "success_criteria"):
        assert document["metadata"][key] == [key[0]]
    desk.do("spec", "update", spec_id="plan", risks=[])
    assert desk.document()["metadata"]["risks"] == []


# what every write can do


def every_write(desk):
    yield "spec", "update", {"title": "New"}
    yield "spec", "activate", {}
    yield "spec", "complete", {"force": True}
    yield "spec", "archive", {}
    yield "spec", "move", {"to": "active"}
    yield "spec", "rollback", {"revision": 1}
    yield "task", "claim", {"owner": "me"}
    yield "task", "release", {"owner": "me", "task_id": "task-1-1"}
    yield "task", "start", {"task_id": "task-1-1"}
    yield "task", "block", {"task_id": "task-1-1", "reason": "x"}
    yield "task", "unblock", {"task_id": "task-1-1"}
    yield "task", "complete", {"task_id": "task-1-1"}
    yield "task", "reset", {"task_id": "task-1-1"}
    yield "task", "add", {"title": "x"}
    yield "task", "update", {"task_id": "task-1-1", "title": "x"}
    yield "task", "move", {"task_id": "task-1-1", "parent": "phase-2"}
    yield "task", "depend", {"task_id": "task-1-1", "waits_for": "task-1-2"}
    yield "task", "batch", {"changes": [{"action": "complete", "task_id": "task-1-2"}]}
    yield "task", "remove", {"task_id": "task-2-2"}
    yield "journal", "add", {"content": "x"}


def ready_for(desk, action):
    """The plan in a state in which this action changes something."""
    desk.plan()
    desk.do("journal", "add", spec_id="plan", content="x")
    if action == "complete":
        desk.do("spec", "activate", spec_id="plan")
    if action in {"release", "reset"}:
        desk.do("task", "claim", spec_id="plan", task_id="task-1-1", owner="me")
        desk.do("task", "start", spec_id="plan", task_id="task-1-1", owner="me")
    if action == "unblock":
        desk.do("task", "block", spec_id="plan", task_id="task-1-1", reason="x")
    return {"owner": "me"} if action == "reset" else {}


WRITES = [pytest.param(*write, id=f"{write[0]}.{write[1]}") for write in every_write(None)]


def test_the_writes_above_are_all_there_are(desk):
    declared = {(o.tool, o.action) for o in desk.runtime.surroundings.registry if o.writes}

    assert declared - {(t, a) for t, a, _ in every_write(desk)} == {("spec", "create"), ("spec", "fix")}


@pytest.mark.parametrize(("tool", "action", "arguments"), WRITES)
def test_every_write_can_be_shown_first(tool, action, arguments, desk):
    more = ready_for(desk, action)
    before, revision = desk.tree(), desk.document()["revision"]

    data = desk.do(tool, action, spec_id="plan", dry_run=True, **arguments, **more)

    assert data["dry_run"] is True
    assert data["revision"] == revision
    assert data["changes"]
    assert all({"before", "after"} & change.keys() for change in data["changes"])
    assert desk.tree() == before
    done = desk.do(tool, action, spec_id="plan", **arguments, **more)
    assert "dry_run" not in done
    assert done["revision"] == revision + 1 == desk.document()["revision"]


@pytest.mark.parametrize(("tool", "action", "arguments"), WRITES)
def test_every_write_refuses_a_revision_that_has_passed(tool, action, arguments, desk):
    more = ready_for(desk, action)
    revision = desk.document()["revision"]

    for wrong in (0, revision - 1, revision + 1):
        answer = desk.refused(
            "VERSION_CONFLICT", tool, action, spec_id="plan", expected_revision=wrong, **arguments, **more
        )
        assert answer["data"]["details"]["revision"] == revision
        assert answer["data"]["details"]["expected_revision"] == wrong
        assert answer["data"]["error_type"] == "conflict"

    data = desk.do(tool, action, spec_id="plan", expected_revision=revision, **arguments, **more)
    assert data["revision"] == revision + 1


@pytest.mark.parametrize(("tool", "action", "arguments"), WRITES)
def test_every_write_repeated_with_its_key_is_done_once(tool, action, arguments, desk):
    more = ready_for(desk, action)

    first = desk.ask(tool, action, spec_id="plan", idempotency_key="k", **arguments, **more)
    after = desk.tree()
    again = desk.ask(tool, action, spec_id="plan", idempotency_key="k", **arguments, **more)

    assert first["success"], first
    assert again["data"] == first["data"]
    assert again["meta"]["replayed"] is True
    assert desk.tree() == after
    desk.refused("CONFLICT", "journal", "add", spec_id="plan", content="another", idempotency_key="k")


def test_creating_again_with_its_key_makes_one_spec(desk):
    first, again = (desk.do("spec", "create", title="x", idempotency_key="k") for _ in range(2))

    assert first == again
    assert len(desk.tree()) == 1


def test_a_refused_write_leaves_its_key_free(desk):
    desk.plan()
    write = {"spec_id": "plan", "task_id": "task-1-1", "idempotency_key": "k"}
    desk.refused("INVALID_STATE", "task", "unblock", **write)

    assert desk.do("task", "complete", **write)["status"] == "completed"


# lifecycle


@shows("003.error-cause.INVALID_STATE")
@pytest.mark.parametrize(("here", "there"), list(itertools.product(FOLDERS, FOLDERS)))
def test_a_move_between_folders_is_legal_or_says_which_are(here, there, desk):
    desk.plan("## One\n- [x] done\n")
    for step in {
        "pending": (),
        "active": ("active",),
        "completed": ("active", "completed"),
        "archived": ("archived",),
    }[here]:
        desk.do("spec", "move", spec_id="plan", to=step)
    before = desk.document()

    if there in LEGAL_MOVES[here]:
        data = desk.do("spec", "move", spec_id="plan", to=there)
        assert (data["status"], data["previous_status"]) == (there, here)
        assert desk.file().parent.name == there
        entry = desk.document()["journal"][-1]
        assert entry["entry_type"] == "status_change"
        assert (entry["metadata"]["from"], entry["metadata"]["to"]) == (here, there)
        assert desk.document()["revision"] == before["revision"] + 1
        assert desk.do("spec", "get", spec_id="plan")["spec"]["status"] == there
    else:
        answer = desk.refused("INVALID_STATE", "spec", "move", spec_id="plan", to=there)
        assert answer["data"]["details"]["legal"] == list(LEGAL_MOVES[here])
        assert all(legal in answer["data"]["remediation"] for legal in LEGAL_MOVES[here])
        assert desk.file().parent.name == here


def test_the_legal_moves_are_the_ones_of_the_drawing():
    assert LEGAL_MOVES == {
        "pending": ("active", "archived"),
        "active": ("pending", "completed", "archived"),
        "completed": ("active", "archived"),
        "archived": ("pending", "active"),
    }


def test_a_spec_with_open_tasks_is_completed_only_by_force(desk):
    desk.plan()
    desk.do("spec", "activate", spec_id="plan")

    answer = desk.refused("INVALID_STATE", "spec", "complete", spec_id="plan")

    assert answer["data"]["details"]["open_count"] == 4
    assert answer["data"]["details"]["open_tasks"][0] == "task-1-1"
    assert desk.do("spec", "complete", spec_id="plan", force=True)["status"] == "completed"
    assert desk.do("spec", "archive", spec_id="plan")["previous_status"] == "completed"


def test_force_makes_no_illegal_move_legal(desk):
    desk.plan()
    desk.refused("INVALID_STATE", "spec", "complete", spec_id="plan", force=True)


def test_a_spec_keeps_its_history_when_it_moves(desk):
    desk.plan()
    desk.do("spec", "activate", spec_id="plan")
    desk.do("journal", "add", spec_id="plan", content="x")

    assert [row["revision"] for row in desk.do("spec", "history", spec_id="plan")["revisions"]] == [3, 2, 1]
    data = desk.do("spec", "rollback", spec_id="plan", revision=1)
    assert desk.file().parent.name == "active"
    assert data["revision"] == 4


# history, diff, rollback


def test_history_tells_what_each_revision_was(desk):
    desk.plan()
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")

    data = desk.do("spec", "history", spec_id="plan")

    assert data["total_count"] == 2
    latest, first = data["revisions"]
    assert (latest["revision"], latest["progress"]) == (2, 25)
    assert "completed" in latest["last_entry"]
    assert (first["revision"], first["progress"], first["last_entry"]) == (1, 0, None)


def test_diff_shows_what_changed_between_two_revisions(desk):
    desk.plan()
    desk.do("spec", "update", spec_id="plan", title="Better")
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")

    last = {change["path"]: change for change in desk.do("spec", "diff", spec_id="plan")["changes"]}
    whole = desk.do("spec", "diff", spec_id="plan", from_revision=1, to_revision=2)

    assert last["hierarchy/task-1-1/status"] == {
        "path": "hierarchy/task-1-1/status",
        "before": "pending",
        "after": "completed",
    }
    assert "after" in last["journal/0"]
    assert "before" not in last["journal/0"]
    assert (whole["from_revision"], whole["to_revision"]) == (1, 2)
    assert [change["path"] for change in whole["changes"]] == ["title", "hierarchy/spec-root/title"]
    nothing = desk.ask("spec", "diff", spec_id="plan", from_revision=2, to_revision=2)
    assert nothing["data"]["changes"] == []
    assert nothing["meta"]["pagination"]["has_more"] is False
    desk.refused("NOT_FOUND", "spec", "diff", spec_id="plan", from_revision=99)


def test_a_rollback_is_a_new_revision_and_forgets_nothing_that_happened(desk):
    desk.plan()
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")
    before = desk.document()

    data = desk.do("spec", "rollback", spec_id="plan", revision=1)

    assert data["restored_revision"] == 1
    assert data["revision"] == 3
    document = desk.document()
    assert document["hierarchy"]["task-1-1"]["status"] == "pending"
    assert document["journal"][:-1] == before["journal"]
    assert desk.store.revisions("plan") == [1, 2]
    assert desk.do("spec", "rollback", spec_id="plan", revision=2)["progress"]["completed"] == 1


# pages


def test_the_loop_of_the_documents_walks_specs_to_the_end(desk):
    names = [f"s-{number}" for number in range(23)]
    for name in names:
        desk.plan("", spec_id=name)

    for limit in (1, 5, 23, 500):
        assert [row["id"] for row in walk(desk, "spec", "find", "specs", limit=limit)] == names
    assert [row["id"] for row in walk(desk, "spec", "list", "specs", limit=7, status="pending")] == names


def test_specs_written_between_the_pages_neither_skip_nor_repeat_what_was_there(desk):
    names = [f"s-{number:02d}" for number in range(12)]
    for name in names:
        desk.plan("", spec_id=name)
    counter = itertools.count()

    def somebody_writes():
        number = next(counter)
        desk.plan("", spec_id=f"a-{number}")
        desk.plan("", spec_id=f"z-{number}")
        desk.do("journal", "add", spec_id=names[number], content="x")
        if desk.files(f"a-{number - 1}"):
            desk.file(f"a-{number - 1}").unlink()

    seen = [row["id"] for row in walk(desk, "spec", "list", "specs", somebody_writes, limit=3)]

    assert [name for name in seen if name in names] == names
    assert len(seen) == len(set(seen))


def test_ids_that_differ_only_in_leading_zeros_are_all_listed(desk):
    names = ["a-1", "a-01", "a-001", "b"]
    for name in names:
        desk.plan("", spec_id=name)

    assert sorted(row["id"] for row in walk(desk, "spec", "list", "specs", limit=1)) == sorted(names)


def test_history_and_diff_walk_to_the_end_while_others_write(desk):
    desk.plan()
    for number in range(9):
        desk.do("spec", "update", spec_id="plan", metadata={f"k{number}": number})

    def somebody_writes():
        desk.do("journal", "add", spec_id="plan", content="x")

    revisions = [
        row["revision"]
        for row in walk(desk, "spec", "history", "revisions", somebody_writes, spec_id="plan", limit=3)
    ]
    assert revisions == list(range(10, 0, -1))
    changes = walk(
        desk,
        "spec",
        "diff",
        "changes",
        somebody_writes,
        spec_id="plan",
        from_revision=1,
        to_revision=10,
        limit=2,
    )
    assert [change["path"] for change in changes] == [f"metadata/k{number}" for number in range(9)]


@shows("003.best-practice.list-operations")
def test_every_list_operation_pages_and_says_whether_there_is_more(desk):
    desk.plan()
    desk.plan(spec_id="plan-2")
    for number in range(3):
        desk.do("journal", "add", spec_id="plan", content=f"{number}")
    lists: dict[str, tuple[str, dict[str, Any]]] = {
        "spec.list": ("specs", {}),
        "spec.find": ("specs", {}),
        "spec.history": ("revisions", {"spec_id": "plan"}),
        "spec.diff": ("changes", {"spec_id": "plan", "from_revision": 1}),
        "task.query": ("tasks", {"spec_id": "plan"}),
        "task.ready": ("tasks", {"spec_id": "plan"}),
        "journal.list": ("entries", {"spec_id": "plan"}),
    }
    declared = [
        operation
        for operation in desk.runtime.surroundings.registry
        if operation.tool in {"spec", "task", "journal"} and "cursor" in operation.schema["properties"]
    ]

    assert {operation.name for operation in declared} == set(lists)
    cursors = {}
    for operation in declared:
        rows, arguments = lists[operation.name]
        limit = operation.schema["properties"]["limit"]
        assert (limit["default"], limit["minimum"], limit["maximum"]) == (50, 1, 500)
        first = desk.ask(operation.tool, operation.action, limit=1, **arguments)
        assert len(first["data"][rows]) == 1
        pagination = first["meta"]["pagination"]
        assert pagination["has_more"] is True
        assert pagination["page_size"] == 1
        assert pagination["total_count"] == first["data"].get("filtered_count", first["data"]["total_count"])
        cursors[operation.name] = pagination["cursor"]
        for wrong in (0, 501, -1):
            desk.refused("VALIDATION_ERROR", operation.tool, operation.action, limit=wrong, **arguments)
    # A cursor fits the query it came from, and nothing else.
    for operation in declared:
        _, arguments = lists[operation.name]
        for name, cursor in cursors.items():
            same = {name, operation.name} <= {"spec.list", "spec.find"} or name == operation.name
            if same:
                assert desk.ask(operation.tool, operation.action, cursor=cursor, **arguments)["success"]
            else:
                desk.refused("INVALID_CURSOR", operation.tool, operation.action, cursor=cursor, **arguments)
        for foreign in ("nonsense", "eyJvZmZzZXQiOjUwfQ==", cursors[operation.name][:-4], "é", " "):
            desk.refused("INVALID_CURSOR", operation.tool, operation.action, cursor=foreign, **arguments)


def test_a_cursor_of_another_filter_or_spec_is_refused(desk):
    desk.plan()
    desk.plan(spec_id="other")
    cursor = desk.ask("task", "query", spec_id="plan", limit=1)["meta"]["pagination"]["cursor"]

    desk.refused("INVALID_CURSOR", "task", "query", spec_id="other", cursor=cursor)
    desk.refused("INVALID_CURSOR", "task", "query", spec_id="plan", status="pending", cursor=cursor)
    cursor = desk.ask("spec", "find", limit=1)["meta"]["pagination"]["cursor"]
    desk.refused("INVALID_CURSOR", "spec", "find", status="pending", cursor=cursor)
    cursor = desk.ask("spec", "find", limit=1)["meta"]["pagination"]["cursor"]
    assert desk.ask("spec", "find", limit=400, cursor=cursor)["success"]  # the size of a page may change


# the reference


@shows("002.checklist.meta-documented")
def test_the_reference_of_every_tool_says_which_meta_keys_it_uses(desk, request):
    desk.plan()
    blocked = desk.ask("task", "start", spec_id="plan", task_id="task-1-1")
    listed = desk.ask("task", "query", spec_id="plan")
    used = {*blocked["meta"], *listed["meta"], "warnings"}
    reference = (request.config.rootpath / "docs" / "reference.md").read_text(encoding="utf-8")

    for tool in ("spec", "task", "journal"):
        section = reference.split(f"## Tool `{tool}`", 1)[1].split("\n## ", 1)[0]
        for key in used:
            assert f"meta.{key}" in section, (tool, key)
