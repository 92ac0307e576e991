"""What is kept in the archive comes back exactly or not at all, whoever writes beside it and whatever breaks."""

import errno
import json
import os
import subprocess
import sys
import time
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundry_mcp.core import archive as archive_module
from foundry_mcp.core.archive import Archive, hash_of
from foundry_mcp.core.disk import disk, open_folder
from foundry_mcp.core.errors import FoundryError, InternalError, NotFoundError
from foundry_mcp.core.locks import locked

shows = pytest.mark.requirement
calm = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])

PATIENCE = 60
HOUR = 3600.0
DAY = 24 * HOUR
NOBODY = "sha256:" + "0" * 64
TEXT = "Ünïcode, 日本語 and 🙂 ".encode() * 20


@pytest.fixture
def archive(workspace):
    return Archive(workspace)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    """One archive for all examples of a hypothesis test."""
    return Archive(tmp_path_factory.mktemp("lasting"))


def folder_of(workspace):
    return workspace / ".foundry" / "archive"


def file_of(workspace, key, suffix="zst"):
    return folder_of(workspace) / f"{key.removeprefix('sha256:')}.{suffix}"


def contents(workspace):
    """The hashes of what lies in the archive."""
    return {f"sha256:{path.stem}" for path in folder_of(workspace).glob("[!.]*.zst")}


def age(workspace, key, seconds):
    """Let it look as if nobody had used this content for so long."""
    then = time.time() - seconds
    os.utime(file_of(workspace, key), (then, then))


def noise(seed, size=1000):
    """Bytes that do not get smaller by packing, the same for the same seed."""
    return b"".join(sha256(f"{seed} {part}".encode()).digest() for part in range(size // 32 + 1))[:size]


def code_of(work, *arguments):
    """The code of the typed error that this raises."""
    with pytest.raises(FoundryError) as caught:
        work(*arguments)
    return caught.value.code


# what is put comes back


@calm
@given(st.binary(max_size=3000))
def test_any_bytes_come_back_exactly_under_their_sha256(lasting, content):
    key = lasting.put(content, "anything")

    assert key == hash_of(content) == f"sha256:{sha256(content).hexdigest()}"
    assert lasting.get(key) == content


def test_another_process_finds_what_was_put(workspace, archive):
    key = archive.put(TEXT, "text")

    assert Archive(workspace).get(key) == TEXT


def test_long_content_is_kept_compressed(workspace, archive):
    content = b"the same line again and again\n" * 100_000

    key = archive.put(content, "long")

    assert file_of(workspace, key).stat().st_size < len(content) / 50
    assert archive.get(key) == content


def test_the_same_content_is_stored_once(workspace, archive):
    keys = {archive.put(TEXT, name) for name in ("one", "two", "one")}

    assert keys == contents(workspace)
    assert len(list(folder_of(workspace).glob("[!.]*"))) == 2  # the content and its label
    assert [label.name for label in archive.labels()] == ["one"]


def test_only_the_owner_may_read_the_archive(workspace, archive):
    before = os.umask(0)
    try:
        archive.put(TEXT, "private")
    finally:
        os.umask(before)

    assert folder_of(workspace).stat().st_mode & 0o777 == 0o700
    assert folder_of(workspace).parent.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder_of(workspace).iterdir()} == {0o600}


def test_an_unknown_hash_is_not_found(archive):
    archive.put(TEXT, "something else")

    with pytest.raises(NotFoundError) as caught:
        archive.get(NOBODY)

    assert caught.value.code == "NOT_FOUND"
    assert caught.value.details["resource_type"] == "content"


def test_an_archive_that_was_never_written_to_is_empty(archive):
    assert archive.labels() == []
    assert code_of(archive.get, NOBODY) == "NOT_FOUND"
    assert code_of(archive.find, "finding-003") == "NOT_FOUND"


# damage


@shows("000.retrieval.verify")
def test_each_flipped_bit_is_an_error_or_harmless_but_never_wrong_text(workspace, archive):
    content = b"what is quoted must be what was written"
    key = archive.put(content, "text")
    file = file_of(workspace, key)
    good = file.read_bytes()
    seen, refused = [], []

    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bad)
        try:
            seen.append(archive.get(key))
        except InternalError as error:
            refused.append((error.code, error.details))

    assert set(seen) <= {content}
    assert len(seen) < len(good)  # a few bits of a frame say nothing about its content
    assert all(told == ("CONTENT_CORRUPTED", {"hash": key}) for told in refused)


