"""The tools `task` and `journal`, action by action, as the doors call them."""

import itertools

import pytest

shows = pytest.mark.requirement
LEGAL = {
    "pending": {"start", "complete", "block"},
    "in_progress": {"complete", "block", "reset"},
    "blocked": {"unblock", "reset"},
    "completed": {"reset"},
}
TURNS = ("start", "complete", "block", "unblock", "reset")
WAY = {"pending": (), "in_progress": ("start",), "blocked": ("block",), "completed": ("complete",)}


def turn(desk, action, task_id="task-1-1", **arguments):
    more = {"reason": "waiting"} if action == "block" else {}
    return desk.do("task", action, spec_id="plan", task_id=task_id, **more, **arguments)


def names(rows):
    return [row["task_id"] for row in rows]


# query


@shows("003.data.task-query")
def test_a_query_answers_with_rows_the_total_and_how_many_match(desk):
    desk.plan()
    turn(desk, "complete")
    turn(desk, "start", "task-1-2", owner="ann")

    data = desk.do("task", "query", spec_id="plan", status="pending")

    assert data == {
        "spec_id": "plan",
        "tasks": [
            {
                "task_id": f"task-2-{number}",
                "description": description,
                "status": "pending",
                "type": "task",
                "phase": "phase-2",
            }
            for number, description in ((1, "c"), (2, "d"))
        ],
        "total_count": 4,
        "filtered_count": 2,
    }
    assert desk.do("task", "query", spec_id="plan", owner="ann")["tasks"][0]["owner"] == "ann"


def test_tasks_are_found_by_status_phase_owner_and_text(desk):
    desk.plan("## One\n- [ ] Write Tests\n  - [ ] inner\n- [x] old\n## Two\n- [ ] other\n")
    desk.do("task", "update", spec_id="plan", task_id="task-2-1", description="about TESTS too")
    desk.do("task", "claim", spec_id="plan", task_id="task-2-1", owner="bob")

    def found(**arguments):
        return names(desk.do("task", "query", spec_id="plan", **arguments)["tasks"])

    assert found() == ["task-1-1", "task-1-1-1", "task-1-2", "task-2-1"]
    assert found(status="completed") == ["task-1-2"]
    assert found(phase="phase-1", status="pending") == ["task-1-1", "task-1-1-1"]
    assert found(phase="task-1-1") == ["task-1-1", "task-1-1-1"]
    assert found(text="tests") == ["task-1-1", "task-2-1"]
    assert found(text="TASK-2") == ["task-2-1"]
    assert found(owner="bob") == ["task-2-1"]
    desk.refused("TASK_NOT_FOUND", "task", "query", spec_id="plan", phase="phase-7")
    desk.refused("VALIDATION_ERROR", "task", "query", spec_id="plan", status="done")


def test_tasks_come_in_natural_order_with_phases_as_they_stand(desk):
    desk.plan("## One\n" + "- [ ] x\n" * 12 + "## Two\n- [ ] y\n")
    desk.edit(lambda d: d["hierarchy"]["phase-1"]["children"].reverse())
    desk.edit(lambda d: d["hierarchy"]["spec-root"]["children"].reverse())

    order = names(desk.do("task", "query", spec_id="plan")["tasks"])

    assert order == ["task-2-1", *(f"task-1-{number}" for number in range(1, 13))]
    assert desk.do("task", "next", spec_id="plan")["task"]["task_id"] == "task-2-1"


@shows("003.loop.task-query", "003.pagination.next-page")
def test_the_pagination_loop_of_the_document_runs_as_it_stands(desk):
    desk.plan("".join(f"## P{n}\n" + "- [ ] x\n" * 11 for n in range(4)), spec_id="my-feature")

    def task(**arguments):
        return desk.ask("task", **arguments)

    all_tasks = []
    cursor = None
    while True:
        response = task(action="query", spec_id="my-feature", cursor=cursor, limit=7)
        all_tasks.extend(response["data"]["tasks"])
        if not response["meta"]["pagination"]["has_more"]:
            break
        cursor = response["meta"]["pagination"]["cursor"]

    expected = [f"task-{phase}-{number}" for phase in range(1, 5) for number in range(1, 12)]
    assert names(all_tasks) == expected
    whole = task(action="query", spec_id="my-feature", limit=500)
    assert names(whole["data"]["tasks"]) == expected


@pytest.mark.parametrize("action", ["query", "ready"])
def test_tasks_written_between_the_pages_neither_skip_nor_repeat_what_was_there(action, desk):
    desk.plan("".join(f"## P{n}\n" + "- [ ] x\n" * 6 for n in range(3)))
    expected = names(desk.do("task", action, spec_id="plan")["tasks"])
    gone: list[str] = []
    added: list[str] = []
    seen: list[str] = []
    cursor = None
    victims = iter(["task-1-1", "task-1-2", "task-1-6", "task-2-5", "task-2-6", "task-3-2"])

    while True:
        response = desk.ask("task", action, spec_id="plan", limit=2, cursor=cursor)
        assert response["success"], response
        seen += names(response["data"]["tasks"])
        if not response["meta"]["pagination"]["has_more"]:
            break
        cursor = response["meta"]["pagination"]["cursor"]
        parent = f"phase-{len(added) % 3 + 1}"
        added.append(desk.do("task", "add", spec_id="plan", title="new", parent=parent)["task_id"])
        if victim := next(victims, None):
            gone.append(victim)
            desk.do("task", "remove", spec_id="plan", task_id=victim)

    stayed = [task for task in expected if task not in gone]
    assert [task for task in seen if task in stayed] == stayed
    assert len(seen) == len(set(seen))


