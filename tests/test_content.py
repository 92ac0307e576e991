"""A long answer is shortened on its way out, and the tool `content` gives back what was left out of it."""

import errno
import json
import os
import shutil
from typing import Any

import msgspec
import pytest

from foundry_mcp.core.archive import Archive, hash_of
from foundry_mcp.core.budget import count_tokens
from foundry_mcp.core.contracts import encode
from foundry_mcp.core.disk import disk
from foundry_mcp.core.errors import not_found
from foundry_mcp.core.flags import Flags
from foundry_mcp.core.pagination import encode_cursor, query_hash
from foundry_mcp.core.rate_limits import RateLimits
from foundry_mcp.core.settings import Settings
from foundry_mcp.operations import REGISTRY
from foundry_mcp.operations.declaration import Registry, Surroundings
from foundry_mcp.runtime import Request, Runtime

shows = pytest.mark.requirement

LEAST = 500
SERVER_DEFAULT = 25_000
every_contract = pytest.mark.parametrize("contract", ["v2", "v1", "knowledge"])
GET_BIG = ("spec", {"action": "get", "spec_id": "big"})
QUERY_BIG = ("task", {"action": "query", "spec_id": "big", "limit": 500})
LIST_JOURNAL = ("journal", {"action": "list", "spec_id": "big", "limit": 500})
long_answers = pytest.mark.parametrize(
    "asked", [GET_BIG, QUERY_BIG, LIST_JOURNAL], ids=["spec get", "task query", "journal list"]
)


class Desk:
    """A runtime with all operations, on a workspace with one big spec, and short ways to ask it."""

    def __init__(self, runtime, log=None):
        self.runtime = runtime
        self.surroundings = runtime.surroundings
        self.archive: Archive = runtime.surroundings.archive
        self.log = log

    def ask(self, tool, arguments, *, contract=None, runtime=None, **more):
        request = Request(tool, {**arguments, **more}, contract=contract)
        return (runtime or self.runtime).call(request)

    def done(self, *asked, **more):
        response = self.ask(*asked, **more).response
        assert response.success, response
        return response

    def refused(self, *asked, **more):
        response = self.ask(*asked, **more).response
        assert not response.success
        return response

    def get(self, **arguments):
        return self.done("content", {"action": "get"}, **arguments)

    def walk(self, contract=None, **arguments):
        """The text of a content, page by page, and the pages."""
        pages: list[Any] = []
        cursor = None
        while not pages or pages[-1].response.meta["pagination"]["has_more"]:
            pages.append(
                self.ask("content", {"action": "get", "cursor": cursor}, contract=contract, **arguments)
            )
            cursor = pages[-1].response.meta["pagination"].get("cursor")
        return "".join(page.response.data["content"] for page in pages), pages

    def whole(self, response):
        """The payload, made whole again with nothing but what the answer says and the tool gives."""
        if "content_fidelity" not in response.meta:
            return response.data
        hashes = response.meta["content_archive_hashes"]
        fetched = {name: json.loads(self.walk(hash=key)[0]) for name, key in hashes.items()}
        if response.meta["content_fidelity"] != "partial":
            return fetched["payload-archive"]
        data = json.loads(encode(response.data))
        for name, end in fetched.items():
            place = data
            for step in name.removesuffix("-archive").split("/"):
                place = place[step]
            place.extend(end) if isinstance(place, list) else place.update(end)
        return data


@pytest.fixture
def make_desk(make_bench):
    def make(registry=REGISTRY):
        bench = make_bench(registry=registry)
        return Desk(bench.runtime, bench.log)

    return make


