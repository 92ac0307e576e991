"""Several processes at one plan: nobody's work is lost, and nothing is handed out twice."""

import os

import pytest

from foundry_mcp.core.specs.store import LOCK_SECONDS

ROUNDS = 50 if os.environ.get("FOUNDRY_SOAK") == "1" else 5
PADDING = "".join(f"- [ ] later {number}\n" for number in range(40))
"""Makes the file large enough that a write takes a while, so that writes without a lock would meet."""


def eight_tasks(desk):
    desk.plan("## Now\n" + "".join(f"- [ ] {number}\n" for number in range(8)) + "## Later\n" + PADDING)
    return [f"task-1-{number}" for number in range(1, 9)]


def all_at_once(workers, desk, calls):
    """Send every call before any answer is read."""
    for worker, (tool, arguments) in zip(workers, calls, strict=True):
        worker.send(desk, call=[tool, arguments])
    return [worker.receive()["answer"] for worker in workers]


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_eight_processes_complete_eight_tasks_and_every_one_is_there(desk, eight, round_number):
    tasks = eight_tasks(desk)

    answers = all_at_once(
        eight,
        desk,
        [("task", {"action": "complete", "spec_id": "plan", "task_id": task}) for task in tasks],
    )

    assert all(answer["success"] for answer in answers), answers
    document = desk.document()
    assert [document["hierarchy"][task]["status"] for task in tasks] == ["completed"] * 8
    assert document["revision"] == 1 + 8
    assert sorted(answer["data"]["revision"] for answer in answers) == list(range(2, 10))
    assert sorted(entry["task_id"] for entry in document["journal"]) == tasks
    assert document["hierarchy"]["phase-1"]["status"] == "completed"
    assert document["hierarchy"]["spec-root"]["completed_tasks"] == 8
    assert desk.store.revisions("plan") == list(range(1, 9))
    assert desk.do("spec", "validate", spec_id="plan")["findings"] == []


def test_many_small_writes_of_eight_processes_are_all_counted(desk, eight):
    desk.plan()

    for turn in range(6):
        answers = all_at_once(
            eight,
            desk,
            [
                ("journal", {"action": "add", "spec_id": "plan", "content": f"{turn}-{number}"})
                for number in range(8)
            ],
        )
        assert all(answer["success"] for answer in answers)

    entries = [entry["content"] for entry in desk.document()["journal"]]
    assert sorted(entries) == sorted(f"{turn}-{number}" for turn in range(6) for number in range(8))
    assert desk.document()["revision"] == 1 + 48


def test_eight_agents_claiming_get_eight_different_tasks(desk, eight):
    tasks = eight_tasks(desk)
    desk.do("task", "depend", spec_id="plan", task_id="phase-2", waits_for="phase-1")

    answers = all_at_once(
        eight,
        desk,
        [("task", {"action": "claim", "spec_id": "plan", "owner": f"agent-{n}"}) for n in range(8)],
    )

    assert sorted(answer["data"]["task_id"] for answer in answers) == tasks
    owners = {desk.node(task)["metadata"]["claim"]["owner"] for task in tasks}
    assert owners == {f"agent-{n}" for n in range(8)}
    late = desk.ask("task", "claim", spec_id="plan", owner="late")
    assert late["success"]
    assert late["data"]["claimed"] is False
    assert late["meta"]["warning_details"][0]["code"] == "TASK_BLOCKED"


@pytest.mark.requirement("000.error-cause.CONFLICT")
def test_of_eight_agents_claiming_one_task_one_wins_and_seven_hear_who(desk, eight):
    eight_tasks(desk)

    answers = all_at_once(
        eight,
        desk,
        [
            (
                "task",
                {"action": "claim", "spec_id": "plan", "task_id": "task-1-3", "owner": f"agent-{number}"},
            )
            for number in range(8)
        ],
    )

    won = [answer for answer in answers if answer["success"]]
    lost = [answer for answer in answers if not answer["success"]]
    assert len(won) == 1
    winner = won[0]["data"]["owner"]
    assert desk.node("task-1-3")["metadata"]["claim"]["owner"] == winner
    assert desk.document()["revision"] == 2
    for answer in lost:
        assert answer["data"]["error_code"] == "CONFLICT"
        assert answer["data"]["details"]["owner"] == winner
        assert answer["data"]["effect"] == "none"
        assert winner in answer["error"]