def test_the_journal_walks_to_the_end_while_others_write(desk):
    desk.plan()
    for number in range(9):
        desk.do("journal", "add", spec_id="plan", content=f"{number}")
    seen, cursor = [], None
    while True:
        response = desk.ask("journal", "list", spec_id="plan", limit=2, cursor=cursor)
        seen += [entry["content"] for entry in response["data"]["entries"]]
        if not response["meta"]["pagination"]["has_more"]:
            break
        cursor = response["meta"]["pagination"]["cursor"]
        if len(seen) < 5:
            desk.do("journal", "add", spec_id="plan", content="new")

    assert seen == [*map(str, range(9)), "new", "new"]


# get


def test_a_task_comes_with_everything_an_agent_needs_to_start(desk):
    desk.plan()
    desk.do(
        "task",
        "update",
        spec_id="plan",
        task_id="task-1-2",
        description="Do it well",
        metadata={"acceptance_criteria": ["it works"], "file_path": "a.py", "files": ["b.py"], "x": 1},
    )
    desk.do("task", "depend", spec_id="plan", task_id="task-1-2", waits_for="task-1-1")
    desk.do("task", "depend", spec_id="plan", task_id="task-2-1", waits_for="task-1-2")
    turn(desk, "complete", note="chose the short way", evidence={"files": ["z.py"], "commit": "abc"})

    task = desk.do("task", "get", spec_id="plan", task_id="task-1-2")["task"]

    assert task["acceptance_criteria"] == ["it works"]
    assert task["files"] == ["a.py", "b.py"]
    assert [(row["task_id"], row["status"]) for row in task["waits_for"]] == [("task-1-1", "completed")]
    assert task["blocked_by"] == []
    assert task["waited_for_by"] == ["task-2-1"]
    assert task["can_start"] is True
    assert task["metadata"]["description"] == "Do it well"
    assert task["metadata"]["x"] == 1
    (entry,) = task["dependency_journal"]
    assert entry["content"] == "chose the short way"
    assert (task["title"], task["parent"], task["phase"]) == ("b", "phase-1", "phase-1")


@shows("000.error-cause.TASK_NOT_FOUND")
def test_a_task_that_is_not_there_says_so_with_the_nearest(desk):
    desk.plan()
    for action, arguments in (("get", {}), ("complete", {}), ("remove", {}), ("move", {"parent": "phase-1"})):
        answer = desk.refused(
            "TASK_NOT_FOUND", "task", action, spec_id="plan", task_id="task-1-3", **arguments
        )
        assert answer["data"]["error_type"] == "not_found"
        assert answer["data"]["details"]["resource_id"] == "task-1-3"
        assert answer["data"]["details"]["nearest"]


# next, ready, progress


def test_next_walks_the_phases_in_order_and_tells_why_nothing_can_start(desk):
    desk.plan("## One\n- [ ] a\n## Two\n- [ ] b\n")
    desk.do("task", "depend", spec_id="plan", task_id="phase-2", waits_for="phase-1")

    def next_task():
        return desk.ask("task", "next", spec_id="plan")

    assert next_task()["data"]["task"]["task_id"] == "task-1-1"
    assert next_task()["data"]["can_start"] is True
    turn(desk, "start")
    under_way = next_task()
    assert (under_way["data"]["task"], under_way["data"]["can_start"]) == (None, False)
    assert under_way["data"]["state"] == "in_progress"
    assert under_way["meta"]["warning_details"][0]["code"] == "TASK_BLOCKED"
    turn(desk, "block")
    assert next_task()["data"]["state"] == "blocked"
    turn(desk, "unblock")
    turn(desk, "complete")
    assert next_task()["data"]["task"]["task_id"] == "task-2-1"
    desk.do("task", "claim", spec_id="plan", owner="me")
    assert next_task()["data"]["state"] == "all_claimed"
    turn(desk, "complete", "task-2-1", owner="me")
    done = next_task()
    assert done["data"]["state"] == "completed"
    assert "warnings" not in done["meta"]
    assert done["data"]["progress"] == {"completed": 2, "total": 2, "percentage": 100}


def test_progress_counts_leaves_only_as_a_whole_and_by_phase(desk):
    desk.plan("## One\n- [ ] a\n  - [ ] a1\n  - [ ] a2\n- [ ] b\n## Two\n- [ ] verify: v\n## Empty\n")
    turn(desk, "complete", "task-1-1-1")
    turn(desk, "start", "task-1-2")

    data = desk.do("task", "progress", spec_id="plan")

    assert data["progress"] == {"completed": 1, "total": 4, "percentage": 25}
    assert data["by_status"] == {"pending": 2, "in_progress": 1, "completed": 1, "blocked": 0}
    assert [(p["id"], p["completed"], p["total"], p["percentage"], p["status"]) for p in data["phases"]] == [
        ("phase-1", 1, 3, 33, "in_progress"),
        ("phase-2", 0, 1, 0, "pending"),
        ("phase-3", 0, 0, 0, "pending"),
    ]
    turn(desk, "complete", "task-1-1-2")
    assert desk.node("task-1-1")["status"] == "completed"