def test_a_file_cut_anywhere_is_an_error(workspace, archive):
    key = archive.put(TEXT, "text")
    file = file_of(workspace, key)
    good = file.read_bytes()

    for length in range(len(good)):
        file.write_bytes(good[:length])
        assert code_of(archive.get, key) == "CONTENT_CORRUPTED"


def test_the_empty_content_is_told_from_an_emptied_file(workspace, archive):
    key = archive.put(b"", "nothing")
    assert archive.get(key) == b""

    file_of(workspace, key).write_bytes(b"")

    assert code_of(archive.get, key) == "CONTENT_CORRUPTED"


@pytest.mark.parametrize("swapped", ["another content", "plain text", "two frames", "more after the end"])
def test_a_file_replaced_by_another_is_an_error(workspace, archive, swapped):
    key, other = archive.put(TEXT, "text"), archive.put(b"something else", "other")
    good, foreign = file_of(workspace, key).read_bytes(), file_of(workspace, other).read_bytes()
    file_of(workspace, key).write_bytes(
        {
            "another content": foreign,
            "plain text": TEXT,
            "two frames": good + foreign,
            "more after the end": good + b"more",
        }[swapped]
    )

    assert code_of(archive.get, key) == "CONTENT_CORRUPTED"
    assert archive.get(other) == b"something else"


def test_putting_damaged_content_again_mends_it(workspace, archive):
    """The remediation of CONTENT_CORRUPTED promises that asking again archives it anew."""
    key = archive.put(TEXT, "text")
    file_of(workspace, key).write_bytes(b"damaged")

    archive.put(TEXT, "text")

    assert archive.get(key) == TEXT


def test_a_damaged_label_hides_nothing_but_itself(workspace, archive):
    kept, hidden = archive.put(TEXT, "kept"), archive.put(b"hidden", "hidden", ids=["a piece"])
    file_of(workspace, hidden, "json").write_bytes(b"{")

    assert [label.hash for label in archive.labels()] == [kept]
    assert code_of(archive.find, "a piece") == "NOT_FOUND"
    assert archive.get(hidden) == b"hidden"


# labels


class Clock(SimpleNamespace):
    """Stands for the module `time`; a test says what time it is."""

    now: float

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    stopped = Clock(now=time.time())
    monkeypatch.setattr(archive_module, "time", stopped)
    return stopped


def test_a_label_says_what_a_content_is(archive, clock):
    key = archive.put(TEXT, "findings", ids=["finding-003", "finding-004"], operation="research.digest")

    (label,) = archive.labels()

    assert (label.hash, label.name, label.size, label.created) == (key, "findings", len(TEXT), clock.now)
    assert label.pieces == {"finding-003": 0, "finding-004": 1}
    assert label.operation == "research.digest"
    assert archive.label(key) == label


def test_labels_come_latest_first_and_those_of_one_moment_by_hash(archive, clock):
    moments: dict[str, int] = {}
    for number in (3, 1, 2, 3, 3):
        clock.now = 1_700_000_000.0 + number
        moments[archive.put(noise(len(moments)), "x")] = number

    labels = archive.labels()

    assert [label.hash for label in labels] == sorted(moments, key=lambda key: (-moments[key], key))


def test_a_piece_is_found_in_the_latest_content_that_holds_it(archive, clock):
    for moment, content, ids in [(2, b"two", ["a", "b"]), (3, b"three", ["a"]), (1, b"one", ["a", "c"])]:
        clock.now = 1_700_000_000.0 + moment
        archive.put(content, "x", ids=ids)

    found = {piece: archive.get(archive.find(piece).hash) for piece in "abc"}

    assert found == {"a": b"three", "b": b"two", "c": b"one"}
    assert code_of(archive.find, "d") == "NOT_FOUND"


def test_the_same_content_put_under_other_names_is_found_by_all_of_them(archive):
    archive.put(b'["x","y"]', "first", ids=["first-3", "first-4"])
    key = archive.put(b'["x","y"]', "second", ids=["second-1", "second-2"])

    assert archive.find("first-3").hash == archive.find("second-1").hash == key
    assert archive.label(key).pieces == {"first-3": 0, "first-4": 1, "second-1": 0, "second-2": 1}