def plan_big(desk, phases=4, tasks=30):
    outline = "\n".join(
        f"## Phase {phase}\n"
        + "\n".join(f"- [ ] Do naïve thing {phase}.{task} — with “care” 🙂" for task in range(tasks))
        for phase in range(phases)
    )
    desk.done("spec", {"action": "create", "title": "Big", "spec_id": "big", "outline": outline})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A workspace with a big spec, made once and copied for each test."""
    place = tmp_path_factory.mktemp("prepared")
    (place / "specs").mkdir()
    around = Surroundings(place, Settings(), Flags(), REGISTRY)
    made = Desk(Runtime(around, log=lambda *_: None))
    plan_big(made)
    for change in ({"action": "start"}, {"action": "complete", "note": "done " * 9}):
        changes = [{**change, "task_id": f"task-1-{n}"} for n in range(1, 21)]
        made.done("task", {"action": "batch", "spec_id": "big", "changes": changes})
    return place


@pytest.fixture
def desk(workspace, prepared, make_desk):
    shutil.copytree(prepared / "specs", workspace / "specs")
    return make_desk()


def level(response):
    return response.meta.get("content_fidelity", "full")


# a long answer


@shows("000.retrieval.endpoint")
@long_answers
@pytest.mark.parametrize("budget", [LEAST, 900, 2000])
def test_a_long_answer_is_shortened_and_everything_left_out_can_be_fetched_back(desk, asked, budget):
    full = desk.done(*asked)

    outcome = desk.ask(*asked, max_tokens=budget)

    assert level(full) == "full"
    assert level(outcome.response) != "full"
    assert count_tokens(outcome.body) <= budget
    assert outcome.body == encode(outcome.wire)
    assert encode(desk.whole(outcome.response)) == encode(full.data)


@long_answers
def test_the_archive_holds_under_each_hash_exactly_what_has_this_hash(desk, asked):
    response = desk.done(*asked, max_tokens=900)

    for key in response.meta["content_archive_hashes"].values():
        text, _ = desk.walk(hash=key, max_tokens=LEAST)
        assert text.encode() == desk.archive.get(key)
        assert hash_of(text.encode()) == key


@shows("000.retrieval.ids")
@long_answers
def test_each_dropped_id_leads_to_its_content(desk, asked):
    full, response = desk.done(*asked), desk.done(*asked, max_tokens=2500)
    assert level(response) == "partial"
    ((name, key),) = response.meta["content_archive_hashes"].items()
    field = name.removesuffix("-archive")
    whole = full.data[field]
    left = len(response.data[field])
    entries = list(whole.values()) if isinstance(whole, dict) else whole

    ids = response.meta["dropped_content_ids"]

    assert len(ids) == min(50, len(entries) - left)
    for content_id, entry in zip(ids, entries[left:], strict=False):
        by_id, by_both = desk.get(id=content_id), desk.get(id=content_id, hash=key)
        assert by_id.data["content"] == by_both.data["content"] == encode(entry).decode()
        assert by_id.data["hash"] == key


def test_ids_of_two_lists_that_ended_alike_both_lead_to_their_content(make_desk):
    registry = with_content(Registry())
    entries = [f"the same words {n} " * 10 for n in range(30)]

    @registry.operation("trial", cli="trial")
    def trial(call):
        """Answer with two equal lists."""
        return {"one": entries, "two": entries}

    made = make_desk(registry=registry)
    response = made.done("trial", {}, max_tokens=900)

    assert {name.split("-")[0] for name in response.meta["dropped_content_ids"]} == {"one", "two"}
    for name in response.meta["dropped_content_ids"]:
        place = int(name.split("-")[1]) - 1
        assert json.loads(made.get(id=name).data["content"]) == entries[place]


def with_content(registry):
    """The real tool `content` beside the operations of a test."""
    for declared in REGISTRY.tools["content"].values():
        registry.add(declared)
    return registry


def test_an_answer_that_fits_archives_nothing(desk):
    response = desk.done(*GET_BIG, max_tokens=1_000_000)

    assert level(response) == "full"
    assert desk.archive.labels() == []


def test_without_a_budget_nothing_is_shortened(desk):
    assert level(desk.done(*GET_BIG)) == "full"


@every_contract
def test_a_shortened_answer_fits_in_every_contract_and_says_where_the_rest_is(desk, contract):
    for budget in (LEAST, 700, 1500, 3000):
        outcome = desk.ask(*QUERY_BIG, contract=contract, max_tokens=budget)
        assert count_tokens(outcome.body) <= budget
        for key in outcome.response.meta["content_archive_hashes"].values():
            assert key in outcome.body.decode()
            assert desk.archive.get(key)


def test_the_archive_knows_which_operation_left_something_out(desk):
    desk.done(*QUERY_BIG, max_tokens=2000)

    (label,) = desk.archive.labels()

    assert (label.name, label.operation) == ("tasks", "task.query")


def test_a_shortened_page_keeps_its_cursor_and_the_pages_still_join(desk):
    found, cursor = [], None
    for _ in range(3):
        response = desk.done(
            "task", {"action": "query", "spec_id": "big", "limit": 40, "cursor": cursor}, max_tokens=1200
        )
        assert level(response) == "partial"
        found += desk.whole(response)["tasks"]
        cursor = response.meta["pagination"].get("cursor")

    assert response.meta["pagination"] == {"has_more": False, "total_count": 120, "page_size": 40}
    assert found == desk.done(*QUERY_BIG).data["tasks"]


def test_an_error_is_never_shortened(make_desk):
    registry = Registry()

    @registry.operation("trial", cli="trial")
    def trial(call):
        """Fail at length."""
        raise not_found("thing", "x", candidates=["a long name " * 20] * 50)

    outcome = make_desk(registry=registry).ask("trial", {}, max_tokens=LEAST)

    assert count_tokens(outcome.body) > 2000
    assert outcome.response.data["details"]["candidates"] == ["a long name " * 20] * 50
    assert "content_fidelity" not in outcome.response.meta


# the budget itself


@pytest.mark.parametrize(
    ("given", "constraint"), [(LEAST - 1, "minimum"), (0, "minimum"), (-5, "minimum"), (1_000_001, "maximum")]
)
@pytest.mark.parametrize(
    "asked", [GET_BIG, ("content", {"action": "list"}), ("server", {"action": "health"})]
)
def test_a_budget_out_of_range_is_a_validation_error(desk, asked, given, constraint):
    refused = desk.refused(*asked, max_tokens=given)

    assert refused.data["error_code"] == "VALIDATION_ERROR"
    details = refused.data["details"]
    assert (details["field"], details["constraint"], details["received"]) == ("max_tokens", constraint, given)


@pytest.mark.parametrize("given", ["many", 700.5, [700], True])
def test_a_budget_that_is_no_whole_number_is_refused(desk, given):
    refused = desk.refused(*GET_BIG, max_tokens=given)

    assert refused.data["error_code"] == "INVALID_FORMAT"
    assert refused.data["details"]["field"] == "max_tokens"


@pytest.mark.parametrize("declared", list(REGISTRY), ids=lambda declared: declared.name)
def test_every_operation_takes_a_budget(declared):
    entry = declared.schema["properties"]["max_tokens"]

    assert (entry["type"], entry["minimum"]) == ("integer", LEAST)
    assert "max_tokens" not in declared.schema.get("required", ())


def test_the_callers_budget_goes_before_the_one_of_the_runtime(desk):
    limited = Runtime(desk.surroundings, log=desk.log, max_tokens=1000)

    def tokens(**more):
        return count_tokens(desk.ask(*GET_BIG, runtime=limited, **more).body)

    assert tokens() <= 1000
    assert 1000 < tokens(max_tokens=2000) <= 2000
    assert tokens(max_tokens=600) <= 600


# the archive comes first


def test_what_is_left_out_is_in_the_archive_before_the_call_ends(desk):
    ended = []

    def log(message, fields, error=None):
        assert error is None
        ended.append(len(desk.archive.labels()))

    watched = Runtime(desk.surroundings, log=log)
    response = desk.done(*GET_BIG, runtime=watched, max_tokens=900)

    assert level(response) == "partial"
    assert ended == [1]


def fail(monkeypatch, number, name="write"):
    def broken(*arguments, **named):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(disk, name, broken)


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "UNAVAILABLE"), (errno.EIO, "INTERNAL_ERROR"), (errno.EROFS, "FORBIDDEN")],
    ids=["ENOSPC", "EIO", "EROFS"],
)
@every_contract
def test_an_answer_whose_rest_cannot_be_archived_is_an_error_and_not_a_dead_hash(
    desk, monkeypatch, contract, number, code
):
    fail(monkeypatch, number)

    outcome = desk.ask(*GET_BIG, contract=contract, max_tokens=900)

    assert not outcome.response.success
    assert (outcome.response.data["error_code"], outcome.response.data["effect"]) == (code, "none")
    assert b"sha256:" not in outcome.body
    monkeypatch.undo()
    assert desk.archive.labels() == []
    assert level(desk.done(*GET_BIG, max_tokens=900)) == "partial"


def test_a_full_disk_is_no_matter_to_an_answer_that_fits(desk, monkeypatch):
    fail(monkeypatch, errno.ENOSPC)

    assert level(desk.done(*GET_BIG, max_tokens=100_000)) == "full"


def test_a_read_that_fails_to_archive_never_claims_to_have_written(desk, monkeypatch):
    real = disk.fsync

    def fsync(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(disk, "fsync", fsync)

    assert desk.refused(*GET_BIG, max_tokens=900).data["effect"] == "none"


def test_a_write_whose_answer_cannot_be_archived_says_that_it_happened(workspace, make_desk):
    (workspace / "specs").mkdir()
    (workspace / ".foundry").mkdir()
    (workspace / ".foundry" / "archive").write_text("in the way", encoding="utf-8")
    outline = "\n".join(["## Phase", *(f"- [ ] Task number {n}" for n in range(100))])
    create = ("spec", {"action": "create", "title": "New", "spec_id": "new", "outline": outline})

    refused = make_desk().refused(*create, max_tokens=LEAST)

    assert refused.data["error_code"] == "FORBIDDEN"
    assert refused.data["effect"] == "applied"
    assert (workspace / "specs" / "pending" / "new.json").exists()


# repeated with its key

CREATE = {
    "action": "create",
    "title": "New",
    "spec_id": "new",
    "outline": "\n".join(["## Phase", *(f"- [ ] Task number {n} of the new spec" for n in range(100))]),
    "idempotency_key": "once",
}


def test_a_shortened_answer_is_replayed_shortened_and_its_rest_can_be_fetched(desk):
    first = desk.done("spec", CREATE, max_tokens=1500)
    outcome = desk.ask("spec", CREATE, max_tokens=1500)

    again = outcome.response
    assert again.meta["replayed"] is True
    assert count_tokens(outcome.body) <= 1500
    assert level(first) == level(again) == "partial"
    assert len(desk.whole(first)["outline"]) == 101
    assert encode(desk.whole(first)) == encode(desk.whole(again))


def test_a_replay_with_another_budget_is_the_same_call_in_another_length(desk):
    desk.done("spec", CREATE, max_tokens=LEAST)

    whole, shorter = desk.done("spec", CREATE), desk.done("spec", CREATE, max_tokens=900)

    assert whole.meta["replayed"] is shorter.meta["replayed"] is True
    assert (level(whole), len(whole.data["outline"])) == ("full", 101)
    assert encode(desk.whole(shorter)) == encode(whole.data)


def test_a_replay_archives_again_what_was_let_go_of_meanwhile(desk, workspace):
    desk.done("spec", CREATE, max_tokens=900)
    for file in (workspace / ".foundry" / "archive").iterdir():
        file.unlink()

    again = desk.done("spec", CREATE, max_tokens=900)

    assert again.meta["replayed"] is True
    assert len(desk.whole(again)["outline"]) == 101


# content get

TEXTS = {
    "words": "Ordinary words, one after the other. " * 200,
    "any script": "naïve — “日本語” ﷺ 🙂👩‍👩‍👧 e\u0301 " * 200,
    "control characters": "\x00\x01\x1f\x7f\r\n\t" * 300,
    "quotes and backslashes": '"\\"\\\\' * 400,
    "special tokens": "<|endoftext|><|im_start|>" * 200,
    "one long word": "a" * 5000,
    "json": encode([{"id": n, "text": "x" * 50} for n in range(100)]).decode(),
    "empty": "",
    "one character": "🙂",
}
each_text = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)


@each_text
@every_contract
@pytest.mark.parametrize("budget", [LEAST, 600])
def test_pages_of_a_content_are_never_shortened_and_join_to_the_archived_bytes(desk, text, contract, budget):
    key = desk.archive.put(text.encode(), "text")

    joined, pages = desk.walk(contract, hash=key, max_tokens=budget)

    assert joined.encode() == desk.archive.get(key)
    assert {level(page.response) for page in pages} == {"full"}
    assert max(count_tokens(page.body) for page in pages) <= budget
    for page in pages:
        data = page.response.data
        assert data["content"] == text[data["start"] : data["end"]]
        assert (data["hash"], data["total_characters"]) == (key, len(text))
        assert page.response.meta["pagination"]["total_count"] == len(text)


@every_contract
def test_a_page_is_not_shortened_by_what_the_rate_limit_says_beside_it(desk, contract):
    key = desk.archive.put(TEXTS["any script"].encode(), "text")
    near = Runtime(desk.surroundings, log=desk.log, rate_limits=RateLimits({"content": "1/hour"}))

    outcome = desk.ask(
        "content", {"action": "get", "hash": key}, contract=contract, runtime=near, max_tokens=LEAST
    )

    assert outcome.response.meta["warning_details"][0]["code"] == "RATE_LIMIT_APPROACHING"
    assert level(outcome.response) == "full"
    assert count_tokens(outcome.body) <= LEAST
    data = outcome.response.data
    assert data["content"] == TEXTS["any script"][: data["end"]] != ""


def test_a_short_content_comes_at_once(desk):
    key = desk.archive.put("short — and whole".encode(), "text")

    response = desk.get(hash=key)

    assert response.data == {
        "hash": key,
        "content": "short — and whole",
        "start": 0,
        "end": 17,
        "total_characters": 17,
    }
    assert response.meta["pagination"] == {"has_more": False, "total_count": 17, "page_size": 17}


def test_a_range_can_be_asked_for(desk):
    key = desk.archive.put(b"0123456789", "text")

    response = desk.get(hash=key, offset=3, length=4)

    assert (response.data["content"], response.data["start"], response.data["end"]) == ("3456", 3, 7)
    assert response.meta["pagination"]["has_more"] is True
    rest = desk.get(hash=key, cursor=response.meta["pagination"]["cursor"])
    assert rest.data["content"] == "789"


def test_an_offset_at_the_end_is_empty_and_one_past_it_is_refused(desk):
    key = desk.archive.put(b"0123456789", "text")

    at_the_end, past_it = (
        desk.get(hash=key, offset=10),
        desk.refused("content", {"action": "get", "hash": key, "offset": 11}),
    )

    assert (at_the_end.data["content"], at_the_end.meta["pagination"]["has_more"]) == ("", False)
    assert past_it.data["error_code"] == "VALIDATION_ERROR"
    details = past_it.data["details"]
    assert (details["field"], details["constraint"], details["received"]) == ("offset", "maximum", 11)


def test_neither_hash_nor_id_is_a_missing_parameter(desk):
    refused = desk.refused("content", {"action": "get"})

    assert refused.data["error_code"] == "MISSING_REQUIRED"
    assert "hash" in refused.data["remediation"]
    assert "id" in refused.data["remediation"]


GOOD = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    "malformed",
    [
        "",
        "a" * 64,
        GOOD[:-1],
        GOOD + "a",
        GOOD + "\n",
        GOOD.upper(),
        "md5:" + "a" * 64,
        "sha256:" + "g" * 64,
        "sha256:../../../../etc/passwd",
        "sha256:" + "../" * 21 + "a",
    ],
)
def test_a_malformed_hash_is_a_validation_error(desk, malformed):
    refused = desk.refused("content", {"action": "get", "hash": malformed})

    assert refused.data["error_code"] == "VALIDATION_ERROR"
    assert refused.data["details"]["field"] == "hash"


@pytest.mark.parametrize(
    "unknown", [{"hash": GOOD}, {"id": "finding-003"}, {"hash": GOOD, "id": "finding-003"}]
)
def test_an_unknown_hash_or_id_is_not_found(desk, unknown):
    desk.archive.put(b'["x"]', "other", ids=["finding-004"])

    assert desk.refused("content", {"action": "get"}, **unknown).data["error_code"] == "NOT_FOUND"


def test_an_id_that_is_not_in_the_content_of_the_hash_is_a_validation_error(desk):
    one = desk.archive.put(b'["one"]', "one", ids=["finding-001"])
    desk.archive.put(b'["two"]', "two", ids=["finding-002"])
    text = desk.archive.put(b"no list at all", "text")

    for key in (one, text):
        refused = desk.refused("content", {"action": "get"}, hash=key, id="finding-002")
        assert refused.data["error_code"] == "VALIDATION_ERROR"
        assert refused.data["details"]["field"] == "id"


def test_an_id_leads_to_the_latest_content_that_has_it_and_hash_and_id_to_the_one_meant(desk):
    old = desk.archive.put(b'["old"]', "rows", ids=["row-1"])
    new = desk.archive.put(b'["new"]', "rows", ids=["row-1"])

    assert desk.get(id="row-1").data["content"] == '"new"'
    assert desk.get(id="row-1", hash=old).data["content"] == '"old"'
    assert desk.get(id="row-1", hash=new).data["content"] == '"new"'


def test_one_piece_can_be_walked_in_pages(desk):
    piece = {"id": "row-1", "text": "naïve words " * 500}
    desk.archive.put(encode([piece]), "rows", ids=["row-1"])

    text, pages = desk.walk(id="row-1", max_tokens=LEAST)

    assert text == encode(piece).decode()
    assert len(pages) > 5


def test_a_piece_keeps_its_numbers_and_the_order_of_its_keys(desk):
    piece = b'{"z":12345678901234567890123,"a":[1.5,null,true],"m":-0.1}'
    desk.archive.put(b"[" + piece + b"]", "rows", ids=["row-1"])

    assert desk.get(id="row-1").data["content"].encode() == piece


@shows("000.retrieval.verify")
def test_damaged_content_is_an_error_and_never_wrong_text(desk, workspace):
    response = desk.done(*QUERY_BIG, max_tokens=900)
    (key,) = response.meta["content_archive_hashes"].values()
    file = workspace / ".foundry" / "archive" / f"{key.removeprefix('sha256:')}.zst"
    packed = bytearray(file.read_bytes())
    packed[len(packed) // 2] ^= 1
    file.write_bytes(packed)

    for asked in ({"hash": key}, {"id": response.meta["dropped_content_ids"][0]}):
        refused = desk.refused("content", {"action": "get", **asked})
        assert refused.data["error_code"] == "CONTENT_CORRUPTED"
        assert refused.data["details"]["hash"] == key

    desk.done(*QUERY_BIG, max_tokens=900)  # what the remediation says: asked again, it is archived anew
    assert hash_of(desk.get(hash=key, length=1_000_000).data["content"].encode()) == key


@pytest.mark.parametrize("label", ["damaged", "missing"])
def test_content_is_found_by_its_hash_even_without_its_label(desk, workspace, label):
    key = desk.archive.put(b"whole and well", "text")
    file = workspace / ".foundry" / "archive" / f"{key.removeprefix('sha256:')}.json"
    file.unlink() if label == "missing" else file.write_bytes(b"{")

    assert desk.archive.get(key) == b"whole and well"
    assert desk.get(hash=key).data["content"] == "whole and well"


def test_content_that_is_no_text_is_a_clear_answer(desk):
    key = desk.archive.put(b"\xff\xfe\x00", "bytes")

    refused = desk.refused("content", {"action": "get", "hash": key})

    assert refused.data["error_code"] == "VALIDATION_ERROR"
    assert "not text" in refused.error


def foreign_cursors(desk, key):
    other = desk.archive.put(TEXTS["words"].encode() + b"!", "other")
    own = desk.get(hash=key, length=10).meta["pagination"]["cursor"]
    raw = bytearray(own.encode())
    raw[10] ^= 1
    return {
        "of another content": desk.get(hash=other, length=10).meta["pagination"]["cursor"],
        "of another operation": desk.done("task", {"action": "query", "spec_id": "big", "limit": 1}).meta[
            "pagination"
        ]["cursor"],
        "of a piece": desk.get(hash=key, id="row-1", length=10).meta["pagination"]["cursor"],
        "of a list of contents": encode_cursor(query_hash("content.list"), after=[-1.0, key]),
        "altered": raw.decode(),
        "cut": own[:-4],
        "empty": "",
        "nonsense": "not a cursor",
    }


@pytest.mark.parametrize(
    "whose",
    [
        "of another content",
        "of another operation",
        "of a piece",
        "of a list of contents",
        "altered",
        "cut",
        "empty",
        "nonsense",
    ],
)
def test_a_foreign_cursor_is_invalid_and_never_page_one(desk, whose):
    key = desk.archive.put(encode([TEXTS["words"], "more"]), "rows", ids=["row-1", "row-2"])

    refused = desk.refused(
        "content", {"action": "get", "hash": key, "cursor": foreign_cursors(desk, key)[whose]}
    )

    assert refused.data["error_code"] == "INVALID_CURSOR"
    assert "content" not in refused.data


# content list


def test_what_is_archived_is_listed_latest_first_in_pages(desk):
    keys = [desk.archive.put(f"número {n}".encode(), f"n{n}", ids=["x"] * (n % 2)) for n in range(7)]
    expected = [label.hash for label in desk.archive.labels()]
    found, cursor = [], None
    sizes: list[int] = []

    for _ in range(3):
        page = desk.done("content", {"action": "list", "limit": 3, "cursor": cursor})
        found += page.data["contents"]
        sizes.append(len(page.data["contents"]))
        assert page.data["total_count"] == page.meta["pagination"]["total_count"] == 7
        cursor = page.meta["pagination"].get("cursor")

    assert sizes == [3, 3, 1]
    assert page.meta["pagination"]["has_more"] is False
    assert [row["hash"] for row in found] == expected
    assert set(expected) == set(keys)
    by_hash = {row["hash"]: row for row in found}
    assert by_hash[keys[1]] == {"hash": keys[1], "name": "n1", "operation": "", "bytes": 9, "pieces": 1}


def test_content_put_while_pages_are_read_moves_nothing(desk):
    old = {desk.archive.put(f"old {n}".encode(), "old") for n in range(6)}
    first = desk.done("content", {"action": "list", "limit": 3})
    desk.archive.put(b"new", "new")

    second = desk.done(
        "content", {"action": "list", "limit": 3, "cursor": first.meta["pagination"]["cursor"]}
    )

    hashes = [row["hash"] for page in (first, second) for row in page.data["contents"]]
    assert len(hashes) == 6
    assert set(hashes) == old


def test_nothing_archived_is_an_empty_list(desk):
    response = desk.done("content", {"action": "list"})

    assert response.data == {"contents": [], "total_count": 0}
    assert response.meta["pagination"]["has_more"] is False


def test_a_cursor_of_another_query_is_refused_by_the_list(desk):
    desk.archive.put(b"something", "text")
    cursor = encode_cursor(query_hash("content.get", hash=GOOD, id=None), after=[-1.0, GOOD])

    refused = desk.refused("content", {"action": "list", "cursor": cursor})

    assert refused.data["error_code"] == "INVALID_CURSOR"


@pytest.mark.parametrize(
    "action", [{"action": "list"}, {"action": "get", "id": "x"}, {"action": "get", "hash": GOOD}]
)
@pytest.mark.parametrize("place", [".foundry", "archive"])
def test_a_linked_archive_is_refused_by_every_action(workspace, make_desk, tmp_path_factory, place, action):
    outside = tmp_path_factory.mktemp("outside")
    if place == ".foundry":
        (workspace / ".foundry").symlink_to(outside)
    else:
        (workspace / ".foundry").mkdir()
        (workspace / ".foundry" / "archive").symlink_to(outside)

    refused = make_desk().refused("content", action)

    assert refused.data["error_code"] == "FORBIDDEN"
    assert str(outside) not in msgspec.json.encode(refused.data).decode()
    assert list(outside.iterdir()) == []


# the doors


@pytest.fixture
def huge(workspace, make_desk):
    """A workspace with a spec whose whole answer is longer than the server's default allows."""
    (workspace / "specs").mkdir()
    made = make_desk()
    plan_big(made, phases=6, tasks=60)
    return made