def test_a_phase_without_tasks_is_nothing_to_wait_for(desk):
    desk.plan()
    desk.do("task", "depend", spec_id="plan", task_id="phase-2", waits_for="phase-1")
    for task_id in ("task-1-1", "task-1-2"):
        desk.do("task", "remove", spec_id="plan", task_id=task_id)

    assert desk.do("task", "next", spec_id="plan")["task"]["task_id"] == "task-2-1"
    assert desk.do("task", "complete", spec_id="plan", task_id="task-2-1")["status"] == "completed"


# blocked work


@shows("001.edge-case.blocked-task", "000.edge-case.blocked-task", "003.handling.warnings")
def test_work_that_waits_for_other_work_is_a_success_that_says_so(desk):
    desk.plan()
    desk.do("task", "depend", spec_id="plan", task_id="task-1-2", waits_for="task-1-1")
    before = desk.tree()

    response = desk.ask("task", "start", spec_id="plan", task_id="task-1-2")

    assert response["success"] is True
    assert response["error"] is None
    assert response["data"]["task_id"] == "task-1-2"
    assert response["data"]["blocked_by"] == ["task-1-1"]
    assert response["data"]["can_start"] is False
    said = []
    if response["meta"].get("warnings"):
        said.extend(response["meta"]["warnings"])
    assert said == ["Task blocked by incomplete dependencies"]
    assert response["meta"]["warning_details"][0]["context"]["blocked_by"] == ["task-1-1"]
    assert desk.tree() == before
    claimed = desk.ask("task", "claim", spec_id="plan", task_id="task-1-2", owner="me")
    assert (claimed["data"]["claimed"], claimed["data"]["can_start"]) == (False, False)
    turn(desk, "complete")
    assert turn(desk, "start", "task-1-2")["can_start"] is True


@shows("003.edge-case.blocker")
def test_a_blocked_task_says_its_blocker_and_warns(desk):
    desk.plan()

    answer = desk.ask(
        "task",
        "block",
        spec_id="plan",
        task_id="task-1-1",
        reason="Waiting for API approval",
        kind="decision",
    )

    assert answer["success"]
    assert answer["data"]["status"] == "blocked"
    assert answer["data"]["blocker"] == "Waiting for API approval"
    assert answer["meta"]["warnings"] == ["Task is blocked and cannot proceed"]
    blocker = desk.node("task-1-1")["metadata"]["blocker"]
    assert (blocker["reason"], blocker["kind"], blocker["was"]) == (
        "Waiting for API approval",
        "decision",
        "pending",
    )
    entry = desk.document()["journal"][-1]
    assert entry["metadata"] == {"from": "pending", "to": "blocked", "kind": "decision"}
    assert "Waiting for API approval" in entry["content"]


@pytest.mark.parametrize("was", ["pending", "in_progress"])
def test_a_task_that_is_unblocked_goes_on_where_it_was(was, desk):
    desk.plan()
    for action in WAY[was]:
        turn(desk, action)
    turn(desk, "block")

    assert turn(desk, "unblock")["status"] == was
    assert "blocker" not in desk.node("task-1-1")["metadata"]


# turns


@shows("003.error-cause.INVALID_STATE")
@pytest.mark.parametrize(("status", "action"), list(itertools.product(WAY, TURNS)))
def test_a_turn_is_legal_or_says_which_are(status, action, desk):
    desk.plan()
    for step in WAY[status]:
        turn(desk, step)
    more = {"reason": "x"} if action == "block" else {}

    if action in LEGAL[status]:
        before = desk.document()
        after = turn(desk, action)["status"]
        assert desk.node("task-1-1")["status"] == after
        entry = desk.document()["journal"][-1]
        assert (entry["entry_type"], entry["task_id"]) == ("status_change", "task-1-1")
        assert (entry["metadata"]["from"], entry["metadata"]["to"]) == (status, after)
        assert len(desk.document()["journal"]) == len(before["journal"]) + 1
    else:
        answer = desk.refused("INVALID_STATE", "task", action, spec_id="plan", task_id="task-1-1", **more)
        assert set(answer["data"]["details"]["legal"]) == LEGAL[status]
        assert all(legal in answer["data"]["remediation"] for legal in LEGAL[status])
        assert answer["data"]["details"]["status"] == status


@pytest.mark.parametrize("node", ["phase-1", "spec-root"])
@pytest.mark.parametrize("action", [*TURNS, "claim", "release"])
def test_what_is_no_task_cannot_be_worked_on(action, node, desk):
    desk.plan()
    more = {"owner": "me"} if action in {"claim", "release"} else {"reason": "x"} if action == "block" else {}

    desk.refused("VALIDATION_ERROR", "task", action, spec_id="plan", task_id=node, **more)


@pytest.mark.parametrize("action", ["start", "block", "claim"])
def test_the_state_of_a_task_with_subtasks_is_theirs(action, desk):
    desk.plan("## One\n- [ ] a\n  - [ ] a1\n  - [ ] a2\n")
    more = {"owner": "me"} if action == "claim" else {"reason": "x"} if action == "block" else {}

    answer = desk.refused("INVALID_STATE", "task", action, spec_id="plan", task_id="task-1-1", **more)

    assert answer["data"]["details"]["subtasks"] == ["task-1-1-1", "task-1-1-2"]
    turn(desk, "start", "task-1-1-1")
    assert desk.node("task-1-1")["status"] == "in_progress"
    desk.refused("DEPENDENCY_ERROR", "task", "complete", spec_id="plan", task_id="task-1-1")
    turn(desk, "complete", "task-1-1-1")
    turn(desk, "complete", "task-1-1-2")
    assert desk.node("task-1-1")["status"] == "completed"
    desk.refused("INVALID_STATE", "task", "reset", spec_id="plan", task_id="task-1-1")
    turn(desk, "reset", "task-1-1-1")
    assert desk.node("task-1-1")["status"] == "in_progress"


