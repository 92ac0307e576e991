"""What a crash, a full disk or a broken one leaves, at every system call of a write."""

import errno
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from foundry_mcp.core.disk import disk

CALLS = ("open", "write", "fsync", "link", "rename", "unlink", "close")
FAILURES = {"ENOSPC": "UNAVAILABLE", "EIO": "INTERNAL_ERROR", "EACCES": "FORBIDDEN", "EROFS": "FORBIDDEN"}


class Deed(NamedTuple):
    """A write, and what is to be seen on disk once it is done."""

    tool: str
    arguments: dict[str, Any]
    revision: int
    folder: str = "pending"
    again: bool = False
    """Whether it can be done a second time as it stands."""


DEEDS = {
    "write": Deed("task", {"action": "complete", "spec_id": "plan", "task_id": "task-1-1"}, 4),
    "create": Deed("spec", {"action": "create", "title": "New", "spec_id": "new"}, 1),
    "move": Deed("spec", {"action": "activate", "spec_id": "plan"}, 4, folder="active"),
    "rollback": Deed("spec", {"action": "rollback", "spec_id": "plan", "revision": 1}, 4, again=True),
}


@pytest.fixture
def prepared(make_desk):
    """A plan at revision 3, with two more in its history."""
    desk = make_desk("prepared")
    desk.plan()
    desk.do("journal", "add", spec_id="plan", content="one")
    desk.do("journal", "add", spec_id="plan", content="two")
    return desk


def state(desk, spec_id):
    """Folder and revision, after a look that there is one whole file or none."""
    found = desk.files(spec_id)
    assert len(found) <= 1, f"in two folders: {found}"
    if not found:
        return None
    document = json.loads(found[0].read_bytes())
    return found[0].parent.name, document["revision"]


