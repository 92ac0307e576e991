"""What surrounds every call: whatever happens inside, an answer comes out, and the log knows more."""

import json
import re
from threading import Event
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from foundry_mcp.core.contracts import Contract
from foundry_mcp.core.errors import FoundryError, conflict, not_found, unavailable, validation
from foundry_mcp.core.flags import FLAGS, Flag
from foundry_mcp.operations.declaration import Answer, Session
from foundry_mcp.runtime import Request

shows = pytest.mark.requirement

ADD = {"action": "add"}
READ = {"action": "read"}
SECRET = "hunter2-/etc/shadow"


def declare(registry, run, *, tool="trial", writes=False, **settings):
    """A tool without actions around `run`."""

    def trial(call):
        """Try something."""
        return run(call)

    registry.operation(tool, cli=tool, writes=writes, **settings)(trial)


def failing(error):
    def run(call):
        raise error

    return run


# request ids and telemetry


@shows("003.best-practice.request-id")
@shows("000.meta-key.request_id-in-logs")
@pytest.mark.parametrize("tool", ["counter", "no such tool"])
def test_the_request_id_of_an_answer_is_the_one_in_the_log(make_bench, tool):
    bench = make_bench()

    outcome = bench.runtime.call(Request(tool, READ))

    (message, fields, error) = bench.log[-1]
    assert re.fullmatch(r"req_[0-9a-f]{12}", outcome.response.meta["request_id"])
    assert (message, fields["request_id"], error) == ("call", outcome.response.meta["request_id"], None)


def test_every_call_has_a_request_id_of_its_own(make_bench):
    bench = make_bench()

    ids = {bench.runtime.call(Request("counter", READ)).response.meta["request_id"] for _ in range(50)}

    assert len(ids) == 50


@shows("000.meta-key.telemetry-measured")
@pytest.mark.parametrize("arguments", [READ, {"action": "nonsense"}])
def test_an_answer_tells_how_long_it_took_since_it_was_received(make_bench, arguments):
    request = Request("counter", arguments)
    request.received -= 5.0

    outcome = make_bench().runtime.call(request)

    assert 5000 <= outcome.response.meta["telemetry"]["duration_ms"] < 5000 + 60_000


def test_what_the_operation_measured_stands_beside_the_duration(make_bench, registry):
    declare(registry, lambda call: Answer({}, telemetry={"cache_hit": True}))

    telemetry = make_bench().runtime.call(Request("trial", {})).response.meta["telemetry"]

    assert telemetry["cache_hit"] is True
    assert telemetry["duration_ms"] > 0


def test_the_body_is_the_wire_form_as_compact_json(make_bench):
    outcome = make_bench().runtime.call(Request("counter", ADD))

    assert outcome.body == json.dumps(outcome.wire, separators=(",", ":")).encode()


def test_pagination_of_an_operation_goes_out_in_meta(make_bench, registry):
    page = {"has_more": False, "total_count": 0}
    declare(registry, lambda call: Answer({"rows": []}, page))

    assert make_bench().runtime.call(Request("trial", {})).response.meta["pagination"] == page


@shows("000.checklist.helpers-everywhere")
def test_what_an_operation_returns_is_only_ever_the_payload(make_bench, registry):
    """Nothing an operation returns can take the place of the envelope around it."""
    declare(registry, lambda call: {"success": False, "meta": {"version": "mine"}, "error": "mine"})

    wire = make_bench().runtime.call(Request("trial", {})).wire

    assert (wire["success"], wire["error"], wire["meta"]["version"]) == (True, None, "response-v2")
    assert wire["data"] == {"success": False, "meta": {"version": "mine"}, "error": "mine"}


# exceptions