@shows("003.error-cause.DEPENDENCY_ERROR")
def test_completing_before_what_it_waits_for_is_a_dependency_error(desk):
    desk.plan()
    desk.do("task", "depend", spec_id="plan", task_id="task-1-2", waits_for="task-1-1")
    desk.do("task", "depend", spec_id="plan", task_id="phase-2", waits_for="phase-1")

    answer = desk.refused("DEPENDENCY_ERROR", "task", "complete", spec_id="plan", task_id="task-1-2")
    assert answer["data"]["details"]["blocked_by"] == ["task-1-1"]
    assert "task-1-1" in answer["data"]["remediation"]
    answer = desk.refused("DEPENDENCY_ERROR", "task", "complete", spec_id="plan", task_id="task-2-1")
    assert answer["data"]["details"]["blocked_by"] == ["phase-1"]
    turn(desk, "complete")
    turn(desk, "complete", "task-1-2")
    assert turn(desk, "complete", "task-2-1")["status"] == "completed"


@pytest.mark.parametrize("key", ["commit", "title", "status", "kind", "content", "author", "from", "spec"])
def test_a_completion_keeps_its_note_and_whatever_shows_it(key, desk):
    desk.plan()
    evidence = {"files": ["a.py"], "commands": ["make test"], key: "x"}

    turn(desk, "complete", note="All tests pass", evidence=evidence, owner="ann")

    facts = desk.node("task-1-1")["metadata"]
    assert (facts["completion_note"], facts["evidence"]) == ("All tests pass", evidence)
    entry = desk.document()["journal"][-1]
    assert (entry["content"], entry["author"]) == ("All tests pass", "ann")
    assert entry["metadata"]["to"] == "completed"


def test_a_reset_takes_back_what_was_said_and_keeps_the_journal(desk):
    desk.plan()
    turn(desk, "start", owner="ann")
    turn(desk, "complete", note="done", evidence={"commit": "x"})

    turn(desk, "reset", note="it was not")

    assert desk.node("task-1-1")["status"] == "pending"
    facts = desk.node("task-1-1")["metadata"]
    assert not facts.keys() & {"claim", "evidence", "completed_at", "completion_note", "started_at"}
    assert [entry["metadata"]["to"] for entry in desk.document()["journal"]] == [
        "in_progress",
        "completed",
        "pending",
    ]


def test_what_completed_work_was_built_on_is_not_reset(desk):
    desk.plan()
    desk.do("task", "depend", spec_id="plan", task_id="task-1-2", waits_for="task-1-1")
    turn(desk, "complete")
    turn(desk, "complete", "task-1-2")

    answer = desk.refused("INVALID_STATE", "task", "reset", spec_id="plan", task_id="task-1-1")

    assert answer["data"]["details"]["completed_dependents"] == ["task-1-2"]


def test_what_a_later_phase_was_built_on_is_not_reset(desk):
    desk.plan()
    desk.do("task", "depend", spec_id="plan", task_id="phase-2", waits_for="phase-1")
    for task_id in ("task-1-1", "task-1-2", "task-2-1"):
        turn(desk, "complete", task_id)

    desk.refused("INVALID_STATE", "task", "reset", spec_id="plan", task_id="task-1-1")


# claims


def claim(desk, owner, task_id=None, **arguments):
    return desk.do("task", "claim", spec_id="plan", task_id=task_id, owner=owner, **arguments)


def test_a_claim_keeps_everybody_else_away_and_says_whose_it_is(desk):
    desk.plan()
    held = claim(desk, "ann", "task-1-1", lease_seconds=60)

    assert (held["claimed"], held["owner"], held["task_id"]) == (True, "ann", "task-1-1")
    for action in ("claim", "start", "complete", "block", "release"):
        for owner in ("bob", None):
            if owner is None and action in {"claim", "release"}:
                continue
            more = {"owner": owner} if owner else {}
            more |= {"reason": "x"} if action == "block" else {}
            answer = desk.refused("CONFLICT", "task", action, spec_id="plan", task_id="task-1-1", **more)
            assert answer["data"]["details"]["owner"] == "ann"
            assert answer["data"]["details"]["expires_at"] == held["expires_at"]
            assert "ann" in answer["error"]
    desk.refused("CONFLICT", "task", "remove", spec_id="plan", task_id="task-1-1")
    desk.refused("CONFLICT", "task", "remove", spec_id="plan", task_id="phase-1")
    assert turn(desk, "complete", owner="ann")["status"] == "completed"
    assert "claim" not in desk.node("task-1-1")["metadata"]


def test_a_claim_is_renewed_by_its_owner_and_given_back(desk, clock):
    desk.plan()
    first = claim(desk, "ann", "task-1-1", lease_seconds=60)
    clock.pass_seconds(30)
    again = claim(desk, "ann", "task-1-1", lease_seconds=60)
    assert again["expires_at"] > first["expires_at"]

    released = desk.do("task", "release", spec_id="plan", task_id="task-1-1", owner="ann")

    assert (released["released"], released["status"]) == (True, "pending")
    assert claim(desk, "bob", "task-1-1")["owner"] == "bob"