def test_the_label_of_an_unknown_hash_is_not_found(archive):
    archive.put(TEXT, "something else")

    assert code_of(archive.label, NOBODY) == "NOT_FOUND"


@pytest.mark.parametrize("odd", ["a link", "a folder", "a pipe"])
def test_something_odd_in_place_of_a_label_hides_nothing_but_itself(workspace, archive, odd):
    kept, hidden = archive.put(TEXT, "kept"), archive.put(b"hidden", "hidden")
    place = file_of(workspace, hidden, "json")
    place.unlink()
    {
        "a link": lambda: place.symlink_to("/dev/null"),
        "a folder": place.mkdir,
        "a pipe": lambda: os.mkfifo(place),
    }[odd]()

    assert [label.hash for label in archive.labels()] == [kept]


# several processes

PUTS = """
import sys
from pathlib import Path
from foundry_mcp.core.archive import Archive
archive, mine = Archive(Path(sys.argv[1])), sys.argv[2]
print("here", flush=True)
sys.stdin.readline()
for number in range(15):
    archive.put(b"everybody puts this %d " % number * 50, "shared", ids=[f"shared-{number}"])
    archive.put(f"only {mine} puts this {number} ".encode() * 50, "own", ids=[f"{mine}-{number}"])
"""


def test_processes_that_put_the_same_and_different_content_at_once_lose_nothing(workspace, archive):
    script = [sys.executable, "-c", PUTS, str(workspace)]
    processes = [
        subprocess.Popen([*script, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(5)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
    for process in processes:
        process.communicate("go\n", timeout=PATIENCE)

    assert [process.returncode for process in processes] == [0] * 5
    expected = {b"everybody puts this %d " % number * 50 for number in range(15)}
    expected |= {
        f"only {mine} puts this {number} ".encode() * 50 for mine in range(5) for number in range(15)
    }
    assert contents(workspace) == set(map(hash_of, expected))
    assert {archive.get(key) for key in contents(workspace)} == expected
    assert len(archive.labels()) == len(expected)
    assert not list(folder_of(workspace).glob(".*.new"))


KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path
from foundry_mcp.core.archive import Archive
from foundry_mcp.core.disk import disk

STEPS = ("open", "write", "fsync", "link", "rename", "unlink", "close")
prepared, place = Path(sys.argv[1]), Path(sys.argv[2])

def watch(fatal, when, tell):
    walked = iter(range(1000))
    def wrapped(name, real):
        def step(*arguments, **named):
            number = next(walked)
            tell(name)
            if (number, when) == (fatal, "before"):
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return real(*arguments, **named)
            finally:
                if number == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
        return step
    for name in STEPS:
        setattr(disk, name, wrapped(name, getattr(disk, name)))

def put(fatal, when):
    workspace = place / f"{fatal}-{when}"
    shutil.copytree(prepared, workspace)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        watch(fatal, when, lambda name: os.write(write, name.encode() + b" "))
        Archive(workspace).put(b"the new content " * 50, "new", ids=["new"])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as steps:
        walked = steps.read().split()
    status = os.waitpid(child, 0)[1]
    return {"workspace": str(workspace), "steps": walked, "killed": os.WIFSIGNALED(status)}

whole = put(-1, "never")
print(json.dumps([whole] + [put(n, when) for n in range(len(whole["steps"])) for when in ("before", "after")]))
"""


def test_a_process_killed_at_any_system_call_of_a_put_leaves_a_readable_archive(tmp_path):
    prepared, place = tmp_path / "prepared", tmp_path / "place"
    prepared.mkdir()
    place.mkdir()
    old = Archive(prepared).put(TEXT, "old", ids=["old"])
    new = hash_of(b"the new content " * 50)
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(prepared), str(place)],
        stdout=subprocess.PIPE,
        timeout=PATIENCE,
        check=True,
    )
    whole, *killed = json.loads(child.stdout)
    assert not whole["killed"]
    assert {"open", "write", "fsync", "rename", "close"} <= set(whole["steps"])
    assert len(killed) >= 30
    there = set()

    for fallen in killed:
        assert fallen["killed"]
        workspace = tmp_path / fallen["workspace"]
        archive = Archive(workspace)
        assert archive.get(old) == TEXT
        assert archive.find("old").hash == old
        there.add(new in contents(workspace))
        if new in contents(workspace):
            assert archive.get(new) == b"the new content " * 50
        else:
            assert code_of(archive.get, new) == "NOT_FOUND"
        assert archive.put(b"the new content " * 50, "new", ids=["new"]) == new  # no lock is stuck
        assert archive.get(archive.find("new").hash) == b"the new content " * 50
        assert not list(folder_of(workspace).glob(".*.new"))

    assert there == {True, False}


def test_a_content_is_there_before_anything_points_to_it(archive, monkeypatch):
    """So that a crash between the two leaves a content without a label, never a label without its content."""
    renamed: list[str] = []
    real = disk.rename

    def rename(source, target, **named):
        renamed.append(target.rsplit(".", 1)[1])
        return real(source, target, **named)

    monkeypatch.setattr(disk, "rename", rename)

    archive.put(TEXT, "text")

    assert renamed == ["zst", "json"]


def test_a_put_that_does_not_get_the_lock_writes_nothing(workspace, archive, monkeypatch):
    archive.put(b"old", "old")
    before = contents(workspace)
    monkeypatch.setattr(archive_module, "LOCK_SECONDS", 0.0)

    with open_folder(folder_of(workspace)) as folder, locked(folder, ".lock") as held:
        assert held
        assert code_of(archive.put, TEXT, "text") == "UNAVAILABLE"

    assert contents(workspace) == before


# a disk that fails


def break_disk(monkeypatch, name, number):
    """Let the first call of this kind that writes fail with this error."""
    real = getattr(disk, name)

    def step(*arguments: Any, **named: Any) -> Any:
        if name == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments, **named)
        monkeypatch.setattr(disk, name, real)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(disk, name, step)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "UNAVAILABLE"),
        (errno.EDQUOT, "UNAVAILABLE"),
        (errno.EIO, "INTERNAL_ERROR"),
        (errno.EROFS, "FORBIDDEN"),
        (errno.EACCES, "FORBIDDEN"),
    ],
    ids=["ENOSPC", "EDQUOT", "EIO", "EROFS", "EACCES"],
)
@pytest.mark.parametrize("step", ["open", "write", "fsync", "rename"])
def test_a_failing_disk_is_a_typed_error_and_leaves_nothing_half_written(
    workspace, archive, monkeypatch, step, number, code
):
    old = archive.put(b"old", "old")
    break_disk(monkeypatch, step, number)

    with pytest.raises(FoundryError) as caught:
        archive.put(TEXT, "text")

    assert (caught.value.code, caught.value.effect) == (code, "none")
    assert str(workspace) not in caught.value.message
    assert contents(workspace) == {old}
    assert not list(folder_of(workspace).glob(".*.new"))
    assert archive.get(archive.put(TEXT, "text")) == TEXT


# links


@pytest.fixture
def outside(tmp_path_factory):
    return tmp_path_factory.mktemp("outside")


def link_out(workspace, outside, place):
    if place == ".foundry":
        (outside / "archive").mkdir()
        (workspace / ".foundry").symlink_to(outside)
    else:
        (workspace / ".foundry").mkdir()
        folder_of(workspace).symlink_to(outside)


linked = pytest.mark.parametrize("place", [".foundry", "archive"])


@linked
def test_a_linked_folder_is_refused_and_nothing_outside_is_read_or_written(
    workspace, archive, outside, place
):
    link_out(workspace, outside, place)
    key = hash_of(TEXT)
    before = sorted(outside.rglob("*"))

    assert code_of(archive.put, TEXT, "text") == "FORBIDDEN"
    assert code_of(archive.get, key) == "FORBIDDEN"

    assert sorted(outside.rglob("*")) == before


@linked
def test_a_linked_folder_is_refused_by_those_who_look_for_labels_too(workspace, archive, outside, place):
    link_out(workspace, outside, place)

    assert code_of(archive.labels) == "FORBIDDEN"
    assert code_of(archive.find, "a piece") == "FORBIDDEN"


def test_a_linked_content_is_refused(workspace, archive, outside):
    key = archive.put(TEXT, "text")
    elsewhere = outside / "elsewhere"
    file_of(workspace, key).rename(elsewhere)
    file_of(workspace, key).symlink_to(elsewhere)

    assert code_of(archive.get, key) == "FORBIDDEN"


def test_a_pipe_in_place_of_a_content_is_refused_and_not_waited_for(workspace, archive):
    key = archive.put(TEXT, "text")
    file_of(workspace, key).unlink()
    os.mkfifo(file_of(workspace, key))

    assert code_of(archive.get, key) == "FORBIDDEN"


def test_a_link_in_place_of_the_lock_is_refused(workspace, archive, outside):
    archive.put(b"old", "old")
    (folder_of(workspace) / ".lock").unlink()
    (folder_of(workspace) / ".lock").symlink_to(outside / "made")

    assert code_of(archive.put, TEXT, "text") == "FORBIDDEN"
    assert not (outside / "made").exists()


# what is let go of


def test_what_nobody_has_read_for_a_month_is_let_go_of_with_its_label(workspace):
    old, young = (Archive(workspace).put(noise(name), name, ids=[name]) for name in ("old", "young"))
    age(workspace, old, 31 * DAY)
    age(workspace, young, 29 * DAY)

    new = Archive(workspace).put(noise("new"), "new")

    assert contents(workspace) == {young, new}
    assert {label.hash for label in Archive(workspace).labels()} == {young, new}
    assert code_of(Archive(workspace).get, old) == "NOT_FOUND"
    assert code_of(Archive(workspace).find, "old") == "NOT_FOUND"


def test_retention_counts_from_the_clock(workspace, clock):
    archive = Archive(workspace, kept_seconds=DAY)
    old = archive.put(noise("old"), "old")

    clock.now += DAY - HOUR
    young = archive.put(noise("young"), "young")
    assert contents(workspace) == {old, young}

    clock.now += 2 * HOUR
    archive.put(noise("new"), "new")
    assert old not in contents(workspace)


def test_a_running_process_looks_for_what_is_old_now_and_then(workspace, clock):
    archive = Archive(workspace)
    old = archive.put(noise("old"), "old")
    age(workspace, old, 31 * DAY)

    clock.now += archive_module.SWEPT_EVERY_SECONDS - 1
    archive.put(noise("soon"), "soon")
    assert old in contents(workspace)

    clock.now += 1
    archive.put(noise("later"), "later")
    assert old not in contents(workspace)


def test_reading_keeps_a_content_alive(workspace, archive):
    read, unread = archive.put(noise("read"), "read"), archive.put(noise("unread"), "unread")
    age(workspace, read, 31 * DAY)
    age(workspace, unread, 31 * DAY)

    archive.get(read)
    new = Archive(workspace).put(noise("new"), "new")

    assert contents(workspace) == {read, new}


def test_the_oldest_are_let_go_of_beyond_the_size_limit(workspace):
    keys = [Archive(workspace).put(noise(number), str(number)) for number in range(5)]
    for number, key in enumerate(keys):
        age(workspace, key, (3, 1, 5, 2, 4)[number] * HOUR)

    new = Archive(workspace, max_bytes=3500).put(noise("new"), "new")

    assert contents(workspace) == {new, keys[1], keys[3]}
    assert sum(file_of(workspace, key).stat().st_size for key in contents(workspace)) <= 3500


def test_what_was_just_put_stays_even_when_it_is_larger_than_the_limit(workspace):
    old = Archive(workspace).put(noise("old"), "old")
    age(workspace, old, HOUR)

    archive = Archive(workspace, max_bytes=100, kept_seconds=0)
    new = archive.put(noise("new"), "new")

    assert contents(workspace) == {new}
    assert archive.get(new) == noise("new")


def test_what_was_just_put_again_stays_although_it_is_old(workspace):
    key = Archive(workspace).put(TEXT, "text")
    age(workspace, key, 31 * DAY)

    Archive(workspace).put(TEXT, "text")

    assert contents(workspace) == {key}


def test_what_was_put_again_is_as_young_as_what_is_new(workspace):
    key = Archive(workspace).put(TEXT, "text")
    age(workspace, key, 31 * DAY)

    Archive(workspace).put(TEXT, "text")
    new = Archive(workspace).put(noise("new"), "new")

    assert contents(workspace) == {key, new}


def test_what_a_killed_put_left_unfinished_is_let_go_of_in_time(workspace, archive):
    archive.put(b"old", "old")
    left, under_way = (folder_of(workspace) / f".{letter * 64}.zst.new" for letter in "ab")
    for stray, seconds in ((left, 2 * HOUR), (under_way, 60)):
        stray.write_bytes(noise("half"))
        os.utime(stray, (time.time() - seconds,) * 2)

    Archive(workspace).put(TEXT, "text")

    assert not left.exists()
    assert under_way.exists()