def strays(desk):
    return [path for path in desk.specs.rglob("*") if path.is_file() and path.suffix != ".json"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", DEEDS)
def test_a_process_killed_at_any_system_call_leaves_the_old_file_or_the_new_one(
    name, when, prepared, copy_of, worker
):
    deed = DEEDS[name]
    spec_id = deed.arguments["spec_id"]
    whole = copy_of(prepared)
    steps = worker.apart(whole, (deed.tool, deed.arguments))["steps"]
    old, new = state(prepared, spec_id), state(whole, spec_id)
    assert new == (deed.folder, deed.revision)
    assert {"open", "write", "fsync", "rename", "close"} <= set(steps)
    allowed = {old, new}
    if name == "move":
        allowed.add(("pending", deed.revision))  # written, not yet moved: the next try moves it
    seen = set()

    for number in range(len(steps)):
        desk = copy_of(prepared)
        fallen = worker.apart(desk, (deed.tool, deed.arguments), step=number, when=when)
        assert fallen["signal"] == 9, (number, fallen)
        left = state(desk, spec_id)
        seen.add(left)
        assert left in allowed, (number, steps[number], left)

        # Whoever comes next finds no lock, no torn file and a way on, and leaves nothing lying about.
        read = worker.ask(desk, "spec", "history", spec_id="plan")
        assert read["success"], (number, read)
        if left == old and name == "create":
            follow = worker.ask(desk, deed.tool, **deed.arguments)
        else:
            follow = worker.ask(desk, "journal", "add", spec_id=spec_id, content="next")
        assert follow["success"], (number, follow)
        assert strays(desk) == [], (number, steps[number])
        assert worker.ask(desk, "spec", "validate", spec_id=spec_id)["data"]["valid"]
        for kept in worker.ask(desk, "spec", "history", spec_id=spec_id)["data"]["revisions"]:
            back = {"spec_id": spec_id, "from_revision": kept["revision"], "to_revision": kept["revision"]}
            assert worker.ask(desk, "spec", "diff", **back)["data"]["total_count"] == 0

    assert {old, new} <= seen or when == "before", "no kill came after the file was in place"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_claim_killed_at_any_system_call_never_gives_a_task_to_two(when, prepared, copy_of, worker):
    claim = ("task", {"action": "claim", "spec_id": "plan", "task_id": "task-1-1", "owner": "dead"})
    steps = worker.apart(copy_of(prepared), claim)["steps"]

    for number in range(len(steps)):
        desk = copy_of(prepared)
        worker.apart(desk, claim, step=number, when=when)
        was = desk.node("task-1-1")["metadata"].get("claim")
        answer = worker.ask(desk, "task", "claim", spec_id="plan", task_id="task-1-1", owner="alive")
        if was:
            assert answer["data"]["error_code"] == "CONFLICT"
            assert answer["data"]["details"]["owner"] == "dead"
        else:
            assert answer["data"]["claimed"] is True


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_write_with_a_key_killed_at_any_system_call_is_never_done_twice(when, prepared, copy_of, worker):
    write = ("journal", {"action": "add", "spec_id": "plan", "content": "once", "idempotency_key": "k"})
    steps = worker.apart(copy_of(prepared), write)["steps"]
    outcomes = set()

    for number in range(len(steps)):
        desk = copy_of(prepared)
        worker.apart(desk, write, step=number, when=when)
        tool, arguments = write
        again = worker.ask(desk, tool, **arguments)
        done = [entry["content"] for entry in desk.document()["journal"]].count("once")
        assert done <= 1, (number, steps[number])
        if again["success"]:
            assert done == 1
            outcomes.add("replayed" if "replayed" in again["meta"] else "done")
        else:  # nobody knows whether the first one got that far, and the answer says so
            assert again["data"]["error_code"] == "CONFLICT"
            assert again["data"]["effect"] == "unknown"
            outcomes.add("unknown")

    assert outcomes == {"done", "replayed", "unknown"} or when == "before"


class Fault:
    """Count the calls of the disk; fail the one whose number is chosen."""

    def __init__(self, monkeypatch):
        self.steps: list[str] = []
        self.fail_at: int | None = None
        self.errno = errno.EIO
        for name in CALLS:
            monkeypatch.setattr(disk, name, self._wrapped(name, getattr(disk, name)))

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            number = len(self.steps)
            self.steps.append(name)
            if number == self.fail_at:
                if name == "close":
                    real(*arguments, **named)  # a close that fails has closed all the same
                raise OSError(self.errno, os.strerror(self.errno))
            return real(*arguments, **named)

        return call

    def arm(self, number: int | None, error: str = "EIO") -> None:
        self.steps, self.fail_at = [], number
        self.errno = getattr(errno, error)


@pytest.fixture
def fault(monkeypatch):
    return Fault(monkeypatch)


def open_files():
    return len(os.listdir("/proc/self/fd"))


def steps_of(deed, desk, fault):
    fault.arm(None)
    desk.do(deed.tool, **deed.arguments)
    return list(fault.steps)


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize("name", DEEDS)
def test_an_error_of_the_disk_at_any_system_call_is_a_typed_answer_that_says_what_happened(
    name, error, prepared, copy_of, fault
):
    deed = DEEDS[name]
    spec_id = deed.arguments["spec_id"]
    steps = steps_of(deed, copy_of(prepared), fault)
    effects = set()

    for number, step in enumerate(steps):
        if step not in {"open", "write", "fsync", "link", "rename"}:
            continue
        fault.arm(None)
        desk = copy_of(prepared)
        before, handles, was = desk.tree(), open_files(), state(desk, spec_id)
        fault.arm(number, error)
        answer = desk.ask(deed.tool, **deed.arguments)
        place = (number, step, answer)

        assert open_files() == handles, place
        if answer["success"]:  # it was only asked for names to suggest
            assert (name, step) == ("create", "open"), place
            assert state(desk, spec_id) == (deed.folder, deed.revision), place
            continue
        assert answer["data"]["error_code"] == FAILURES[error], place
        assert answer["data"]["details"]["reason"] == os.strerror(getattr(errno, error)), place
        assert str(desk.workspace) not in json.dumps(answer), place
        effect = answer["data"]["effect"]
        effects.add(effect)
        assert (effect == "none") == (desk.tree() == before), place
        assert "rename" in steps[:number] or effect == "none", place

        # The answer of this very process agrees with the disk, and the next write works.
        fault.arm(None)
        now = state(desk, spec_id)
        assert now is not None or was is None, place
        if now is not None:
            told = desk.do("spec", "get", spec_id=spec_id)["spec"]
            assert (told["status"], told["revision"]) == now, place
            desk.do("journal", "add", spec_id=spec_id, content="next")
        else:
            desk.do(deed.tool, **deed.arguments)
        assert strays(desk) == [], place

    assert effects == {"none", "applied"} | ({"unknown"} if name == "move" else set())


@pytest.mark.parametrize("name", DEEDS)
def test_a_close_that_fails_after_the_file_is_in_place_does_not_say_that_nothing_happened(
    name, prepared, copy_of, fault
):
    deed = DEEDS[name]
    steps = steps_of(deed, copy_of(prepared), fault)

    for number, step in enumerate(steps):
        if step == "close":
            fault.arm(None)
            desk = copy_of(prepared)
            before = desk.tree()
            fault.arm(number)
            answer = desk.ask(deed.tool, **deed.arguments)
            changed = desk.tree() != before
            assert answer["success"] or not changed or answer["data"]["effect"] != "none", (number, answer)


@pytest.mark.parametrize("error", FAILURES)
def test_an_error_of_the_disk_during_a_write_with_a_key_is_typed_too(error, prepared, copy_of, fault):
    write = Deed(
        "journal", {"action": "add", "spec_id": "plan", "content": "once", "idempotency_key": "k"}, 4
    )
    steps = steps_of(write, copy_of(prepared), fault)

    for number, step in enumerate(steps):
        if step in {"open", "write", "fsync", "link", "rename"}:
            fault.arm(None)
            desk = copy_of(prepared)
            before = desk.tree()
            fault.arm(number, error)
            answer = desk.ask(write.tool, **write.arguments)
            fault.arm(None)
            assert answer["success"] or answer["data"]["error_code"] == FAILURES[error], (number, answer)
            unchanged = desk.tree() == before
            assert answer["success"] != unchanged or (answer["data"]["effect"] == "none") == unchanged


@pytest.mark.parametrize("name", DEEDS)
def test_short_writes_lose_nothing(name, prepared, copy_of, monkeypatch):
    deed = DEEDS[name]
    desk = copy_of(prepared)
    monkeypatch.setattr(disk, "write", lambda file, content: os.write(file, bytes(content[:7])))

    desk.do(deed.tool, **deed.arguments)

    assert state(desk, deed.arguments["spec_id"]) == (deed.folder, deed.revision)
    raw = desk.file(deed.arguments["spec_id"]).read_bytes()
    assert raw == (json.dumps(json.loads(raw), indent=2, ensure_ascii=False) + "\n").encode()


def test_a_disk_that_fills_up_in_the_middle_of_the_file_leaves_the_old_one(prepared, monkeypatch):
    def fill_up(file, content):
        if len(content) < 1000:
            raise OSError(errno.ENOSPC, "full")
        return os.write(file, bytes(content[:100]))

    before = prepared.tree()
    monkeypatch.setattr(disk, "write", fill_up)

    answer = prepared.refused("UNAVAILABLE", "task", "complete", spec_id="plan", task_id="task-1-1")

    assert prepared.tree() == before  # the unfinished file included: what could be removed was
    assert "space" in answer["data"]["remediation"]
    assert answer["data"]["retryable"] is True


def test_every_byte_is_on_disk_before_the_name_points_to_it(prepared, fault):
    """File, then name, then folder: in any other order power could fail between and leave neither."""
    steps = steps_of(DEEDS["write"], prepared, fault)

    tail = steps[steps.index("link") :]
    order = [step for step in tail if step in {"link", "write", "fsync", "rename"}]

    assert order == ["link", "write", "fsync", "rename", "fsync"]


@pytest.mark.parametrize("error", ["EPERM", "EMLINK", "ENOTSUP", "EXDEV"])
def test_a_file_system_without_hard_links_keeps_its_history_too(error, prepared, monkeypatch):
    def refuse(*_, **__):
        raise OSError(getattr(errno, error), "no links here")

    monkeypatch.setattr(disk, "link", refuse)

    prepared.do("task", "complete", spec_id="plan", task_id="task-1-1")

    assert prepared.store.revisions("plan") == [1, 2, 3]
    assert prepared.do("spec", "rollback", spec_id="plan", revision=3)["revision"] == 5


@pytest.mark.skipif(os.geteuid() == 0, reason="modes do not bind root")
def test_a_folder_that_may_not_be_written_is_forbidden_and_can_still_be_read(prepared):
    folder = prepared.specs / "pending"
    folder.chmod(0o555)
    try:
        prepared.refused("FORBIDDEN", "task", "complete", spec_id="plan", task_id="task-1-1")
        assert prepared.do("spec", "get", spec_id="plan")["spec"]["revision"] == 3
    finally:
        folder.chmod(0o755)