def test_a_claim_ends_by_itself(desk, clock):
    desk.plan()
    claim(desk, "ann", "task-1-1", lease_seconds=60)
    assert desk.do("task", "next", spec_id="plan")["task"]["task_id"] == "task-1-2"
    clock.pass_seconds(59)
    desk.refused("CONFLICT", "task", "claim", spec_id="plan", task_id="task-1-1", owner="bob")

    clock.pass_seconds(2)

    assert desk.do("task", "next", spec_id="plan")["task"]["task_id"] == "task-1-1"
    assert desk.do("task", "get", spec_id="plan", task_id="task-1-1")["task"]["claim"] is None
    assert claim(desk, "bob")["task_id"] == "task-1-1"


def test_a_task_begun_by_somebody_whose_lease_has_ended_is_offered_again(desk, clock):
    desk.plan()
    claim(desk, "ann", "task-1-1", lease_seconds=60)
    turn(desk, "start", owner="ann")
    assert desk.do("task", "next", spec_id="plan")["task"]["task_id"] == "task-1-2"
    clock.pass_seconds(61)

    assert desk.do("task", "next", spec_id="plan")["task"]["task_id"] == "task-1-1"
    assert claim(desk, "bob")["task_id"] == "task-1-1"
    assert turn(desk, "complete", owner="bob")["status"] == "completed"


@pytest.mark.parametrize("action", ["release", "claim"])
def test_who_takes_over_a_task_can_renew_and_release_it(action, desk, clock):
    desk.plan()
    claim(desk, "ann", "task-1-1", lease_seconds=60)
    turn(desk, "start", owner="ann")
    clock.pass_seconds(61)
    claim(desk, "bob", "task-1-1", lease_seconds=60)

    desk.do("task", action, spec_id="plan", task_id="task-1-1", owner="bob")


def test_a_task_begun_without_a_claim_is_still_somebodys(desk):
    desk.plan()
    turn(desk, "start", owner="ann")

    for action in ("claim", "release"):
        answer = desk.refused("CONFLICT", "task", action, spec_id="plan", task_id="task-1-1", owner="bob")
        assert answer["data"]["details"]["owner"] == "ann"
    released = desk.do("task", "release", spec_id="plan", task_id="task-1-1", owner="ann")
    assert released["status"] == "pending"


def test_what_nobody_holds_is_not_released(desk):
    desk.plan()
    desk.refused("INVALID_STATE", "task", "release", spec_id="plan", task_id="task-1-1", owner="ann")
    turn(desk, "complete")
    desk.refused("INVALID_STATE", "task", "release", spec_id="plan", task_id="task-1-1", owner="ann")
    desk.refused("INVALID_STATE", "task", "claim", spec_id="plan", task_id="task-1-1", owner="ann")


def test_a_task_whose_subtask_is_under_way_is_not_released(desk):
    desk.plan("## One\n- [ ] a\n  - [ ] a1\n")
    turn(desk, "start", "task-1-1-1")

    desk.refused("INVALID_STATE", "task", "release", spec_id="plan", task_id="task-1-1", owner="ann")


def test_claims_are_no_metadata(desk):
    desk.plan()
    for key in ("claim", "blocker", "evidence", "started_at", "completed_at"):
        metadata = {key: {"owner": "x", "expires_at": "9999"}}
        desk.refused("VALIDATION_ERROR", "task", "add", spec_id="plan", title="x", metadata=metadata)
        desk.refused(
            "VALIDATION_ERROR", "task", "update", spec_id="plan", task_id="task-1-1", metadata=metadata
        )


# the shape of a plan


def add(desk, title="new", **arguments):
    return desk.do("task", "add", spec_id="plan", title=title, **arguments)


def test_a_new_node_gets_the_number_of_its_parent_and_the_next_free_one(desk):
    desk.plan()

    assert add(desk, type="phase")["task_id"] == "phase-3"
    assert add(desk, parent="phase-3")["task_id"] == "task-3-1"
    assert add(desk)["task_id"] == "task-3-2"  # the last phase
    assert add(desk, type="subtask", parent="task-3-1")["task_id"] == "task-3-1-1"
    assert add(desk, type="verify", parent="phase-1")["task_id"] == "verify-1-1"
    assert add(desk, type="group", parent="phase-1")["task_id"] == "group-1-1"
    inside = add(desk, parent="group-1-1")["task_id"]
    assert inside == "task-1-1-1"
    assert add(desk, type="subtask", parent="task-1-1")["task_id"] == "task-1-1-2"  # no number twice
    assert desk.do("spec", "validate", spec_id="plan")["errors"] == 0


def test_a_number_is_never_used_again(desk):
    desk.plan()
    desk.do("task", "remove", spec_id="plan", task_id=add(desk, parent="phase-1")["task_id"])

    assert add(desk, parent="phase-1")["task_id"] == "task-1-4"


@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        ("phase", "phase-1"),
        ("group", "task-1-1"),
        ("group", "spec-root"),
        ("task", "spec-root"),
        ("subtask", "phase-1"),
        ("verify", "spec-root"),
    ],
)
def test_each_kind_has_its_place(kind, parent, desk):
    desk.plan()
    answer = desk.refused(
        "VALIDATION_ERROR", "task", "add", spec_id="plan", title="x", type=kind, parent=parent
    )
    assert answer["data"]["details"]["field"] == "parent"


def test_a_completed_task_gets_no_subtasks_and_keeps_its_state(desk):
    desk.plan()
    turn(desk, "complete")

    desk.refused("INVALID_STATE", "task", "add", spec_id="plan", title="x", type="subtask", parent="task-1-1")
    desk.refused("INVALID_STATE", "task", "move", spec_id="plan", task_id="task-1-2", parent="task-1-1")


