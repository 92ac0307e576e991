"""Answers that fit: never over the budget, always valid, and what was left out comes back byte for byte."""

from functools import cache
from itertools import pairwise
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from splintr import Tokenizer

from foundry_mcp.core.budget import VOCABULARY, Fitted, count_tokens, fit
from foundry_mcp.core.contracts import Contract, encode, render
from foundry_mcp.core.pagination import encode_cursor
from foundry_mcp.core.responses import (
    CONTENT_FIDELITY_LEVELS,
    ToolResponse,
    error_response,
    success_response,
    warning,
)
from foundry_mcp.core.schemas import json_schema

shows = pytest.mark.requirement
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

LEAST = 500
"""The smallest budget a caller may ask for."""
FORMS = {Contract.V2: "response-v2", Contract.V1: "response-v1", Contract.KNOWLEDGE: "knowledge"}
every_contract = pytest.mark.parametrize("contract", Contract, ids=lambda contract: contract.name)


@cache
def tokenizer() -> Any:
    return Tokenizer.from_pretrained("o200k_base")


@cache
def validator(contract: Contract) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema(FORMS[contract]))


def wire_of(response, contract=Contract.V2):
    return render(response, contract, operation="trial.run")


def count(response):
    return count_tokens(encode(wire_of(response)))


def answered(data, **more):
    """An answer as the runtime builds it."""
    return success_response(data, request_id="req_123456789012", telemetry={"duration_ms": 12.34}, **more)


def level(fitted: Fitted | ToolResponse) -> str:
    response = fitted.response if isinstance(fitted, Fitted) else fitted
    return str(response.meta.get("content_fidelity", "full"))


def rank(fitted):
    return CONTENT_FIDELITY_LEVELS.index(level(fitted))


def rebuilt(fitted):
    """The payload that a client gets who reads the answer and fetches what it names."""
    response, archive = fitted.response, {part.hash: part.content for part in fitted.kept}
    if level(response) == "full":
        return response.data
    fetched = {
        name.removesuffix("-archive"): msgspec.json.decode(archive[key])
        for name, key in response.meta["content_archive_hashes"].items()
    }
    if level(response) != "partial":
        assert fetched.keys() == {"payload"}
        return fetched["payload"]
    data = msgspec.json.decode(encode(response.data))
    for name, end in fetched.items():
        # A payload that is one table has no path; its archive is called what the archive of a whole is called.
        whole = data
        for step in name.split("/") if name != "payload" else ():
            whole = whole[step.replace("~1", "/").replace("~0", "~")]
        whole.extend(end) if isinstance(whole, list) else whole.update(end)
    return data


