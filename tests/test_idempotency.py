"""A write repeated with its key happens once, whoever repeats it and whatever became of the first try."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import Any

import pytest

from foundry_mcp.core.disk import open_folder
from foundry_mcp.core.errors import ConflictError, FoundryError, not_found, unavailable
from foundry_mcp.core.idempotency import KEPT_SECONDS, IdempotencyStore
from foundry_mcp.core.locks import locked
from foundry_mcp.operations.declaration import Call, Registry
from foundry_mcp.runtime import Request

DAY = 24 * 3600
PATIENCE = 30


def add(bench, key="k", **arguments):
    request = Request("counter", {"action": "add", "idempotency_key": key, **arguments})
    return bench.runtime.call(request).response


def total(workspace):
    file = workspace / "count"
    return int(file.read_text(encoding="utf-8")) if file.exists() else 0


def store_files(workspace, pattern="*.json"):
    return sorted((workspace / ".foundry" / "idempotency").glob(pattern))


# the first answer again


def test_the_first_answer_is_given_again_and_the_write_happens_once(make_bench, workspace):
    bench = make_bench()

    first, again = add(bench, amount=5), add(bench, amount=5)

    assert total(workspace) == 5
    assert first.data == again.data == {"total": 5}
    assert "replayed" not in first.meta
    assert again.meta["replayed"] is True
    assert again.meta["request_id"] != first.meta["request_id"]


def test_another_process_gets_the_first_answer_too(make_bench, workspace):
    add(make_bench())

    again = add(make_bench())

    assert again.meta["replayed"] is True
    assert total(workspace) == 1


def test_another_key_is_another_call(make_bench, workspace):
    bench = make_bench()

    add(bench, "one")
    add(bench, "two")

    assert total(workspace) == 2


def test_a_warning_of_the_first_call_is_given_again(make_bench, registry):
    @registry.operation("careful", cli="careful", writes=True)
    def careful(call):
        """Warn."""
        call.warn("STALE_CACHE", "old")
        return {}

    bench = make_bench()
    answers = [bench.runtime.call(Request("careful", {"idempotency_key": "k"})).response for _ in range(2)]

    assert answers[1].meta["warnings"] == ["old"]
    assert answers[1].meta["replayed"] is True


@pytest.mark.parametrize("spelled", [{"amount": 1}, {"dry_run": False}, {"amount": 1, "dry_run": False}])
def test_a_default_said_or_left_out_is_the_same_call(make_bench, spelled):
    bench = make_bench()
    add(bench)

    assert add(bench, **spelled).meta["replayed"] is True


def test_the_same_key_with_other_parameters_is_a_conflict(make_bench, workspace):
    bench = make_bench()
    add(bench, amount=1)

    refused = add(bench, amount=2)

    assert refused.data["error_code"] == "CONFLICT"
    assert refused.data["effect"] == "none"
    assert "other parameters" in refused.error
    assert refused.data["details"] == {"idempotency_key": "k"}
    assert total(workspace) == 1


def test_the_same_key_with_another_operation_is_a_conflict(make_bench, registry: Registry):
    @registry.operation("other", cli="other", writes=True)
    def other(call: Call, *, amount: int = 1) -> dict[str, Any]:
        """Take the same parameters."""
        return {}

    bench = make_bench()
    add(bench)

    refused = bench.runtime.call(Request("other", {"idempotency_key": "k"})).response

    assert refused.data["error_code"] == "CONFLICT"


def test_a_dry_run_does_not_use_up_the_key(make_bench, workspace):
    bench = make_bench()

    shown = add(bench, amount=3, dry_run=True)
    done = add(bench, amount=3)

    assert shown.data == done.data == {"total": 3}
    assert "replayed" not in done.meta
    assert total(workspace) == 3


def test_an_operation_that_only_reads_takes_no_key(make_bench):
    bench = make_bench()

    refused = bench.runtime.call(Request("counter", {"action": "read", "idempotency_key": "k"})).response

    assert refused.data["details"]["constraint"] == "known_parameter"


@pytest.mark.parametrize(("key", "constraint"), [("", "min_length"), ("x" * 201, "max_length")])
def test_a_key_has_a_length(make_bench, key, constraint):
    assert add(make_bench(), key).data["details"]["constraint"] == constraint


# what failed


class Trouble:
    """An operation that fails as long as the test says so."""

    def __init__(self, registry):
        self.error: Exception | None = None
        self.runs = 0

        @registry.operation("trouble", cli="trouble", writes=True)
        def trouble(call):
            """Fail on demand."""
            self.runs += 1
            if self.error is not None:
                raise self.error
            return {"done": True}

    def call(self, bench):
        return bench.runtime.call(Request("trouble", {"idempotency_key": "k"})).response


@pytest.mark.parametrize(
    "error", [not_found("thing", "x"), FoundryError("before anything", effect="none")], ids=["typed", "said"]
)
def test_a_failure_that_changed_nothing_leaves_the_key_free(make_bench, registry, error):
    bench, trouble = make_bench(), Trouble(registry)
    trouble.error = error
    assert trouble.call(bench).data["effect"] == "none"
    trouble.error = None

    second = trouble.call(bench)

    assert second.success
    assert "replayed" not in second.meta
    assert trouble.runs == 2


@pytest.mark.parametrize(
    "error",
    [RuntimeError(), unavailable("gone"), FoundryError("late", effect="applied")],
    ids=["bug", "away", "late"],
)
def test_a_failure_that_may_have_changed_something_is_never_run_again(make_bench, registry, error):
    bench, trouble = make_bench(), Trouble(registry)
    trouble.error = error
    trouble.call(bench)
    trouble.error = None

    second = trouble.call(bench)

    assert trouble.runs == 1
    assert second.data["error_code"] == "CONFLICT"
    assert second.data["effect"] == "unknown"


# several processes

CHILD = """
import sys
from pathlib import Path
from foundry_mcp.core.flags import Flags
from foundry_mcp.core.settings import Settings
from foundry_mcp.operations.declaration import Registry, Surroundings
from foundry_mcp.runtime import Request, Runtime