def test_a_spec_without_phases_says_what_to_do_first(desk):
    desk.plan("")
    desk.refused("INVALID_STATE", "task", "add", spec_id="plan", title="x")


def test_a_task_is_told_apart_from_what_it_says(desk):
    desk.plan()
    desk.do("task", "update", spec_id="plan", task_id="task-1-1", title="A", metadata={"k": 1, "l": 2})
    desk.do("task", "update", spec_id="plan", task_id="task-1-1", description="d", metadata={"k": None})

    node = desk.node("task-1-1")
    assert node["title"] == "A"
    assert node["metadata"] == {"l": 2, "description": "d"}


def test_a_task_moves_with_everything_below_it(desk):
    desk.plan("## One\n- [ ] a\n  - [ ] a1\n- [ ] b\n## Two\n- [ ] c\n")
    turn(desk, "complete", "task-1-1-1")

    desk.do("task", "move", spec_id="plan", task_id="task-1-1", parent="phase-2")

    nodes = desk.document()["hierarchy"]
    assert nodes["task-1-1"]["parent"] == "phase-2"
    assert nodes["phase-2"]["children"] == ["task-2-1", "task-1-1"]
    assert nodes["phase-1"]["children"] == ["task-1-2"]
    assert (nodes["phase-1"]["status"], nodes["phase-2"]["status"]) == ("pending", "in_progress")
    assert (nodes["phase-2"]["completed_tasks"], nodes["phase-2"]["total_tasks"]) == (1, 2)


@pytest.mark.parametrize(
    ("task_id", "parent", "code"),
    [
        ("phase-1", "phase-2", "VALIDATION_ERROR"),
        ("spec-root", "phase-2", "VALIDATION_ERROR"),
        ("task-1-1", "spec-root", "VALIDATION_ERROR"),
        ("task-1-1", "task-1-1", "CONFLICT"),
        ("task-1-1", "task-1-1-1", "CONFLICT"),
        ("group-1-1", "task-1-2", "VALIDATION_ERROR"),
        ("task-1-2", "verify-1-1", "VALIDATION_ERROR"),
    ],
)
def test_a_move_that_makes_no_sense_is_refused(task_id, parent, code, desk):
    desk.plan("## One\n- [ ] a\n  - [ ] a1\n- [ ] b\n- [ ] verify: v\n## Two\n- [ ] c\n")
    add(desk, type="group", parent="phase-1")

    desk.refused(code, "task", "move", spec_id="plan", task_id=task_id, parent=parent)


def test_removing_takes_everything_below_and_every_edge_with_it(desk):
    desk.plan("## One\n- [ ] a\n  - [ ] a1\n- [ ] b\n## Two\n- [ ] c\n")
    for waiting, blocker in (("task-1-2", "task-1-1"), ("task-2-1", "task-1-1-1"), ("phase-2", "phase-1")):
        desk.do("task", "depend", spec_id="plan", task_id=waiting, waits_for=blocker)

    gone = desk.do("task", "remove", spec_id="plan", task_id="task-1-1")["removed"]

    assert gone == ["task-1-1", "task-1-1-1"]
    document = desk.document()
    assert not set(gone) & document["hierarchy"].keys()
    for node in document["hierarchy"].values():
        assert not set(gone) & {*node["children"], *itertools.chain(*node["dependencies"].values())}
    assert document["hierarchy"]["phase-2"]["dependencies"]["blocked_by"] == ["phase-1"]
    assert document["journal"][-1]["metadata"]["removed"] == gone
    desk.refused("VALIDATION_ERROR", "task", "remove", spec_id="plan", task_id="spec-root")


# edges and circles


def depend(desk, task_id, waits_for, **arguments):
    return desk.do("task", "depend", spec_id="plan", task_id=task_id, waits_for=waits_for, **arguments)


@shows("000.error-cause.DUPLICATE_ENTRY")
def test_an_edge_is_said_on_both_sides_once_and_can_be_taken_away(desk):
    desk.plan()

    assert depend(desk, "task-1-2", "task-1-1")["blocked_by"] == ["task-1-1"]
    assert desk.node("task-1-1")["dependencies"]["blocks"] == ["task-1-2"]
    answer = desk.refused(
        "DUPLICATE_ENTRY", "task", "depend", spec_id="plan", task_id="task-1-2", waits_for="task-1-1"
    )
    assert answer["data"]["error_type"] == "conflict"

    assert depend(desk, "task-1-2", "task-1-1", remove=True)["blocked_by"] == []
    assert desk.node("task-1-1")["dependencies"]["blocks"] == []
    desk.refused(
        "NOT_FOUND", "task", "depend", spec_id="plan", task_id="task-1-2", waits_for="task-1-1", remove=True
    )


CIRCLES = {
    "itself": ([], "task-1-1", "task-1-1"),
    "two tasks": ([("task-1-1", "task-1-2")], "task-1-2", "task-1-1"),
    "three tasks": ([("task-1-1", "task-1-2"), ("task-1-2", "task-2-1")], "task-2-1", "task-1-1"),
    "its own phase": ([], "task-1-1", "phase-1"),
    "the root": ([], "task-1-1", "spec-root"),
    "a phase for its own task": ([], "phase-1", "task-1-1"),
    "the root for a task": ([], "spec-root", "task-1-1"),
    "two phases": ([("phase-1", "phase-2")], "phase-2", "phase-1"),
    "a task of the first for the second": ([("phase-2", "phase-1")], "task-1-1", "phase-2"),
    "a task of the first for one of the second": ([("phase-2", "phase-1")], "task-1-1", "task-2-1"),
    "a phase for a phase whose task waits": ([("task-1-1", "task-2-1")], "phase-2", "phase-1"),
    "a phase for a task": ([("task-1-1", "phase-2")], "phase-2", "task-1-1"),
    "a subtask for its task": ([], "task-1-1-1", "task-1-1"),
    "a task for its subtask": ([], "task-1-1", "task-1-1-1"),
}