def budgets_between(response, steps=12):
    """Budgets from the least one to what the whole takes, and both ends."""
    total = count(response)
    return [*range(LEAST, total, max(1, (total - LEAST) // steps)), total]


def rows(number, words=20, name="row"):
    return [{"id": f"{name}-{place + 1:03d}", "text": "some words " * words} for place in range(number)]


LONG = {
    "spec_id": "plan",
    "notes": "a long note " * 60,
    "rows": rows(30),
    **{f"part_{n}": [f"a few words about part {n}"] for n in range(50)},
    "total": 30,
}
"""So much that each level has its budget: fewer rows, then cut texts, then nothing."""


# counting


@calm
@given(st.text(max_size=300))
@example("hello world")
@example("Füße 日本語 🙂 \x00 \n\n\n    x")
def test_tokens_are_counted_exactly_as_the_vocabulary_has_them(text):
    tokens = tokenizer().encode_ordinary(text)

    assert count_tokens(text) == count_tokens(text.encode()) == len(tokens)
    assert tokenizer().decode(tokens) == text


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("hello world", 2), ("1234567", 3), ("antidisestablishmentarianism", 6)]
)
def test_the_vocabulary_is_o200k_base(text, tokens):
    assert VOCABULARY == "o200k_base"
    assert count_tokens(text) == tokens


def test_text_that_looks_like_a_special_token_is_plain_text():
    names = sorted(tokenizer().special_tokens())
    assert "<|endoftext|>" in names

    assert len(tokenizer().encode("<|endoftext|>")) == 1  # what a count that obeys the text would say
    assert min(map(count_tokens, names)) > 1
    assert count_tokens("<|endoftext|>") == 7
    assert count_tokens("<|endoftext|>" * 100) >= 600


# what fits


@shows("000.fidelity-produced.full")
@pytest.mark.parametrize("spare", [0, 1, 10_000])
def test_an_answer_that_fits_is_left_untouched(spare):
    response = answered({"rows": rows(20)})

    fitted = fit(response, count(response) + spare, count)

    assert fitted.response is response
    assert fitted.kept == []


def test_one_token_less_than_the_whole_takes_is_not_full():
    response = answered({"rows": rows(20)})

    fitted = fit(response, count(response) - 1, count)

    assert level(fitted) == "partial"
    assert count(fitted.response) < count(response)


def test_an_error_is_never_shortened():
    failure = error_response(
        "It failed " * 50, error_code="NOT_FOUND", details={"nearest": ["a name " * 20] * 50}
    )
    assert count(failure) > 1000

    fitted = fit(failure, LEAST, count)

    assert fitted.response is failure
    assert fitted.kept == []


def test_the_answer_that_came_in_is_not_changed():
    response = answered({"rows": rows(50), "table": {str(n): {"n": n} for n in range(50)}})
    before = encode(wire_of(response))

    for budget in budgets_between(response):
        fit(response, budget, count)

    assert encode(wire_of(response)) == before


# any payload, any budget

keys = (st.text(min_size=1, max_size=12) | st.text("a./~-", min_size=1, max_size=3)).filter(
    lambda key: key != "payload"  # its archive could not be told from that of a whole payload
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=80)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=15,
)
long_texts = st.builds(
    lambda text, times: text * times, st.text(min_size=1, max_size=40), st.integers(10, 60)
)
long_lists = st.builds(
    lambda entries, times: entries * times, st.lists(values, min_size=1, max_size=5), st.integers(5, 40)
)
named_rows = st.builds(
    lambda row, number: [{"id": f"row-{place}", **row} for place in range(number)],
    st.dictionaries(keys, values, max_size=4),
    st.integers(5, 80),
)
tables = st.builds(
    lambda row, number: {f"entry-{place}": row for place in range(number)},
    st.dictionaries(keys, values, max_size=4),
    st.integers(1, 60),
)
long_values = long_lists | named_rows | tables | long_texts | st.dictionaries(keys, long_lists, max_size=3)
payloads = st.one_of(
    tables,
    st.builds(
        lambda short, long: {**short, **long},
        st.dictionaries(keys, values, max_size=5),
        st.dictionaries(keys, long_values, min_size=1, max_size=4),
    ),
)
budgets = st.integers(LEAST, 1000) | st.integers(LEAST, 4000)


def check(response, budget, fitted):
    """All that must hold of any answer that was fitted into any budget."""
    bare = count(fit(response, 1, count).response)
    assert count(fitted.response) <= budget or budget < bare
    assert isinstance(fitted.response, ToolResponse)
    assert fitted.response.success is True
    validator(Contract.V2).validate(msgspec.json.decode(encode(wire_of(fitted.response))))
    assert encode(rebuilt(fitted)) == encode(response.data)
    assert (level(fitted) == "full") == (count(response) <= budget)
    if level(fitted) != "full":
        told = fitted.response.meta["warning_details"][-1]["context"]
        assert 0 < told["dropped_count"] <= told["total_count"]


@shows("000.fidelity-produced.content_archive_hashes")
@settings(calm, max_examples=120)
@given(payloads, budgets)
def test_any_answer_fits_any_budget_stays_valid_and_can_be_made_whole_again(data, budget):
    response = answered(data)

    fitted = fit(response, budget, count)

    check(response, budget, fitted)
    assert {part.hash for part in fitted.kept} == set(
        fitted.response.meta.get("content_archive_hashes", {}).values()
    )