def test_a_long_answer_piped_from_the_command_line_is_whole(huge, cli):
    done = cli("specs", "get", "big")

    answer = json.loads(done.stdout)
    assert done.returncode == 0
    assert count_tokens(done.stdout) > SERVER_DEFAULT
    assert "content_fidelity" not in answer["meta"]
    assert answer["data"] == json.loads(encode(huge.done(*GET_BIG).data))


def test_the_command_line_shortens_on_request_and_another_process_fetches_the_rest(huge, cli):
    done = cli("specs", "get", "big", "--max-tokens", "800")

    answer = json.loads(done.stdout)
    assert done.returncode == 0
    assert count_tokens(done.stdout.rstrip(b"\n")) <= 800
    assert answer["meta"]["content_fidelity"] == "partial"
    key = answer["meta"]["content_archive_hashes"]["hierarchy-archive"]
    fetched = json.loads(cli("content", "get", "--hash", key, "--length", "1000000").stdout)
    rest = json.loads(fetched["data"]["content"])
    assert {**answer["data"]["hierarchy"], **rest} == huge.done(*GET_BIG).data["hierarchy"]


def test_a_budget_that_is_too_small_is_wrong_usage_on_the_command_line(huge, cli):
    done = cli("specs", "get", "big", "--max-tokens", "499")

    answer = json.loads(done.stdout)
    assert done.returncode == 2
    assert answer["data"]["details"]["field"] == "max_tokens"