@pytest.mark.parametrize("name", CIRCLES)
def test_an_edge_that_closes_a_circle_is_refused(name, desk):
    desk.plan("## One\n- [ ] a\n  - [ ] a1\n- [ ] b\n## Two\n- [ ] c\n- [ ] d\n")
    before, waiting, blocker = CIRCLES[name]
    for here, there in before:
        depend(desk, here, there)

    answer = desk.refused("CONFLICT", "task", "depend", spec_id="plan", task_id=waiting, waits_for=blocker)

    assert answer["data"]["details"]["cycle"]
    assert waiting in answer["data"]["details"]["cycle"]
    assert desk.do("spec", "analyze", spec_id="plan")["cycles"] == []


@pytest.mark.parametrize(
    ("before", "parent", "blocker"),
    [
        ([], "phase-1", "phase-1"),
        ([], "phase-1", "spec-root"),
        ([("phase-2", "phase-1")], "phase-1", "phase-2"),
        ([("phase-2", "phase-1")], "phase-1", "task-2-1"),
        ([("task-2-1", "phase-1")], "phase-1", "task-2-1"),
        ([("task-2-1", "task-1-1")], "task-1-1", "task-2-1"),
        ([], "task-1-1", "task-1-1"),
    ],
)
def test_a_new_task_that_would_wait_for_itself_is_refused(before, parent, blocker, desk):
    desk.plan()
    for here, there in before:
        depend(desk, here, there)
    kind = "subtask" if parent.startswith("task") else "task"

    desk.refused(
        "CONFLICT", "task", "add", spec_id="plan", title="x", type=kind, parent=parent, blocked_by=[blocker]
    )


@pytest.mark.parametrize(
    ("before", "parent"),
    [
        ([("phase-2", "phase-1"), ("task-1-1", "task-1-2")], "phase-2"),
        ([("task-1-2", "phase-2")], "phase-2"),
        ([("phase-2", "task-1-2")], "phase-2"),
        ([("task-2-1", "task-1-2")], "task-2-1"),
    ],
)
def test_a_move_that_would_close_a_circle_is_refused(before, parent, desk):
    desk.plan()
    for here, there in before:
        depend(desk, here, there)
    arguments = {"task_id": "task-1-2", "parent": parent}

    desk.refused("CONFLICT", "task", "move", spec_id="plan", **arguments)
    data = desk.do("task", "batch", spec_id="plan", partial=True, changes=[{"action": "move", **arguments}])
    assert data["processed"] == 0
    assert data["revision"] == len(before) + 1  # a refused change leaves nothing behind


def test_edges_that_only_look_like_a_circle_are_taken(desk):
    desk.plan("## One\n- [ ] a\n- [ ] b\n## Two\n- [ ] c\n- [ ] d\n")
    for waiting, blocker in (
        ("phase-2", "phase-1"),
        ("task-2-2", "task-2-1"),
        ("task-2-1", "task-1-2"),
        ("task-1-2", "task-1-1"),
        ("task-2-2", "task-1-1"),
    ):
        depend(desk, waiting, blocker)

    assert names(desk.do("task", "ready", spec_id="plan")["tasks"]) == ["task-1-1"]


# batch


@shows("003.edge-case.partial-batch", "000.edge-case.partial-batch", "000.warning-cause.PARTIAL_FAILURE")
def test_a_batch_that_fails_in_part_keeps_what_succeeded_and_tells_the_rest(desk):
    desk.plan()
    depend(desk, "task-1-2", "task-2-2")
    changes = [
        {"action": "complete", "task_id": "task-1-1"},
        {"action": "complete", "task_id": "task-1-2"},
        {"action": "complete", "task_id": "task-9-9"},
        {"action": "add", "title": "new", "parent": "phase-2"},
        {"action": "claim", "owner": "me", "task_id": "task-2-1"},
    ]

    answer = desk.ask("task", "batch", spec_id="plan", changes=changes, partial=True)

    assert answer["success"] is True
    data = answer["data"]
    assert (data["processed"], data["failed"]) == (3, 2)
    assert [(f["change"], f["task_id"], f["error_code"]) for f in data["failures"]] == [
        (1, "task-1-2", "DEPENDENCY_ERROR"),
        (2, "task-9-9", "TASK_NOT_FOUND"),
    ]
    assert all(failure["error"] for failure in data["failures"])
    assert [row["task_id"] for row in data["results"]] == ["task-1-1", "task-2-3", "task-2-1"]
    (said,) = answer["meta"]["warning_details"]
    assert said["code"] == "PARTIAL_FAILURE"
    assert answer["meta"]["warnings"] == ["2 of 5 changes failed"]
    assert data["revision"] == 3 == desk.document()["revision"]
    assert desk.node("task-1-1")["status"] == "completed"