@settings(calm, max_examples=40)
@given(payloads, st.lists(budgets, min_size=2, max_size=5))
def test_a_smaller_budget_never_gives_a_higher_level(data, wanted):
    response = answered(data)

    ranks = [rank(fit(response, budget, count)) for budget in sorted(wanted)]

    assert all(smaller >= larger for smaller, larger in pairwise(ranks))


@shows(
    "000.fidelity-produced.partial",
    "000.fidelity-produced.summary",
    "000.fidelity-produced.reference_only",
    "000.fidelity-produced.version",
)
def test_the_levels_follow_each_other_as_the_budget_shrinks():
    response = answered(LONG)
    fitted = {budget: fit(response, budget, count) for budget in range(LEAST, count(response) + 1, 12)}
    fitted[count(response)] = fit(response, count(response), count)

    assert sorted({level(one) for one in fitted.values()}) == sorted(CONTENT_FIDELITY_LEVELS)
    for (less, smaller), (more, larger) in pairwise(fitted.items()):
        assert less < more
        assert rank(smaller) >= rank(larger)
    for budget, one in fitted.items():
        check(response, budget, one)
        meta = one.response.meta
        assert meta.get("content_fidelity_schema_version") == (None if level(one) == "full" else "1.0")


def test_what_is_left_at_each_level_is_what_it_promises():
    response = answered(LONG)
    found: dict[str, Any] = {}
    for budget in range(LEAST, count(response), 12):
        one = fit(response, budget, count)
        found.setdefault(level(one), one.response.data)

    partial, summary, reference = found["partial"], found["summary"], found["reference_only"]
    assert partial.keys() == response.data.keys()
    assert partial["rows"] == response.data["rows"][: len(partial["rows"])]
    assert partial["notes"] == response.data["notes"]
    assert summary.keys() == response.data.keys()
    assert summary["notes"].endswith("…")
    assert response.data["notes"].startswith(summary["notes"][:-1])
    assert len(summary["rows"]) < 30
    assert reference == {"spec_id": "plan", "total": 30}


@settings(calm, max_examples=40)
@given(st.dictionaries(st.text(max_size=200), scalars, min_size=40, max_size=200))
def test_a_payload_without_lists_or_with_very_many_keys_fits_too(data):
    response = answered({"many": data, **{f"k{number}": value for number, value in enumerate(data.values())}})

    fitted = fit(response, LEAST, count)

    check(response, LEAST, fitted)


def test_a_budget_below_the_bare_reference_gets_the_bare_reference():
    response = answered({"id": "x", "rows": rows(100)})

    fitted = fit(response, 1, count)

    assert level(fitted) == "reference_only"
    assert fitted.response.data == {}
    assert count(fitted.response) < LEAST
    assert encode(rebuilt(fitted)) == encode(response.data)


def test_even_a_very_long_list_is_measured_only_a_few_times():
    """Counting is what fitting costs; it must not be done for each row."""
    measured = []

    def watched(response):
        measured.append(response)
        return count(response)

    uneven = [{"id": f"r{n}", "text": "🙂ﷺ" * 20 if n < 300 else "a" * 60} for n in range(3000)]
    fitted = fit(answered({"rows": uneven}), 5000, watched)

    assert level(fitted) == "partial"
    assert len(measured) <= 30


# what is dropped


def test_the_heaviest_list_loses_its_end_first():
    response = answered({"light": rows(10, 3, "light"), "heavy": rows(40, 20, "heavy"), "total": 50})

    fitted = fit(response, count(response) - 300, count)

    kept = len(fitted.response.data["heavy"])
    assert 0 < kept < 40
    assert fitted.response.data == {**response.data, "heavy": response.data["heavy"][:kept]}
    assert fitted.response.meta["content_archive_hashes"].keys() == {"heavy-archive"}