def test_eight_processes_creating_the_same_title_get_eight_ids(desk, eight):
    answers = all_at_once(eight, desk, [("spec", {"action": "create", "title": "Same"})] * 8)

    assert len({answer["data"]["spec_id"] for answer in answers}) == 8
    assert len(list((desk.specs / "pending").glob("*.json"))) == 8


def test_of_eight_processes_moving_a_spec_one_moves_it(desk, eight):
    desk.plan()

    answers = all_at_once(eight, desk, [("spec", {"action": "activate", "spec_id": "plan"})] * 8)

    assert sorted(answer["data"].get("error_code", "") for answer in answers) == ["", *["INVALID_STATE"] * 7]
    assert desk.file().parent.name == "active"
    assert desk.document()["revision"] == 2


def test_one_key_used_by_eight_processes_writes_once(desk, eight):
    desk.plan()
    call = ("journal", {"action": "add", "spec_id": "plan", "content": "once", "idempotency_key": "k"})

    answers = all_at_once(eight, desk, [call] * 8)

    assert len(desk.document()["journal"]) == 1
    codes = {answer["data"].get("error_code") for answer in answers}
    assert codes <= {None, "CONFLICT"}  # the first, its replays, and whoever came while it was under way
    assert eight[0].ask(desk, call[0], **call[1])["meta"]["replayed"] is True


def test_readers_beside_writers_always_see_a_whole_plan(desk, eight):
    tasks = eight_tasks(desk)
    writers, readers = eight[:4], eight[4:]
    for worker, task in zip(writers, tasks, strict=False):
        for action in ("start", "complete", "reset", "complete"):
            worker.send(desk, call=["task", {"action": action, "spec_id": "plan", "task_id": task}])
    for worker in readers:
        for _ in range(20):
            worker.send(desk, call=["spec", {"action": "get", "spec_id": "plan"}])

    seen = [[worker.receive()["answer"] for _ in range(20)] for worker in readers]
    written = [worker.receive()["answer"]["success"] for worker in writers for _ in range(4)]

    assert written == [True] * 16
    for answers in seen:
        assert all(answer["success"] for answer in answers)
        revisions = [answer["data"]["spec"]["revision"] for answer in answers]
        assert revisions == sorted(revisions)
        for answer in answers:
            nodes = answer["data"]["hierarchy"]
            done = sum(node["status"] == "completed" for name, node in nodes.items() if name in tasks)
            assert nodes["spec-root"]["completed_tasks"] == done


def test_a_killed_holder_of_the_lock_blocks_nobody(desk, start_worker, monkeypatch):
    desk.plan()
    holder = start_worker()
    holder.send(desk, hold="plan")
    assert holder.receive() == {"held": True}
    monkeypatch.setattr("foundry_mcp.core.specs.store.LOCK_SECONDS", 0.0)
    waiting = desk.ask("task", "complete", spec_id="plan", task_id="task-1-1")
    assert waiting["data"]["error_code"] == "UNAVAILABLE"
    assert waiting["data"]["retry_after_seconds"] > 0
    assert waiting["data"]["retryable"] is True

    holder.kill()

    # It may wait no longer than a second, where a living holder would be given ten.
    monkeypatch.setattr("foundry_mcp.core.specs.store.LOCK_SECONDS", 1.0)
    assert LOCK_SECONDS > 1.0
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")


def test_a_held_lock_stops_neither_readers_nor_writers_of_other_specs(desk, start_worker, monkeypatch):
    desk.plan()
    desk.plan(spec_id="other")
    holder = start_worker()
    holder.send(desk, hold="plan")
    assert holder.receive() == {"held": True}
    monkeypatch.setattr("foundry_mcp.core.specs.store.LOCK_SECONDS", 0.0)

    assert desk.do("spec", "get", spec_id="plan")["spec"]["title"] == "Plan"
    assert desk.do("task", "complete", spec_id="other", task_id="task-1-1")["status"] == "completed"


def test_a_write_that_had_to_wait_too_long_did_nothing_and_can_be_repeated(desk, start_worker, monkeypatch):
    desk.plan()
    holder = start_worker()
    holder.send(desk, hold="plan")
    assert holder.receive() == {"held": True}
    monkeypatch.setattr("foundry_mcp.core.specs.store.LOCK_SECONDS", 0.0)
    write = {"spec_id": "plan", "task_id": "task-1-1", "idempotency_key": "k"}

    desk.refused("UNAVAILABLE", "task", "complete", **write)
    holder.kill()

    assert desk.do("task", "complete", **write)["status"] == "completed"
