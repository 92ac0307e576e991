"""One answer, three wire forms: nothing lost, each valid against its schema, and how a client chooses."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import (  # type: ignore[import-untyped, unused-ignore] # its stubs are a package of their own
    Draft202012Validator,
    FormatChecker,
)

from foundry_mcp.core.contracts import (
    KNOWLEDGE_VERSION,
    V1_DEPRECATION,
    Contract,
    encode,
    negotiate,
    parse_contract,
    render,
)
from foundry_mcp.core.errors import ERROR_CODES, ERROR_TYPES, ValidationError
from foundry_mcp.core.knowledge.models import (
    ExecutionContext,
    KnowledgeFailure,
    KnowledgeSuccess,
    MCPResponseEnvelope,
    PaginationMetadata,
    ResponseMetadata,
    ResponseWarning,
)
from foundry_mcp.core.responses import (
    CONTENT_FIDELITY_LEVELS,
    WARNING_CODES,
    ToolResponse,
    error_response,
    success_response,
    warning,
)
from foundry_mcp.core.schemas import json_schema

shows = pytest.mark.requirement
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NOON = datetime(2025, 11, 9, 12, 0, tzinfo=UTC)
SCHEMAS = {
    contract: Draft202012Validator(json_schema(contract.value), format_checker=FormatChecker())
    for contract in Contract
}

# Random answers, built only through the helpers


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
words = st.text("abcdefghij _-.", min_size=1, max_size=12)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
keys = words | st.sampled_from(["success", "error", "_warnings", "_meta", "data", "meta", "pagination"])
payloads = st.dictionaries(keys, json_values, max_size=5)
counts = st.integers(0, 10**6)
codes = st.sampled_from([*WARNING_CODES, "SOMETHING_ELSE"])
warning_details = st.fixed_dictionaries(
    {"message": text},
    optional={
        "code": codes,
        "severity": st.sampled_from(["info", "warning", "error"]),
        "context": st.dictionaries(words, json_values, max_size=2),
    },
)
paginations = st.one_of(
    st.fixed_dictionaries(
        {"cursor": words, "has_more": st.just(True), "page_size": st.integers(1, 500)},
        optional={"total_count": counts},
    ),
    st.fixed_dictionaries(
        {"has_more": st.just(False)}, optional={"total_count": counts, "page_size": counts}
    ),
)
common = {
    "request_id": st.from_regex(r"\Areq_[0-9a-f]{12}\Z"),
    "rate_limit": st.fixed_dictionaries(
        {}, optional={"limit": counts, "remaining": counts, "reset_at": words}
    ),
    "telemetry": st.fixed_dictionaries(
        {}, optional={"duration_ms": st.floats(0, 1e6), "cache_hit": st.booleans()}
    ),
    "meta": st.fixed_dictionaries({}, optional={"replayed": st.booleans(), "note": json_values}),
}
successes = st.builds(
    lambda data, optional: success_response(data, **optional),
    payloads,
    st.fixed_dictionaries(
        {},
        optional={
            **common,
            "warnings": st.lists(text, max_size=3),
            "warning_details": st.lists(warning_details, max_size=3),
            "pagination": paginations,
            "content_fidelity": st.sampled_from(CONTENT_FIDELITY_LEVELS),
            "dropped_content_ids": st.lists(words, max_size=3),
            "content_archive_hashes": st.dictionaries(words, words, max_size=2),
        },
    ),
)
failures = st.builds(
    lambda message, kind, optional: error_response(message, **kind, **optional),
    text.filter(bool),
    st.one_of(
        st.builds(lambda code: {"error_code": code}, st.sampled_from(sorted(ERROR_CODES))),
        st.builds(lambda kind: {"error_type": kind}, st.sampled_from(sorted(ERROR_TYPES))),
        st.builds(
            lambda kind: {"error_code": "OF_ANOTHER_SERVER", "error_type": kind},
            st.sampled_from(sorted(ERROR_TYPES)),
        ),
    ),
    st.fixed_dictionaries(
        {},
        optional={
            **common,
            "remediation": words,
            "details": st.dictionaries(
                words | st.sampled_from(["code", "message", "details", "allowed_fields"]),
                json_values,
                max_size=3,
            ),
            "data": st.dictionaries(words.map("x_{}".format), json_values, max_size=3),
            "retryable": st.booleans(),
            "retry_after_seconds": st.floats(0, 1e6),
            "effect": st.sampled_from(["none", "applied", "unknown"]),
        },
    ),
)
answers = st.one_of(successes, failures)


def on_the_wire(answer: ToolResponse, contract: Contract) -> Any:
    return json.loads(encode(render(answer, contract, operation="task.query", at=NOON)))


# All three forms


@shows("003.data.validated", "000.rule.standard-envelope")
@calm
@given(answers, st.sampled_from(Contract))
def test_every_answer_is_valid_in_every_wire_form(answer, contract):
    wire = on_the_wire(answer, contract)
    assert [error.message for error in SCHEMAS[contract].iter_errors(wire)] == []


@calm
@given(answers)
def test_response_v2_is_the_answer_itself(answer):
    wire = on_the_wire(answer, Contract.V2)

    assert list(wire) == ["success", "data", "error", "meta"]
    assert ToolResponse(**wire) == answer


def test_an_answer_is_encoded_compactly_in_the_order_of_the_contract():
    wire = encode(render(success_response(n=1), Contract.V2, operation="x"))
    assert wire == b'{"success":true,"data":{"n":1},"error":null,"meta":{"version":"response-v2"}}'


# The legacy form


@shows("002.reserved._meta", "002.reserved._warnings", "003.flag.legacy-form", "000.rollout.v1-on-request")
def test_the_legacy_form_is_flat_with_reserved_keys_and_says_that_it_is_deprecated():
    answer = success_response(
        tasks=[], total_count=0, warnings=["Old"], request_id="req_1", telemetry={"duration_ms": 1}
    )
    assert render(answer, Contract.V1, operation="task.query") == {
        "success": True,
        "tasks": [],
        "total_count": 0,
        "error": None,
        "_warnings": ["Old", V1_DEPRECATION],
        "_meta": {"version": "response-v1", "request_id": "req_1", "telemetry": {"duration_ms": 1}},
    }


def test_a_failure_in_the_legacy_form_keeps_its_error_fields_at_the_top():
    wire = render(error_response("No", error_code="NOT_FOUND"), Contract.V1, operation="x")

    assert (wire["success"], wire["error"], wire["error_code"]) == (False, "No", "NOT_FOUND")
    assert wire["_warnings"] == [V1_DEPRECATION]


@calm
@given(answers)
def test_the_legacy_form_loses_nothing(answer):
    wire = on_the_wire(answer, Contract.V1)
    reserved = {"success", "error", "_warnings", "_meta"}
    meta = wire["_meta"]
    restored = {key: value for key, value in wire.items() if key not in reserved} | meta.pop("shadowed", {})

    assert wire["success"] is answer.success
    assert wire["error"] == answer.error
    assert restored == answer.data
    assert wire["_warnings"] == [*answer.meta.get("warnings", []), V1_DEPRECATION]
    assert meta == {k: v for k, v in answer.meta.items() if k != "warnings"} | {"version": "response-v1"}


@calm
@given(answers)
def test_rendering_leaves_the_answer_as_it_was(answer):
    before = encode([answer.data, answer.meta])
    for contract in Contract:
        render(answer, contract, operation="x", at=NOON)
    assert encode([answer.data, answer.meta]) == before


def test_payload_keys_that_the_legacy_form_needs_for_itself_are_kept_aside():
    wire = render(success_response({"error": "a word", "_meta": 1, "n": 2}), Contract.V1, operation="x")

    assert wire["error"] is None
    assert wire["n"] == 2
    assert wire["_meta"]["shadowed"] == {"error": "a word", "_meta": 1}


# The knowledge form


@shows("004.envelope.success", "004.envelope.failure")
@calm
@given(answers)
def test_the_models_of_the_knowledge_contract_accept_every_answer(answer):
    wire = on_the_wire(answer, Contract.KNOWLEDGE)
    model = KnowledgeSuccess if answer.success else KnowledgeFailure
    other = KnowledgeFailure if answer.success else KnowledgeSuccess

    read = model.model_validate(wire)
    assert MCPResponseEnvelope[Any].model_validate(wire).metadata.status == read.metadata.status
    assert read.execution_context.request_id == read.metadata.request_id == answer.meta.get("request_id", "")
    assert {w.message for w in read.warnings} == set(answer.meta.get("warnings", []))
    with pytest.raises(ValueError, match="status"):
        other.model_validate(wire)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("_metadata", "operation"), "semantic_search", marks=shows("004.metadata.operation")),
        pytest.param(("_metadata", "version"), KNOWLEDGE_VERSION, marks=shows("004.metadata.version")),
        pytest.param(
            ("_metadata", "timestamp"), "2025-11-09T12:00:00.000Z", marks=shows("004.metadata.timestamp")
        ),
        pytest.param(("_metadata", "request_id"), "req_7f3a2b1c", marks=shows("004.metadata.request_id")),
        pytest.param(("_metadata", "status"), "success", marks=shows("004.metadata.status")),
        pytest.param(("_metadata", "message"), None, marks=shows("004.metadata.message")),
        pytest.param(("results",), [{"chunk_id": 123}], marks=shows("004.envelope.results")),
        pytest.param(("pagination", "cursor"), "abc", marks=shows("004.pagination.cursor")),
        pytest.param(("pagination", "page_size"), 10, marks=shows("004.pagination.page_size")),
        pytest.param(("pagination", "has_more"), True, marks=shows("004.pagination.has_more")),
        pytest.param(("pagination", "total_available"), 42, marks=shows("004.pagination.total_available")),
        pytest.param(
            ("execution_context", "tokens_estimated"), 2450, marks=shows("004.execution.tokens_estimated")
        ),
        pytest.param(("execution_context", "tokens_used"), 2523, marks=shows("004.execution.tokens_used")),
        pytest.param(("execution_context", "cache_hit"), True, marks=shows("004.execution.cache_hit")),
        pytest.param(
            ("execution_context", "execution_time_ms"), 156.3, marks=shows("004.execution.execution_time_ms")
        ),
        pytest.param(
            ("execution_context", "request_id"), "req_7f3a2b1c", marks=shows("004.execution.request_id")
        ),
        pytest.param(("warnings",), [], marks=shows("004.envelope.warnings")),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else None,
)
def test_each_field_of_the_knowledge_form_has_its_place(path, value):
    answer = success_response(
        results=[{"chunk_id": 123}],
        request_id="req_7f3a2b1c",
        pagination={"cursor": "abc", "page_size": 10, "has_more": True, "total_count": 42},
        telemetry={"tokens_estimated": 2450, "tokens_used": 2523, "cache_hit": True, "duration_ms": 156.3},
    )
    found: Any = render(answer, Contract.KNOWLEDGE, operation="semantic_search", at=NOON)
    assert list(found) == ["_metadata", "results", "pagination", "execution_context", "warnings"]
    for key in path:
        found = found[key]
    assert found == value


def test_the_timestamp_is_now_with_a_timezone():
    stamp = render(success_response(), Contract.KNOWLEDGE, operation="x")["_metadata"]["timestamp"]
    assert datetime.fromisoformat(stamp).utcoffset() == timedelta(0)
    elsewhere = NOON.astimezone(timezone(timedelta(hours=2)))
    later = render(success_response(), Contract.KNOWLEDGE, operation="x", at=elsewhere)
    assert later["_metadata"]["timestamp"] == "2025-11-09T14:00:00.000+02:00"


@shows("004.pagination.null")
@pytest.mark.parametrize("pagination", [None, {"has_more": False, "total_count": 3, "page_size": 10}])
def test_the_last_page_has_no_pagination_in_the_knowledge_form(pagination):
    wire = render(success_response(results=[], pagination=pagination), Contract.KNOWLEDGE, operation="x")
    assert wire["pagination"] is None


def test_another_tools_payload_is_the_result_in_the_knowledge_form():
    wire = render(success_response(spec={"id": "a"}, tasks=[]), Contract.KNOWLEDGE, operation="spec.get")
    assert wire["results"] == {"spec": {"id": "a"}, "tasks": []}


@shows("004.error.invalid-fields-form")
def test_an_error_in_the_knowledge_form_names_code_message_and_its_details():
    answer = error_response(
        "Invalid fields for response_mode",
        error_code="INVALID_FIELDS",
        details={"allowed_fields": ["chunk_id", "source_file"]},
    )
    wire = render(answer, Contract.KNOWLEDGE, operation="semantic_search", at=NOON)

    assert wire["_metadata"]["status"] == "error"
    assert wire["_metadata"]["message"] == "Invalid fields for response_mode"
    assert wire["results"] == []
    assert wire["error"] == {
        "code": "INVALID_FIELDS",
        "message": "Invalid fields for response_mode",
        "error_type": "validation",
        "remediation": ERROR_CODES["INVALID_FIELDS"].remediation,
        "retryable": False,
        "effect": "none",
        "allowed_fields": ["chunk_id", "source_file"],
    }


def test_details_that_would_cover_a_field_of_the_error_stay_in_details():
    answer = error_response("No", error_code="NOT_FOUND", details={"code": 7, "field": "spec_id"})
    error = render(answer, Contract.KNOWLEDGE, operation="x")["error"]

    assert error["code"] == "NOT_FOUND"
    assert error["details"] == {"code": 7, "field": "spec_id"}


@shows("004.status.partial")
@pytest.mark.parametrize("code", ["PARTIAL_RESULTS", "PARTIAL_FAILURE", "CONTENT_TRUNCATED"])
def test_a_warning_that_something_is_left_out_makes_the_status_partial(code):
    answer = success_response(results=[], warning_details=[warning(code, "Some left out")])
    assert render(answer, Contract.KNOWLEDGE, operation="x")["_metadata"]["status"] == "partial"

    whole = success_response(results=[], warning_details=[warning("CACHE_MISS_SLOW", "Slow")])
    assert render(whole, Contract.KNOWLEDGE, operation="x")["_metadata"]["status"] == "success"


@pytest.mark.parametrize(
    ("code", "level", "suggestion"),
    [
        pytest.param(code, level, suggestion, marks=shows(f"004.warning-suggestion.{code}"), id=code)
        for code, level, suggestion in [
            ("TOKEN_LIMIT_WARNING", "warning", "Use metadata mode or reduce page_size"),
            ("TOKEN_LIMIT_EXCEEDED", "error", "Use ids_only mode"),
            ("CACHE_MISS_SLOW", "info", "Query will be cached for next time"),
            ("LOW_QUALITY_RESULTS", "info", "Try different keywords"),
            ("PARTIAL_RESULTS", "warning", "Reduce page_size for complete results"),
            ("DEPRECATED_PARAMETER", "warning", "Use suggested alternative"),
        ]
    ],
)
def test_each_knowledge_warning_has_its_level_and_suggestion(code, level, suggestion):
    answer = success_response(warning_details=[warning(code, "Something")])
    assert render(answer, Contract.KNOWLEDGE, operation="x")["warnings"] == [
        {"level": level, "code": code, "message": "Something", "suggestion": suggestion}
    ]


def test_a_warning_may_bring_its_own_suggestion_and_a_plain_one_has_none():
    detail = warning("TOKEN_LIMIT_WARNING", "Near", suggestion="Ask for 5")
    wire = render(
        success_response(warnings=["Plain"], warning_details=[detail]), Contract.KNOWLEDGE, operation="x"
    )

    assert wire["warnings"] == [
        {"level": "warning", "code": "TOKEN_LIMIT_WARNING", "message": "Near", "suggestion": "Ask for 5"},
        {"level": "warning", "code": "GENERAL_WARNING", "message": "Plain", "suggestion": None},
    ]


# Answers that another tool may give


@pytest.mark.parametrize(
    "answer",
    [
        success_response(pagination={"cursor": "abc", "has_more": True}),
        success_response(pagination={"cursor": "abc", "has_more": True, "page_size": 0}),
        success_response(telemetry={"tokens_used": 100}),
        success_response(results="text"),
        success_response(results=None),
        success_response(warning_details=[warning("STALE_CACHE", "Old", suggestion=5)]),
        error_response("No", error_code="NOT_FOUND", data={"code": 7}),
        error_response("No", error_code="NOT_FOUND", data={"message": None}),
    ],
)
def test_the_models_accept_answers_at_the_edges_too(answer):
    model = KnowledgeSuccess if answer.success else KnowledgeFailure
    model.model_validate(on_the_wire(answer, Contract.KNOWLEDGE))


def test_the_knowledge_form_keeps_what_stands_beside_results():
    wire = on_the_wire(success_response(processed=8, failed=2, results=[1]), Contract.KNOWLEDGE)
    assert '"processed":8' in encode(wire).decode()


# The rules of the knowledge models


def envelope(**changes: Any) -> dict[str, Any]:
    wire = render(
        success_response(results=[], request_id="req_1"), Contract.KNOWLEDGE, operation="x", at=NOON
    )
    return wire | changes


@pytest.mark.parametrize(
    ("model", "fields", "message"),
    [
        pytest.param(
            ResponseMetadata,
            {"operation": "x", "timestamp": "2025-11-09T10:30:00", "request_id": "r", "status": "success"},
            "timezone",
            marks=shows("004.rule.timestamp"),
        ),
        pytest.param(
            ResponseMetadata,
            {"operation": "x", "timestamp": "yesterday", "request_id": "r", "status": "success"},
            "timestamp",
        ),
        pytest.param(
            ResponseMetadata,
            {"operation": "x", "timestamp": "2025-11-09T10:30:00Z", "request_id": "r", "status": "done"},
            "'success', 'partial' or 'error'",
            marks=shows("004.rule.status"),
        ),
        pytest.param(
            ExecutionContext,
            {
                "tokens_estimated": 1000,
                "tokens_used": 1101,
                "cache_hit": False,
                "execution_time_ms": 1,
                "request_id": "r",
            },
            "by more than 10%",
            marks=shows("004.rule.tokens"),
        ),
        pytest.param(
            ExecutionContext,
            {"tokens_estimated": 1, "cache_hit": False, "execution_time_ms": 0, "request_id": "r"},
            "greater than 0",
            marks=shows("004.rule.execution-time"),
        ),
        pytest.param(
            ResponseWarning,
            {"level": "fatal", "code": "A", "message": "x"},
            "'info', 'warning' or 'error'",
            marks=shows("004.warning-field.level"),
        ),
        pytest.param(
            ResponseWarning,
            {"level": "info", "code": "aB", "message": "x"},
            "pattern",
            marks=shows("004.warning-field.code"),
        ),
        pytest.param(
            ResponseWarning,
            {"level": "info", "code": "A"},
            "message",
            marks=shows("004.warning-field.message"),
        ),
        pytest.param(
            ResponseWarning,
            {"level": "info", "code": "A", "message": "x", "suggestion": 5},
            "suggestion",
            marks=shows("004.warning-field.suggestion"),
        ),
        pytest.param(
            PaginationMetadata, {"cursor": "a", "page_size": 0, "has_more": True}, "greater than or equal"
        ),
        pytest.param(PaginationMetadata, {"page_size": 1, "has_more": True}, "cursor"),
    ],
)
def test_each_validation_rule_of_the_knowledge_models_is_held(model, fields, message):
    with pytest.raises(ValueError, match=message):
        model.model_validate(fields)


@shows("004.rule.request-id-matches")
def test_the_two_request_ids_of_a_knowledge_answer_must_match():
    good = envelope()
    KnowledgeSuccess.model_validate(good)
    with pytest.raises(ValueError, match=r"must match _metadata\.request_id"):
        KnowledgeSuccess.model_validate(
            envelope(execution_context=good["execution_context"] | {"request_id": "req_2"})
        )


def test_tokens_used_may_exceed_the_estimate_by_a_tenth():
    fields = {"tokens_estimated": 1000, "cache_hit": False, "execution_time_ms": 1, "request_id": "r"}
    assert ExecutionContext.model_validate(fields | {"tokens_used": 1100}).tokens_used == 1100
    assert ExecutionContext.model_validate(fields).tokens_used is None


# Choosing


@pytest.mark.parametrize(
    ("name", "contract"),
    [
        pytest.param("v2", Contract.V2, marks=shows("003.negotiation.v2")),
        ("response-v2", Contract.V2),
        ("2", Contract.V2),
        (" V2 ", Contract.V2),
        ("Response-V2", Contract.V2),
        pytest.param("v1", Contract.V1, marks=shows("003.negotiation.v1")),
        ("response-v1", Contract.V1),
        ("1", Contract.V1),
        ("knowledge", Contract.KNOWLEDGE),
        ("knowledge-1.0.0", Contract.KNOWLEDGE),
        ("1.0.0", Contract.KNOWLEDGE),
    ],
)
def test_a_contract_is_known_by_its_usual_spellings(name, contract):
    assert parse_contract(name) is contract
    assert negotiate(name) is contract
    assert negotiate([name]) is contract


@pytest.mark.parametrize(
    ("wanted", "contract"),
    [
        (["v3", "v2", "v1"], Contract.V2),
        (["v1", "v2"], Contract.V1),
        (("v9", "knowledge"), Contract.KNOWLEDGE),
        ([5, None, ["v2"], "v1"], Contract.V1),
        (iter(["x", "v2"]), Contract.V2),
    ],
)
def test_a_list_is_negotiated_in_the_clients_order(wanted, contract):
    assert negotiate(wanted) is contract


@pytest.mark.parametrize("wanted", ["v3", "", "response", ["v3", "v4"], ["v3"], [5], [None]])
def test_an_unknown_contract_is_refused_with_the_known_ones(wanted):
    with pytest.raises(ValidationError) as caught:
        negotiate(wanted)
    assert caught.value.details["field"] == "response_contract"
    assert caught.value.details["allowed"] == ["v2", "v1", "knowledge"]


@pytest.mark.parametrize("wanted", [[], (), None, 2, 2.0, True, {"v2": 1}])
def test_what_names_no_contract_is_refused(wanted):
    with pytest.raises(ValidationError, match="must be a name or a list of names") as caught:
        negotiate(wanted)
    assert caught.value.details["field"] == "response_contract"


@pytest.mark.parametrize("name", [None, 2, ["v2"], b"v2", "v" * 1_000_000])
def test_a_name_that_is_no_contract_is_refused_shortly(name):
    with pytest.raises(ValidationError) as caught:
        parse_contract(name)
    assert len(caught.value.message) < 200