def test_the_next_list_is_touched_only_when_the_heaviest_is_empty():
    response = answered({"light": rows(60, 2, "light"), "heavy": rows(40, 20, "heavy")})
    touched = set()

    for budget in budgets_between(response, 40):
        fitted = fit(response, budget, count)
        if level(fitted) == "partial":
            left = {name: len(entries) for name, entries in fitted.response.data.items()}
            assert left["light"] == 60 or left["heavy"] == 0
            touched |= {name for name in left if left[name] < len(response.data[name])}

    assert touched == {"light", "heavy"}


def test_no_more_is_dropped_than_the_budget_asks_for():
    """What stays may be a few rows less than fits, never half of it."""
    response = answered({"rows": rows(200, 10)})

    for budget in range(1500, count(response), 400):
        assert count(fit(response, budget, count).response) > budget * 0.8


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (
            {"spec": {"id": "x"}, "hierarchy": {f"task-{n}": {"title": "t " * 20} for n in range(60)}},
            "hierarchy",
        ),
        ({"found": {"deep": {"tasks": [f"task-{n} " * 8 for n in range(60)]}}}, "found/deep/tasks"),
        ({f"task-{n}": {"title": "t " * 20} for n in range(60)}, "payload"),
    ],
    ids=["a table", "a list below objects", "a payload that is a table"],
)
def test_tables_and_nested_lists_lose_their_ends_and_their_archive_says_where_they_stood(data, name):
    response = answered(data)

    fitted = fit(response, count(response) - 100, count)

    assert level(fitted) == "partial"
    assert fitted.response.meta["content_archive_hashes"].keys() == {f"{name}-archive"}
    assert encode(rebuilt(fitted)) == encode(data)


@pytest.mark.parametrize(
    ("flat", "deep"),
    [("a.b", ("a", "b")), ("a/b", ("a", "b")), ("a~1b", ("a/b", "c")), ("a~b", ("a~0b", "c"))],
)
def test_two_lists_whose_paths_read_alike_have_two_hashes(flat, deep):
    response = answered({flat: rows(30, name="flat"), deep[0]: {deep[1]: rows(31, name="deep")}})

    fitted = fit(response, 1000, count)

    assert level(fitted) == "partial"
    assert len(fitted.kept) == 2
    assert encode(rebuilt(fitted)) == encode(response.data)
    assert set(fitted.response.meta["content_archive_hashes"].values()) == {part.hash for part in fitted.kept}


def test_dropped_ids_stand_in_reading_order_list_by_list():
    response = answered({"light": rows(10, 8, "light"), "heavy": rows(12, 20, "heavy")})
    checked = 0

    for budget in budgets_between(response, 40):
        fitted = fit(response, budget, count)
        if level(fitted) == "partial":
            checked += 1
            data = fitted.response.data
            heavy = [row["id"] for row in response.data["heavy"][len(data["heavy"]) :]]
            light = [row["id"] for row in response.data["light"][len(data["light"]) :]]
            assert fitted.response.meta["dropped_content_ids"] == heavy + light
            assert [part.ids for part in fitted.kept] == [ids for ids in (heavy, light) if ids]
    assert checked > 10


@shows("000.fidelity-produced.dropped_content_ids")
@pytest.mark.parametrize(
    ("entries", "ids"),
    [
        (
            [{"id": f"finding-{n}", "task_id": "other"} for n in range(200)],
            [f"finding-{n}" for n in range(200)],
        ),
        ([{"task_id": f"task-{n}", "name": "other"} for n in range(200)], [f"task-{n}" for n in range(200)]),
        ([{"spec_id": f"spec-{n}"} for n in range(200)], [f"spec-{n}" for n in range(200)]),
        ([{"chunk_id": n} for n in range(400)], [str(n) for n in range(400)]),
        ([f"just text {n}" for n in range(200)], [f"entries-{n + 1}" for n in range(200)]),
        ([{"id": None, "text": n} for n in range(200)], [f"entries-{n + 1}" for n in range(200)]),
    ],
    ids=["id", "task_id", "spec_id", "a number", "no id", "a null"],
)
def test_a_dropped_entry_is_named_by_its_id_or_its_place(entries, ids):
    response = answered({"entries": entries})

    fitted = fit(response, count(response) - 50, count)

    left = len(fitted.response.data["entries"])
    assert level(fitted) == "partial"
    assert fitted.kept[0].ids == ids[left:]
    assert fitted.response.meta["dropped_content_ids"] == ids[left:][:50]