def test_a_batch_is_all_or_nothing_unless_told_otherwise(desk):
    desk.plan()
    changes = [
        {"action": "complete", "task_id": "task-1-1"},
        {"action": "add", "title": "x"},
        {"action": "complete", "task_id": "task-1-1"},
    ]

    answer = desk.refused("INVALID_STATE", "task", "batch", spec_id="plan", changes=changes)

    assert answer["data"]["details"]["change"] == 2
    data = desk.do("task", "batch", spec_id="plan", changes=changes[:2])
    assert (data["processed"], data["failed"], data["revision"]) == (2, 0, 2)
    assert "failures" not in data


def test_each_change_of_a_batch_sees_the_ones_before_it(desk):
    desk.plan()
    depend(desk, "task-1-2", "task-1-1")
    changes = [
        {"action": "complete", "task_id": "task-1-1"},
        {"action": "complete", "task_id": "task-1-2"},
        {"action": "add", "title": "x", "type": "phase"},
        {"action": "add", "title": "y", "parent": "phase-3"},
        {"action": "depend", "task_id": "task-3-1", "waits_for": "task-1-2"},
        {"action": "complete", "task_id": "task-3-1"},
    ]

    data = desk.do("task", "batch", spec_id="plan", changes=changes)

    assert data["processed"] == 6
    assert data["progress"] == {"completed": 3, "total": 5, "percentage": 60}
    assert desk.do("spec", "validate", spec_id="plan")["findings"] == []


def test_what_is_ready_after_a_batch_is_seen_by_everybody_at_once(desk):
    desk.plan("## One\n- [ ] a\n- [ ] b\n")
    depend(desk, "task-1-2", "task-1-1")
    turn(desk, "start")
    changes = [{"action": "claim", "owner": "me"}, {"action": "complete", "task_id": "task-1-1"}]

    desk.do("task", "batch", spec_id="plan", changes=changes)

    assert names(desk.do("task", "ready", spec_id="plan")["tasks"]) == ["task-1-2"]
    assert desk.again().do("task", "ready", spec_id="plan") == desk.do("task", "ready", spec_id="plan")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"action": "query"}, "VALIDATION_ERROR"),
        ({"action": "batch", "changes": []}, "VALIDATION_ERROR"),
        ({}, "VALIDATION_ERROR"),
        ({"action": "complete"}, "MISSING_REQUIRED"),
        ({"action": "complete", "task_id": "task-1-1", "nonsense": 1}, "VALIDATION_ERROR"),
        ({"action": "complete", "task_id": "task-1-1", "spec_id": "other"}, "VALIDATION_ERROR"),
        ({"action": "complete", "task_id": "task-1-1", "dry_run": True}, "VALIDATION_ERROR"),
        ({"action": "complete", "task_id": "task-1-1", "idempotency_key": "k"}, "VALIDATION_ERROR"),
        ({"action": "complete", "task_id": 7}, "INVALID_FORMAT"),
        ({"action": ["complete"]}, "VALIDATION_ERROR"),
    ],
)
def test_a_change_that_is_none_is_refused_before_anything_is_written(change, code, desk):
    desk.plan()
    good = {"action": "complete", "task_id": "task-1-1"}
    for partial in (True, False):
        desk.refused(code, "task", "batch", spec_id="plan", changes=[good, change], partial=partial)


def test_a_batch_can_be_shown_first_and_is_bounded(desk):
    desk.plan()
    changes = [{"action": "complete", "task_id": "task-1-1"}]
    before = desk.tree()

    data = desk.do("task", "batch", spec_id="plan", changes=changes, dry_run=True)

    assert "hierarchy/task-1-1/status" in [change["path"] for change in data["changes"]]
    assert desk.tree() == before
    desk.refused("VALIDATION_ERROR", "task", "batch", spec_id="plan", changes=[])
    desk.refused("VALIDATION_ERROR", "task", "batch", spec_id="plan", changes=changes * 501)


# journal


def test_entries_are_found_by_task_kind_author_and_time(desk, clock):
    desk.plan()
    desk.do("journal", "add", spec_id="plan", content="Chose SQLite\nbecause", kind="decision", author="ann")
    clock.pass_seconds(60)
    desk.do("journal", "add", spec_id="plan", content="x", title="T", task_id="task-1-1")
    turn(desk, "complete")

    def found(**arguments):
        return [
            entry["title"] for entry in desk.do("journal", "list", spec_id="plan", **arguments)["entries"]
        ]

    assert found() == ["Chose SQLite", "T", "a: pending → completed"]
    assert found(kind="decision") == ["Chose SQLite"]
    assert found(author="ann") == ["Chose SQLite"]
    assert found(task_id="task-1-1") == ["T", "a: pending → completed"]
    assert found(task_id="task-1-1", kind="note") == ["T"]
    assert found(since="2030-01-01T12:00:30") == ["T", "a: pending → completed"]
    assert found(since="2031-01-01") == []
    desk.refused("TASK_NOT_FOUND", "journal", "add", spec_id="plan", content="x", task_id="task-9-9")
    desk.refused("VALIDATION_ERROR", "journal", "add", spec_id="plan", content="")
    desk.refused("VALIDATION_ERROR", "journal", "add", spec_id="plan", content="x", kind="gossip")


def test_an_entry_comes_back_as_it_was_written(desk):
    desk.plan()
    text = 'Zeile 1\n\ttab "quoted" \\ \x00 𝄞 \u2028 end'

    entry = desk.do("journal", "add", spec_id="plan", content=text)["entry"]

    assert entry["content"] == text
    assert desk.document()["journal"] == [entry]
    assert desk.again().do("journal", "list", spec_id="plan")["entries"] == [entry]