registry = Registry()

@registry.operation("counter", "add", cli="counter add", writes=True)
def add(call, *, amount: int = 1):
    with (call.surroundings.workspace / "runs").open("a", encoding="utf-8") as file:
        file.write("ran\\n")
    print("running", flush=True)
    sys.stdin.readline()
    return {"total": amount}

runtime = Runtime(Surroundings(Path.cwd(), Settings(), Flags(), registry), log=lambda *_: None)
outcome = runtime.call(Request("counter", {"action": "add", "idempotency_key": "k"}))
print(outcome.body.decode(), flush=True)
"""


@contextmanager
def child(workspace, program=CHILD, *arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=workspace,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def runs(workspace):
    return (workspace / "runs").read_text(encoding="utf-8").splitlines()


def test_a_call_whose_process_was_killed_is_never_run_again(make_bench, workspace):
    with child(workspace) as process:
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)

    refused = add(make_bench())

    assert refused.data["error_code"] == "CONFLICT"
    assert refused.data["effect"] == "unknown"
    assert "interrupted" in refused.error
    assert "new idempotency_key" in refused.data["remediation"]
    assert total(workspace) == 0


def test_a_call_that_is_still_under_way_is_a_conflict_and_its_answer_can_be_had_later(make_bench, workspace):
    bench = make_bench()
    with child(workspace) as process:
        assert process.stdout.readline() == "running\n"

        refused = add(bench)
        process.stdin.write("\n")
        process.stdin.flush()
        first = json.loads(process.stdout.readline())

    again = add(bench)
    assert refused.data["error_code"] == "CONFLICT"
    assert refused.data["effect"] == "none"
    assert "under way" in refused.error
    assert first["data"] == again.data == {"total": 1}
    assert again.meta["replayed"] is True
    assert runs(workspace) == ["ran"]


def test_two_processes_with_the_same_key_run_it_once(workspace):
    with child(workspace) as one, child(workspace) as two:
        for process in (one, two):
            process.stdin.write("\n")
            process.stdin.close()
            process.stdin = None
        said = [process.communicate(timeout=PATIENCE)[0].splitlines() for process in (one, two)]

    answers = [json.loads(lines[-1]) for lines in said]
    assert runs(workspace) == ["ran"]
    fresh = [a for a in answers if a["success"] and not a["meta"].get("replayed")]
    assert len(fresh) == 1
    (other,) = [a for a in answers if a is not fresh[0]]
    assert other["meta"].get("replayed") or other["data"]["error_code"] == "CONFLICT"


# time


@pytest.fixture
def later(monkeypatch):
    """Let the clock stand so many seconds from now."""
    begin = time.time()

    def advance(seconds):
        monkeypatch.setattr(time, "time", lambda: begin + seconds)

    return advance


def test_an_answer_is_kept_for_a_day(make_bench, workspace, later):
    bench = make_bench()
    add(bench)

    later(DAY - 60)
    assert add(bench).meta["replayed"] is True
    later(DAY + 60)  # too soon after the last sweep for another, so the record itself must know its age
    assert "replayed" not in add(bench).meta
    assert total(workspace) == 2


def test_a_day_after_it_was_interrupted_a_key_is_free_again(make_bench, registry, later):
    trouble = Trouble(registry)
    trouble.error = RuntimeError()
    trouble.call(make_bench())
    trouble.error = None
    assert trouble.call(make_bench()).data["error_code"] == "CONFLICT"

    later(DAY + 60)

    assert trouble.call(make_bench()).success


def test_old_records_and_their_locks_are_swept_away(make_bench, workspace, later):
    add(make_bench(), "old")
    (old,) = store_files(workspace)

    later(DAY + 60)
    add(make_bench(), "new")

    assert old not in store_files(workspace)
    assert len(store_files(workspace)) == len(store_files(workspace, "*.lock")) == 1


def test_a_record_whose_call_is_still_running_is_not_swept(tmp_path, later):
    store = IdempotencyStore(tmp_path)
    with store.slot("long", "op", {}) as slot:
        later(KEPT_SECONDS + 60)
        with IdempotencyStore(tmp_path).slot("other", "op", {}):
            pass
        assert len(list(tmp_path.rglob("*.json"))) == 2
        slot.keep({"success": True})

    later(0)
    with store.slot("long", "op", {}) as slot:
        assert slot.answer == {"success": True}


# the files


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"\xff\x00", b"[]", b'{"parameters": 1}', b"[" * 100_000], ids=repr
)
def test_a_damaged_record_is_a_conflict_whose_effect_is_unknown(make_bench, workspace, damage):
    add(make_bench())
    (record,) = store_files(workspace)
    record.write_bytes(damage)

    refused = add(make_bench())

    assert refused.data["error_code"] == "CONFLICT"
    assert refused.data["effect"] == "unknown"
    assert total(workspace) == 1


@pytest.mark.parametrize("key", ["../../escape", "/tmp/escape", "a/b", "nul\0l", ".", "é" * 200, "a\nb"])
def test_the_text_of_a_key_never_becomes_a_path(make_bench, workspace, key):
    assert add(make_bench(), key).success

    names = {path.relative_to(workspace).as_posix() for path in workspace.rglob("*") if path.is_file()}
    (record,) = store_files(workspace)
    assert names == {
        "count",
        ".foundry/.gitignore",
        f".foundry/idempotency/{record.name}",
        f".foundry/idempotency/{record.stem}.lock",
    }
    assert len(record.stem) == 64
    assert int(record.stem, 16) >= 0


def test_records_are_for_their_owner_alone(make_bench, workspace):
    before = os.umask(0)
    try:
        add(make_bench())
    finally:
        os.umask(before)

    (record,) = store_files(workspace)
    assert record.stat().st_mode & 0o777 == 0o600
    assert record.with_suffix(".lock").stat().st_mode & 0o777 == 0o600
    assert record.parent.stat().st_mode & 0o777 == 0o700


def test_a_symlink_in_place_of_a_record_is_not_written_through(make_bench, workspace):
    outside = workspace / "outside"
    outside.write_text("untouched", encoding="utf-8")
    add(make_bench())
    (record,) = store_files(workspace)
    record.unlink()
    record.with_name(f".{record.name}.new").symlink_to(outside)

    response = add(make_bench())

    assert response.data["error_code"] == "FORBIDDEN"
    assert outside.read_text(encoding="utf-8") == "untouched"
    assert total(workspace) == 1


def test_the_store_refuses_a_key_that_is_held(tmp_path):
    store = IdempotencyStore(tmp_path)

    with (
        store.slot("k", "op", {}),
        pytest.raises(ConflictError, match="under way"),
        IdempotencyStore(tmp_path).slot("k", "op", {}),
    ):
        pass


# locks


@contextmanager
def lock(folder, timeout=0.0):
    with open_folder(folder) as descriptor, locked(descriptor, "lock", timeout=timeout) as held:
        yield held


HOLDER = """
import sys
from foundry_mcp.core.disk import open_folder
from foundry_mcp.core.locks import locked