def test_at_most_fifty_ids_are_named_and_the_count_says_how_many_there_are():
    response = answered({"rows": rows(300)})

    fitted = fit(response, 2000, count)

    dropped = 300 - len(fitted.response.data["rows"])
    assert dropped > 50
    assert len(fitted.response.meta["dropped_content_ids"]) == 50
    assert fitted.response.meta["warning_details"][-1]["context"]["dropped_count"] == dropped
    assert len(fitted.kept[0].ids) == dropped


def test_no_two_dropped_entries_of_a_list_have_the_same_id():
    entries = [{"task_id": "task-1-1", "title": f"Entry {n}", "content": "words " * 20} for n in range(30)]

    fitted = fit(answered({"entries": entries}), 1000, count)

    ids = fitted.response.meta["dropped_content_ids"]
    assert len(set(ids)) == len(ids) == 30 - len(fitted.response.data["entries"])


# what a shortened answer says


FINDINGS: dict[str, Any] = {
    "research_id": "research-001",
    "findings": [
        {"id": f"finding-{n:03d}", "title": title, "content": f"What was found, at length: {title}. " * 12}
        for n, title in enumerate(
            ["Primary result", "Secondary result", "Third result", "Fourth result", "Fifth result"], start=1
        )
    ],
    "total_findings": 5,
}


@shows("000.example.fidelity-produced", "000.warning-cause.CONTENT_TRUNCATED")
def test_five_findings_in_a_budget_for_two_are_the_example_of_the_document():
    response = answered(FINDINGS)
    tried = (fit(response, budget, count) for budget in range(LEAST, count(response)))

    fitted = next(one for one in tried if len(one.response.data.get("findings", ())) == 2)

    meta = fitted.response.meta
    assert fitted.response.data == {**FINDINGS, "findings": FINDINGS["findings"][:2]}
    assert fitted.response.data["total_findings"] == 5
    assert meta["content_fidelity_schema_version"] == "1.0"
    assert meta["content_fidelity"] == "partial"
    assert meta["dropped_content_ids"] == ["finding-003", "finding-004", "finding-005"]
    ((name, key),) = meta["content_archive_hashes"].items()
    ((content, kept_name, ids),) = fitted.kept
    assert (name, key) == ("findings-archive", fitted.kept[0].hash)
    assert content == encode(FINDINGS["findings"][2:])
    assert (kept_name, ids) == ("findings", ["finding-003", "finding-004", "finding-005"])
    (detail,) = meta["warning_details"]
    assert (detail["code"], detail["severity"]) == ("CONTENT_TRUNCATED", "info")
    assert meta["warnings"] == [detail["message"]]
    assert "3 of 5" in detail["message"]
    assert detail["context"] == {
        "dropped_count": 3,
        "total_count": 5,
        "unit": "entries",
        "reason": "token_limit_exceeded",
        "vocabulary": "o200k_base",
    }


def shortened_to(wanted, response):
    """The answer at this level with the largest budget that leads to it."""
    for budget in range(count(response) - 1, LEAST - 1, -7):
        fitted = fit(response, budget, count)
        if level(fitted) == wanted:
            return fitted
    raise AssertionError(f"no budget leads to {wanted}")


condensed = pytest.mark.parametrize("wanted", ["partial", "summary", "reference_only"])