def test_the_server_keeps_every_answer_within_25000_tokens(huge, start_server):
    server = start_server().shake_hands()

    result = server.call(*GET_BIG)
    text = result["content"][0]["text"]

    assert result["isError"] is False
    assert SERVER_DEFAULT * 0.8 < count_tokens(text) <= SERVER_DEFAULT
    assert result["structuredContent"] == json.loads(text)
    assert result["structuredContent"]["meta"]["content_fidelity"] == "partial"
    ((_, key),) = result["structuredContent"]["meta"]["content_archive_hashes"].items()
    fetched = server.call("content", {"action": "get", "hash": key, "length": 1_000_000})
    part = fetched["structuredContent"]
    assert count_tokens(fetched["content"][0]["text"]) <= SERVER_DEFAULT
    assert "content_fidelity" not in part["meta"]
    assert huge.archive.get(key).decode().startswith(part["data"]["content"])


def test_a_setting_changes_how_long_the_answers_of_the_server_may_be(huge, workspace, start_server):
    (workspace / "foundry-mcp.toml").write_text("max_tokens = 1000\n", encoding="utf-8")
    server = start_server().shake_hands()

    by_default = server.call(*GET_BIG)["content"][0]["text"]
    asked_for = server.call(GET_BIG[0], {**GET_BIG[1], "max_tokens": 2000})["content"][0]["text"]

    assert count_tokens(by_default) <= 1000
    assert 1000 < count_tokens(asked_for) <= 2000


def test_a_setting_below_the_least_budget_is_refused(workspace, cli):
    (workspace / "foundry-mcp.toml").write_text("max_tokens = 499\n", encoding="utf-8")

    done = cli("server", "health")

    assert done.returncode != 0
    assert "max_tokens" in json.loads(done.stdout)["error"]


@every_contract
def test_the_form_that_is_sent_is_the_one_that_is_measured(desk, contract):
    """The flat form takes more tokens around the same payload, so measuring another form would be over by a few."""
    for budget in range(1500, 1580, 5):
        outcome = desk.ask(*QUERY_BIG, contract=contract, max_tokens=budget)
        assert budget * 0.7 < count_tokens(outcome.body) <= budget