with open_folder(sys.argv[1]) as folder, locked(folder, "lock") as held:
    print(held, flush=True)
    sys.stdin.readline()
"""


def test_a_lock_is_held_against_other_processes_and_ends_with_its_holder(tmp_path):
    with child(tmp_path, HOLDER, str(tmp_path)) as holder:
        assert holder.stdout.readline() == "True\n"
        with lock(tmp_path) as held:
            assert held is False
        with lock(tmp_path, timeout=0.01) as held:
            assert held is False

        holder.send_signal(signal.SIGKILL)

        with lock(tmp_path, timeout=PATIENCE) as held:
            assert held is True


def test_a_lock_is_free_after_it_was_let_go(tmp_path):
    with lock(tmp_path) as first:
        assert first is True
    with lock(tmp_path) as second:
        assert second is True


def test_who_waits_for_a_lock_gets_it_when_it_is_let_go(tmp_path):
    with child(tmp_path, HOLDER, str(tmp_path)) as holder:
        assert holder.stdout.readline() == "True\n"
        holder.stdin.write("\n")
        holder.stdin.flush()

        with lock(tmp_path, timeout=PATIENCE) as held:
            assert held is True


def test_a_lock_file_that_was_removed_while_it_was_waited_for_is_made_anew(tmp_path, monkeypatch):
    """Whoever holds a lock on a removed file holds nothing: the next one would lock a new file beside it."""
    path = tmp_path / "lock"
    from foundry_mcp.core import locks  # noqa: PLC0415 - the module itself, to reach between two of its steps

    acquire, opened = locks._acquire, list[int]()

    def acquire_a_removed_file(descriptor, until):
        if not opened:
            path.unlink()
        opened.append(descriptor)
        return acquire(descriptor, until)

    monkeypatch.setattr(locks, "_acquire", acquire_a_removed_file)
    with lock(tmp_path) as held:
        assert held is True
        assert len(opened) == 2
        assert path.exists()
        monkeypatch.setattr(locks, "_acquire", acquire)
        with lock(tmp_path) as other:
            assert other is False


def test_an_error_inside_lets_the_lock_go(tmp_path):
    with pytest.raises(ValueError, match="inside"), lock(tmp_path):
        raise ValueError("inside")

    with lock(tmp_path) as held:
        assert held is True


def test_a_lock_does_not_follow_a_symlink(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "outside")

    with pytest.raises(OSError, match="symbolic links"), lock(tmp_path):
        pass

    assert not (tmp_path / "outside").exists()