@shows("000.error-cause.INTERNAL_ERROR")
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(SECRET),
        KeyError(SECRET),
        OSError(13, "Permission denied", SECRET),
        RecursionError(SECRET),
        MemoryError(SECRET),
        UnicodeEncodeError("utf-8", SECRET, 0, 1, SECRET),
        AssertionError(SECRET),
        ExceptionGroup(SECRET, [ValueError(SECRET)]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_unexpected_exception_is_an_internal_error_that_tells_nothing_of_the_inside(
    make_bench, registry, error
):
    declare(registry, failing(error))
    bench = make_bench()

    outcome = bench.runtime.call(Request("trial", {}))

    said = outcome.body.decode()
    assert outcome.wire["success"] is False
    assert outcome.wire["data"]["error_code"] == "INTERNAL_ERROR"
    assert outcome.wire["data"]["error_type"] == "internal"
    assert outcome.wire["data"]["retryable"] is True
    for inside in ("hunter2", "shadow", "Traceback", "test_runtime", ".py", type(error).__name__):
        assert inside not in said
    (_, fields, logged), (_, closing, _) = bench.log
    assert logged is error
    assert fields["request_id"] == closing["request_id"] == outcome.wire["meta"]["request_id"]


def test_the_log_keeps_the_trace_of_an_unexpected_exception(make_bench, registry):
    declare(registry, failing(RuntimeError("boom")))
    bench = make_bench()

    bench.runtime.call(Request("trial", {}))

    logged = bench.log[0][2]
    frames = []
    trace = logged.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert frames[-1] == "run"


def test_a_typed_error_is_its_own_answer_and_no_trace_in_the_log(make_bench, registry):
    declare(registry, failing(not_found("spec", "nope", code="SPEC_NOT_FOUND", near=["nope-1"])))
    bench = make_bench()

    outcome = bench.runtime.call(Request("trial", {}))

    assert outcome.response.data["error_code"] == "SPEC_NOT_FOUND"
    assert outcome.response.data["details"]["nearest"] == ["nope-1"]
    assert [error for _, _, error in bench.log] == [None]


@pytest.mark.parametrize(
    "payload",
    [
        {"what": object()},
        {"what": "half a character \ud800"},
        {"what": {object(): 1}},
        {1: "a key that is no text"},
        ["no object"],
    ],
    ids=["object", "surrogate", "odd key", "number key", "list"],
)
def test_a_payload_that_cannot_be_sent_is_an_internal_error(make_bench, registry, payload):
    declare(registry, lambda call: payload)
    bench = make_bench()

    outcome = bench.runtime.call(Request("trial", {}))

    assert json.loads(outcome.body)["data"]["error_code"] == "INTERNAL_ERROR"
    assert bench.log[0][2] is not None


@pytest.mark.parametrize("details", [{"what": object()}, {"what": "\ud800"}], ids=["object", "surrogate"])
def test_a_typed_error_whose_details_cannot_be_sent_is_an_internal_error(make_bench, registry, details):
    declare(registry, failing(FoundryError("It failed", details=details)))
    bench = make_bench()

    outcome = bench.runtime.call(Request("trial", {}))

    assert json.loads(outcome.body)["data"]["error_code"] == "INTERNAL_ERROR"
    assert json.loads(outcome.body)["data"]["details"] == {}
    assert bench.log[0][2] is not None


def test_a_typed_error_that_contradicts_its_own_code_is_an_internal_error(make_bench, registry):
    """A code of another type cannot even be raised; what its author meant must still not reach a client."""

    def run(call):
        raise conflict("no", code="NOT_FOUND")

    declare(registry, run)

    outcome = make_bench().runtime.call(Request("trial", {}))

    assert outcome.response.data["error_code"] == "INTERNAL_ERROR"


def test_what_a_door_could_not_decode_gets_an_answer_too(make_bench):
    outcome = make_bench().runtime.refuse(Request("", {}), validation("message", "json", "it is no JSON"))

    assert outcome.wire["data"]["details"]["field"] == "message"
    assert outcome.understood is False


@pytest.mark.parametrize(
    ("tool", "arguments", "understood"),
    [
        ("counter", READ, True),
        ("counter", {"action": "add", "amount": "x"}, False),
        ("counter", {"action": "nonsense"}, False),
        ("nonsense", {}, False),
    ],
)
def test_an_outcome_says_whether_the_request_was_understood(make_bench, tool, arguments, understood):
    assert make_bench().runtime.call(Request(tool, arguments)).understood is understood


def test_an_operation_that_fails_was_understood_all_the_same(make_bench, registry):
    declare(registry, failing(not_found("thing", "x")))

    assert make_bench().runtime.call(Request("trial", {})).understood is True


# effects


@pytest.mark.parametrize(
    ("writes", "error", "effect"),
    [
        (False, RuntimeError(), "none"),
        (False, unavailable("not now"), "none"),
        (True, RuntimeError(), "unknown"),
        (True, unavailable("not now"), "unknown"),
        (True, not_found("thing", "x"), "none"),
        (True, validation("x", "y", "z"), "none"),
        (True, conflict("c"), "none"),
        (True, conflict("c", effect="unknown"), "unknown"),
        (True, conflict("c", effect="applied"), "applied"),
        (True, FoundryError("late", effect="applied"), "applied"),
        (True, FoundryError("early", effect="none"), "none"),
    ],
)
def test_a_failure_says_whether_it_changed_anything(make_bench, registry, writes, error, effect):
    declare(registry, failing(error), writes=writes)

    assert make_bench().runtime.call(Request("trial", {})).response.data["effect"] == effect


def test_a_write_that_was_refused_before_it_began_changed_nothing(make_bench):
    refused = make_bench().runtime.call(Request("counter", {"action": "add", "amount": "x"}))

    assert refused.response.data["effect"] == "none"


def test_a_write_whose_answer_cannot_be_sent_has_happened(make_bench, registry):
    declare(registry, lambda call: {"what": object()}, writes=True)

    assert make_bench().runtime.call(Request("trial", {})).response.data["effect"] == "applied"


# flags


@shows("000.error-cause.FEATURE_DISABLED")
def test_an_operation_behind_a_flag_that_is_off_is_not_run(make_bench, registry):
    ran = Event()

    def run(call):
        ran.set()
        return {}

    declare(registry, run, flag="shiny", writes=True)
    shiny = {**FLAGS, "shiny": Flag("shiny", "experimental", False, "Not yet for everyone")}
    bench = make_bench(known=shiny)

    outcome = bench.runtime.call(Request("trial", {}))

    assert not ran.is_set()
    assert outcome.response.data["error_code"] == "FEATURE_DISABLED"
    assert outcome.response.data["error_type"] == "feature_flag"
    assert outcome.response.data["feature"] == "shiny"
    assert outcome.response.data["effect"] == "none"
    assert outcome.understood is True


def test_an_operation_behind_a_flag_that_is_on_is_run(make_bench, registry):
    declare(registry, lambda call: {"ran": True}, flag="shiny")
    shiny = {**FLAGS, "shiny": Flag("shiny", "experimental", False, "Not yet for everyone")}

    outcome = make_bench(known=shiny, switches={"shiny": True}).runtime.call(Request("trial", {}))

    assert outcome.response.data == {"ran": True}


@shows("003.flag.enabled")
def test_with_the_contract_flag_on_which_is_the_default_answers_are_response_v2(make_bench):
    outcome = make_bench().runtime.call(Request("counter", READ))

    assert list(outcome.wire) == ["success", "data", "error", "meta"]
    assert outcome.wire["meta"]["version"] == "response-v2"


@shows("000.rollout.flag")
@shows("003.flag.disabled")
@pytest.mark.parametrize("arguments", [READ, {"action": "nonsense"}])
def test_with_the_contract_flag_off_answers_are_in_the_legacy_form(make_bench, arguments):
    bench = make_bench(switches={"response_contract_v2": False})

    wire = bench.runtime.call(Request("counter", arguments)).wire

    assert "data" not in wire
    assert wire["_meta"]["version"] == "response-v1"
    assert wire["success"] is (arguments is READ)
    assert wire["error"] == (None if arguments is READ else wire["error"])
    assert any("deprecated" in text for text in wire["_warnings"])


@pytest.mark.parametrize(
    ("request_form", "session_form", "flag_on", "operation_form", "expected"),
    [
        (None, None, True, Contract.V2, "v2"),
        (None, None, True, Contract.KNOWLEDGE, "knowledge"),
        (None, None, False, Contract.V2, "v1"),
        (None, None, False, Contract.KNOWLEDGE, "v1"),
        (None, Contract.V2, False, Contract.KNOWLEDGE, "v2"),
        (None, Contract.KNOWLEDGE, True, Contract.V2, "knowledge"),
        ("v1", Contract.KNOWLEDGE, True, Contract.V2, "v1"),
        ("knowledge", Contract.V2, False, Contract.V2, "knowledge"),
        ("response-v2", Contract.V1, False, Contract.KNOWLEDGE, "v2"),
    ],
)
def test_the_contract_is_the_requests_else_the_sessions_else_the_flags_else_the_operations(
    make_bench, registry, request_form, session_form, flag_on, operation_form, expected
):
    declare(registry, lambda call: {"x": 1}, contract=operation_form)
    bench = make_bench(switches={"response_contract_v2": flag_on})
    request = Request("trial", {}, Session(contract=session_form), contract=request_form)

    assert form_of(bench.runtime.call(request).wire) == expected


@pytest.mark.parametrize("asked", ["v9", "", 7, ["v1"], {"a": 1}, False])
def test_an_unknown_contract_is_refused_in_the_form_the_client_would_otherwise_get(make_bench, asked):
    outcome = make_bench().runtime.call(Request("counter", ADD, contract=asked))

    assert form_of(outcome.wire) == "v2"
    assert outcome.wire["data"]["details"]["field"] == "response_contract"
    assert outcome.wire["data"]["details"]["allowed"] == ["v2", "v1", "knowledge"]
    assert make_bench().runtime.call(Request("counter", READ)).response.data == {"total": 0}


def form_of(wire: dict[str, Any]) -> str:
    if "_metadata" in wire:
        assert wire["_metadata"]["version"] == "1.0.0"
        return "knowledge"
    version: str = (wire.get("meta") or wire["_meta"])["version"]
    return version.removeprefix("response-")


# warnings


def test_a_warning_of_an_operation_stands_in_the_answer_twice_as_text_and_as_structure(make_bench, registry):
    def run(call):
        call.warn("TASK_BLOCKED", "task-1 waits for task-2", waits_for="task-2")
        return {}

    declare(registry, run)

    meta = make_bench().runtime.call(Request("trial", {})).response.meta

    assert meta["warnings"] == ["task-1 waits for task-2"]
    assert meta["warning_details"] == [
        {
            "code": "TASK_BLOCKED",
            "severity": "warning",
            "message": "task-1 waits for task-2",
            "context": {"waits_for": "task-2"},
        }
    ]


def test_an_answer_without_warnings_has_no_warning_keys(make_bench):
    meta = make_bench().runtime.call(Request("counter", READ)).response.meta

    assert set(meta) == {"version", "request_id", "telemetry"}


# deadlines


@pytest.fixture
def stuck(registry):
    """A tool that waits until the test lets it go on."""
    release, ended = Event(), Event()

    def run(call):
        release.wait(30)
        ended.set()
        return {"done": True}

    declare(registry, run, tool="stuck", writes=True)
    declare(registry, run, tool="stuck_reader")
    yield release, ended
    release.set()


@pytest.mark.parametrize(("tool", "effect"), [("stuck", "unknown"), ("stuck_reader", "none")])
def test_a_call_that_does_not_end_within_its_deadline_is_answered_all_the_same(
    make_bench, stuck, tool, effect
):
    release, ended = stuck
    bench = make_bench()

    outcome = bench.runtime.call_within(Request(tool, {}), 0.01)

    assert outcome.response.data["error_code"] == "DEADLINE_EXCEEDED"
    assert outcome.response.data["retryable"] is True
    assert outcome.response.data["details"] == {"deadline_seconds": 0.01}
    assert outcome.response.data["effect"] == effect
    assert outcome.understood is True
    assert not ended.is_set()
    release.set()
    assert ended.wait(30)


def test_a_call_that_ends_in_time_is_its_own_answer(make_bench):
    outcome = make_bench().runtime.call_within(Request("counter", ADD), 30)

    assert outcome.response.data == {"total": 1}


def test_the_deadline_answer_to_an_unknown_tool_says_that_it_is_unknown(make_bench):
    outcome = make_bench().runtime.expire(Request("nonsense", {}), 1)

    assert outcome.response.data["details"]["field"] == "name"
    assert outcome.response.data["effect"] == "none"


def test_the_deadline_answer_has_the_request_id_the_client_will_ask_for(make_bench):
    request = Request("counter", ADD)

    outcome = make_bench().runtime.expire(request, 1)

    assert outcome.wire["meta"]["request_id"] == request.request_id


# metrics


@shows("000.rollout.telemetry-counters")
@shows("002.rollout.telemetry-counters")
def test_calls_are_counted_by_operation_outcome_and_code(make_bench, registry):
    declare(registry, failing(not_found("thing", "x")))
    bench = make_bench()

    bench.runtime.call(Request("counter", READ))
    bench.runtime.call(Request("counter", READ))
    bench.runtime.call(Request("counter", {**READ, "x": 1}))
    bench.runtime.call(Request("trial", {}))

    rows = [{k: v for k, v in row.items() if k != "mean_ms"} for row in bench.surroundings.metrics.describe()]
    assert rows == [
        {"operation": "counter.read", "outcome": "error", "code": "VALIDATION_ERROR", "count": 1},
        {"operation": "counter.read", "outcome": "success", "count": 2},
        {"operation": "trial", "outcome": "error", "code": "NOT_FOUND", "count": 1},
    ]


def test_unknown_names_are_one_series_however_many_a_client_makes_up(make_bench):
    bench = make_bench()

    for number in range(20):
        bench.runtime.call(Request(f"made-up-{number}", {}))
        bench.runtime.call(Request("counter", {"action": f"made-up-{number}"}))

    (row,) = bench.surroundings.metrics.describe()
    assert (row["operation"], row["code"], row["count"]) == ("unknown", "VALIDATION_ERROR", 40)


def test_the_prometheus_text_says_the_same_to_prometheus_own_parser(make_bench):
    bench = make_bench()
    for received in (0.0, 0.0, 3.0):
        request = Request("counter", READ)
        request.received -= received
        bench.runtime.call(request)
    bench.runtime.call(Request("nonsense", {}))

    families = {f.name: f for f in text_string_to_metric_families(bench.surroundings.metrics.prometheus())}

    counted = {
        (s.labels["operation"], s.labels["outcome"], s.labels["code"]): s.value
        for s in families["foundry_calls"].samples
        if s.name == "foundry_calls_total"
    }
    assert counted == {
        ("counter.read", "success", ""): 3,
        ("unknown", "error", "VALIDATION_ERROR"): 1,
    }
    buckets = {
        s.labels["le"]: s.value
        for s in families["foundry_call_duration_seconds"].samples
        if s.name.endswith("_bucket") and s.labels["operation"] == "counter.read"
    }
    assert buckets["+Inf"] == buckets["10.0"] == 3
    assert buckets["2.5"] == 2
    assert list(buckets.values()) == sorted(buckets.values())


def test_the_name_of_a_client_is_cut_before_it_is_logged(make_bench):
    bench = make_bench()

    bench.runtime.call(Request("counter", READ, Session(client="c" * 100_000)))

    assert len(bench.log[-1][1]["client"]) <= 200