@shows("000.fidelity-produced.warning")
@condensed
def test_a_shortened_answer_warns_with_content_truncated_as_a_string_and_in_detail(wanted):
    meta = shortened_to(wanted, answered(LONG)).response.meta

    (detail,) = meta["warning_details"]
    assert (detail["code"], detail["severity"]) == ("CONTENT_TRUNCATED", "info")
    assert detail["context"]["reason"] == "token_limit_exceeded"
    assert meta["warnings"] == [detail["message"]]


@condensed
def test_the_warning_of_every_level_counts_what_was_left_out(wanted):
    fitted = shortened_to(wanted, answered(LONG))

    context = fitted.response.meta["warning_details"][-1]["context"]
    if wanted == "partial":
        ids = [content_id for part in fitted.kept for content_id in part.ids]
        assert (context["unit"], context["dropped_count"], context["total_count"]) == (
            "entries",
            len(ids),
            80,
        )
    else:
        whole, rest = len(encode(LONG)), len(encode(fitted.response.data))
        assert (context["unit"], context["dropped_count"]) == ("bytes", whole - rest)
        assert context["total_count"] == whole


@condensed
def test_what_the_operation_warned_of_is_still_said(wanted):
    failed = warning("PARTIAL_FAILURE", "2 of 30 changes failed", failed=2)
    meta = shortened_to(wanted, answered(LONG, warning_details=[failed])).response.meta

    assert meta["warning_details"][0] == failed
    assert [detail["message"] for detail in meta["warning_details"]] == meta["warnings"]


PAGE = {
    "cursor": encode_cursor("0123456789ab", after=["phase-1", "task-1-50"]),
    "has_more": True,
    "total_count": 500,
    "page_size": 50,
}


@condensed
def test_a_page_keeps_its_pagination_at_every_level(wanted):
    meta = shortened_to(wanted, answered(LONG, pagination=PAGE)).response.meta

    assert meta["pagination"] == PAGE


@condensed
def test_request_id_and_telemetry_stay_at_every_level(wanted):
    meta = shortened_to(wanted, answered(LONG)).response.meta

    assert meta["request_id"] == "req_123456789012"
    assert meta["telemetry"] == {"duration_ms": 12.34}


# every contract


@every_contract
def test_a_shortened_answer_fits_and_is_valid_in_every_contract(contract):
    response = answered(
        {**LONG, "error": "a key that the flat form needs", "table": {f"t-{n}": {"n": n} for n in range(90)}},
        pagination=PAGE,
    )

    def measure(candidate):
        return count_tokens(encode(wire_of(candidate, contract)))

    seen = set()
    for budget in range(LEAST, measure(response) + 1, 40):
        fitted = fit(response, budget, measure)
        wire = msgspec.json.decode(encode(wire_of(fitted.response, contract)))
        assert count_tokens(encode(wire)) <= budget
        validator(contract).validate(wire)
        assert encode(rebuilt(fitted)) == encode(response.data)
        seen.add(level(fitted))

    assert "partial" in seen


@every_contract
def test_the_least_budget_holds_any_answer_in_every_contract(contract):
    """With everything that the runtime may put beside the payload."""
    response = success_response(
        {"rows": ["🙂ﷺ" * 50] * 500},
        request_id="req_123456789012",
        telemetry={"duration_ms": 123.45},
        pagination=PAGE,
        rate_limit={"limit": 10_000, "remaining": 999, "reset_at": "2026-01-01T00:00:00Z"},
        warning_details=[warning("RATE_LIMIT_APPROACHING", "999 of 10000 calls are left", reset_at="2026")],
    )

    def measure(candidate):
        return count_tokens(encode(wire_of(candidate, contract)))

    assert measure(fit(response, LEAST, measure).response) <= LEAST


@every_contract
def test_a_shortened_answer_names_its_hashes_in_every_contract(contract):
    response = answered(LONG)

    fitted = fit(response, 900, lambda one: count_tokens(encode(wire_of(one, contract))))

    said = encode(wire_of(fitted.response, contract)).decode()
    assert fitted.kept
    assert all(part.hash in said for part in fitted.kept)
