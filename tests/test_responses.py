"""The envelope: what both helpers build, and everything they refuse to build."""

import json
import re
import subprocess
import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, asdict
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundry_mcp.core.errors import ERROR_CODES, ERROR_TYPES, conflict, feature_disabled, rate_limited
from foundry_mcp.core.responses import (
    CONTENT_FIDELITY_LEVELS,
    CONTENT_FIDELITY_SCHEMA_VERSION,
    RESPONSE_VERSION,
    WARNING_CODES,
    ContractViolation,
    ToolResponse,
    error_response,
    failure_response,
    new_request_id,
    success_response,
    warning,
)

shows = pytest.mark.requirement
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
payloads = st.dictionaries(st.text(min_size=1), json_values, max_size=6)

META = {"version": "response-v2"}


# The four keys


@pytest.mark.parametrize(
    ("key", "in_success", "in_failure"),
    [
        pytest.param(
            "success",
            True,
            False,
            marks=shows(
                "000.envelope.success",
                "001.field.success",
                "002.envelope.success",
                "003.top-level.success",
                "003.success.true",
                "003.success.false",
            ),
        ),
        pytest.param(
            "data",
            {"n": 1},
            {
                "error_code": "NOT_FOUND",
                "error_type": "not_found",
                "remediation": "Look.",
                "details": {},
                "retryable": False,
                "effect": "none",
            },
            marks=shows("000.envelope.data", "001.field.data", "002.envelope.data", "003.top-level.data"),
        ),
        pytest.param(
            "error",
            None,
            "No such thing",
            marks=shows(
                "000.envelope.error",
                "001.field.error",
                "002.envelope.error",
                "003.top-level.error",
                "003.error.null",
                "003.error.string",
            ),
        ),
        pytest.param(
            "meta",
            META,
            META,
            marks=shows("000.envelope.meta", "001.field.meta", "002.envelope.meta", "003.top-level.meta"),
        ),
    ],
)
def test_every_answer_has_the_four_keys_and_no_other(key, in_success, in_failure):
    good = asdict(success_response(data={"n": 1}))
    bad = asdict(error_response("No such thing", error_code="NOT_FOUND", remediation="Look."))

    assert list(good) == list(bad) == ["success", "data", "error", "meta"]
    assert good[key] == in_success
    assert bad[key] == in_failure


@shows("000.envelope.empty-data", "001.field.empty-data", "002.envelope.empty-data", "003.data.empty")
def test_no_payload_is_an_empty_object():
    assert asdict(success_response()) == {"success": True, "data": {}, "error": None, "meta": META}
    assert ToolResponse(success=True) == success_response()


@shows("000.helper.asdict", "000.checklist.asdict", "002.checklist.asdict", "002.helper.asdict")
@calm
@given(payloads)
def test_asdict_gives_the_wire_form_with_the_payload_untouched(payload):
    wire = asdict(success_response(data=payload))

    assert wire["data"] == payload
    assert json.loads(json.dumps(wire)) == wire


@shows("002.helper.payload-spelling")
def test_the_payload_may_be_spelled_as_data_as_keywords_or_both():
    spelled = success_response(spec={"id": "a"}, tasks=[])

    assert spelled == success_response(data={"spec": {"id": "a"}, "tasks": []})
    assert spelled == success_response({"spec": {"id": "a"}}, tasks=[])
    assert success_response(OrderedDict(n=1)).data == {"n": 1}
    assert type(success_response(MappingProxyType({"n": 1})).data) is dict


def test_a_key_given_in_both_spellings_is_refused():
    with pytest.raises(ContractViolation, match="'n' was given both in data and as a keyword"):
        success_response({"n": 1}, n=2)


def test_building_an_answer_does_not_change_what_it_was_built_from():
    data, meta, details = {"n": 1}, {"page": "x"}, {"field": "spec_id"}
    success_response(data, extra=2, meta=meta, warnings=["w"])
    error_response("No", error_code="NOT_FOUND", details=details, data=data, meta=meta)

    assert (data, meta, details) == ({"n": 1}, {"page": "x"}, {"field": "spec_id"})


@shows("000.rule.no-mutation")
def test_an_answer_cannot_be_changed_after_it_was_checked():
    field = "success"
    with pytest.raises(FrozenInstanceError):
        setattr(success_response(), field, False)


# Edge cases of the documents


@pytest.mark.parametrize(
    ("payload", "warnings"),
    [
        pytest.param(
            {"specs": [], "total_count": 0},
            None,
            id="empty",
            marks=shows(
                "000.edge-case.empty", "001.edge-case.empty", "002.edge-case.empty", "003.edge-case.empty"
            ),
        ),
        pytest.param(
            {"task_id": "task-1-2", "status": "blocked", "blocked_by": ["task-1-1"], "can_start": False},
            ["Task blocked by incomplete dependencies"],
            id="blocked",
            marks=shows(
                "000.edge-case.blocked",
                "001.edge-case.blocked",
                "002.edge-case.blocked",
                "003.edge-case.blocked",
            ),
        ),
        pytest.param(
            {"processed": 8, "failed": 2, "failures": [{"task_id": "task-003", "error": "Missing file"}]},
            ["2 tasks failed to process"],
            id="partial",
            marks=shows("000.edge-case.partial", "001.edge-case.partial", "003.edge-case.partial"),
        ),
        pytest.param(
            {"spec": {"id": "my-spec"}, "tasks": [{"id": "task-1"}], "progress": {"completed": 1}},
            None,
            id="several payloads",
            marks=shows(
                "000.edge-case.multi-payload", "001.edge-case.multi-payload", "002.edge-case.multi-payload"
            ),
        ),
    ],
)
def test_work_that_is_empty_blocked_partial_or_manifold_is_a_success(payload, warnings):
    wire = asdict(success_response(data=payload, warnings=warnings))

    assert wire["success"] is True
    assert wire["error"] is None
    assert wire["data"] == payload
    assert wire["meta"].get("warnings") == warnings


@shows("000.edge-case.missing", "002.edge-case.missing")
def test_a_missing_resource_is_a_failure_with_structured_data_and_a_sentence():
    wire = asdict(error_response("Spec not found: x", error_code="SPEC_NOT_FOUND"))

    assert wire["success"] is False
    assert wire["error"] == "Spec not found: x"
    assert wire["data"]["error_code"] == "SPEC_NOT_FOUND"
    assert wire["data"]["error_type"] == "not_found"


# Metadata


@pytest.mark.parametrize(
    ("key", "given_value"),
    [
        pytest.param(
            "request_id",
            "req_abc123",
            marks=shows("000.meta-key.request_id", "001.meta-key.request_id", "003.meta-key.request_id"),
        ),
        pytest.param(
            "warnings",
            ["Deprecated field used"],
            marks=shows("000.meta-key.warnings", "001.meta-key.warnings", "003.meta-key.warnings"),
        ),
        pytest.param(
            "warning_details",
            [{"code": "STALE_CACHE", "severity": "warning", "message": "old", "context": {"age": 7200}}],
            marks=shows("000.meta-key.warning_details"),
        ),
        pytest.param(
            "pagination",
            {"cursor": "abc", "has_more": True, "total_count": 150, "page_size": 20},
            marks=shows("000.meta-key.pagination", "001.meta-key.pagination", "003.meta-key.pagination"),
        ),
        pytest.param(
            "rate_limit",
            {"limit": 100, "remaining": 95, "reset_at": "2025-12-04T12:00:00Z"},
            marks=shows("000.meta-key.rate_limit", "001.meta-key.rate_limit", "003.meta-key.rate_limit"),
        ),
        pytest.param(
            "telemetry",
            {"duration_ms": 125.4, "db_queries": 3, "cache_hit": True},
            marks=shows("000.meta-key.telemetry", "001.meta-key.telemetry", "003.meta-key.telemetry"),
        ),
        pytest.param("content_fidelity", "partial", marks=shows("000.meta-key.content_fidelity")),
        pytest.param(
            "dropped_content_ids",
            ["finding-003", "source-015"],
            marks=shows("000.meta-key.dropped_content_ids", "000.fidelity-field.dropped_content_ids"),
        ),
        pytest.param(
            "content_archive_hashes",
            {"archive-001": "sha256:abc123"},
            marks=shows("000.meta-key.content_archive_hashes", "000.fidelity-field.content_archive_hashes"),
        ),
    ],
)
def test_each_metadata_key_is_there_when_given_and_absent_otherwise(key, given_value):
    with_it: Any = {key: given_value}

    assert success_response(**with_it).meta[key] == given_value
    assert success_response(**with_it).data == {}
    assert key not in success_response().meta
    assert key not in success_response(**dict.fromkeys(with_it)).meta
    assert success_response(meta=with_it).meta[key] == given_value


@shows(
    "000.meta-key.version",
    "001.meta-key.version",
    "003.meta-key.version",
    "000.helper.version",
    "002.helper.version",
    "000.testing.version",
    "002.testing.fixtures",
    "003.versioning.current",
)
@pytest.mark.parametrize(
    "answer", [success_response(), error_response("No"), ToolResponse(True), failure_response(conflict("No"))]
)
def test_every_answer_names_its_version(answer):
    assert RESPONSE_VERSION == "response-v2"
    assert next(iter(answer.meta.items())) == ("version", "response-v2")


@pytest.mark.parametrize("key", ["warnings", "warning_details", "dropped_content_ids"])
def test_an_optional_list_that_is_empty_is_left_out(key):
    empty: Any = {key: []}
    assert success_response(**empty).meta == META


@shows("003.success.with-warnings", "003.best-practice.warnings")
def test_warnings_do_not_make_an_answer_a_failure():
    answer = success_response(n=1, warnings=["a", "b"])
    assert answer.success is True
    assert answer.error is None
    assert answer.meta["warnings"] == ["a", "b"]


@shows("000.checklist.meta-documented", "000.rule.metadata-in-meta", "000.checklist.business-data")
def test_further_metadata_goes_into_meta_and_never_into_data():
    answer = success_response(n=1, meta={"replayed": True}, telemetry={"downstream_calls": 2})

    assert answer.data == {"n": 1}
    assert answer.meta["replayed"] is True
    assert answer.meta["telemetry"] == {"downstream_calls": 2}


# Warnings


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        pytest.param("CONTENT_TRUNCATED", "info", marks=shows("000.warning-code.CONTENT_TRUNCATED")),
        pytest.param("STALE_CACHE", "warning", marks=shows("000.warning-code.STALE_CACHE")),
        pytest.param("PARTIAL_FAILURE", "warning", marks=shows("000.warning-code.PARTIAL_FAILURE")),
        pytest.param("DEPRECATED_FIELD", "info", marks=shows("000.warning-code.DEPRECATED_FIELD")),
        pytest.param(
            "RATE_LIMIT_APPROACHING", "warning", marks=shows("000.warning-code.RATE_LIMIT_APPROACHING")
        ),
        pytest.param("FALLBACK_USED", "info", marks=shows("000.warning-code.FALLBACK_USED")),
        pytest.param("TOKEN_LIMIT_WARNING", "warning", marks=shows("004.warning-code.TOKEN_LIMIT_WARNING")),
        pytest.param("TOKEN_LIMIT_EXCEEDED", "error", marks=shows("004.warning-code.TOKEN_LIMIT_EXCEEDED")),
        pytest.param("CACHE_MISS_SLOW", "info", marks=shows("004.warning-code.CACHE_MISS_SLOW")),
        pytest.param("LOW_QUALITY_RESULTS", "info", marks=shows("004.warning-code.LOW_QUALITY_RESULTS")),
        pytest.param("PARTIAL_RESULTS", "warning", marks=shows("004.warning-code.PARTIAL_RESULTS")),
        pytest.param("DEPRECATED_PARAMETER", "warning", marks=shows("004.warning-code.DEPRECATED_PARAMETER")),
    ],
)
def test_each_warning_code_has_its_severity(code, severity):
    assert warning(code, "Something") == {"code": code, "severity": severity, "message": "Something"}
    assert WARNING_CODES[code].description
    assert WARNING_CODES[code].suggestion


@pytest.mark.parametrize(
    "severity",
    [
        pytest.param("info", marks=shows("000.warning-severity.info")),
        pytest.param("warning", marks=shows("000.warning-severity.warning")),
        pytest.param("error", marks=shows("000.warning-severity.error")),
    ],
)
def test_each_severity_is_accepted_and_outranks_the_table(severity):
    detail = warning("STALE_CACHE", "Old", severity=severity)
    assert success_response(warning_details=[detail]).meta["warning_details"][0]["severity"] == severity


@pytest.mark.parametrize(
    ("detail", "message"),
    [
        pytest.param(
            {"message": "x", "code": "stale_cache"},
            "code must be SCREAMING_SNAKE_CASE",
            marks=shows("000.warning-field.code"),
        ),
        pytest.param(
            {"message": "x", "severity": "fatal"},
            "severity must be one of info, warning, error",
            marks=shows("000.warning-field.severity"),
        ),
        pytest.param({"code": "STALE_CACHE"}, "with a message", marks=shows("000.warning-field.message")),
        pytest.param(
            {"message": "x", "context": []},
            "context must be an object",
            marks=shows("000.warning-field.context"),
        ),
    ],
)
def test_each_field_of_a_warning_is_checked_and_only_the_message_is_required(detail, message):
    with pytest.raises(ContractViolation, match=message):
        success_response(warning_details=[detail])
    assert success_response(warning_details=[{"message": "x"}]).meta["warning_details"] == [{"message": "x"}]


def test_a_warning_keeps_its_context_and_an_unknown_code_must_say_its_severity():
    assert warning("PARTIAL_FAILURE", "2 failed", failed=2)["context"] == {"failed": 2}
    assert warning("OUR_OWN", "x", severity="info")["severity"] == "info"
    with pytest.raises(ContractViolation, match="say its severity"):
        warning("OUR_OWN", "x")
    with pytest.raises(ContractViolation, match="SCREAMING_SNAKE_CASE"):
        warning("ourOwn", "x", severity="info")


@shows("000.warning-details.alongside")
@calm
@given(st.lists(st.text(max_size=8), max_size=5), st.lists(st.text(max_size=8), max_size=5))
def test_every_structured_warning_is_also_said_as_a_string_once(said, structured):
    meta = success_response(
        warnings=said, warning_details=[{"message": message} for message in structured]
    ).meta

    assert meta.get("warnings", [])[: len(said)] == said
    assert set(meta.get("warnings", [])) == set(said) | set(structured)
    assert len(meta.get("warnings", [])) == len(said) + len({m for m in structured if m not in said})


# Content fidelity


@pytest.mark.parametrize(
    "level",
    [
        pytest.param("full", marks=shows("000.fidelity-level.full")),
        pytest.param("partial", marks=shows("000.fidelity-level.partial")),
        pytest.param("summary", marks=shows("000.fidelity-level.summary")),
        pytest.param("reference_only", marks=shows("000.fidelity-level.reference_only")),
    ],
)
@shows(
    "000.fidelity-field.content_fidelity",
    "000.fidelity-field.content_fidelity_schema_version",
    "000.meta-key.content_fidelity_schema_version",
)
def test_each_fidelity_level_comes_with_the_version_of_its_schema(level):
    meta = success_response(content_fidelity=level).meta

    assert meta["content_fidelity"] == level
    assert meta["content_fidelity_schema_version"] == CONTENT_FIDELITY_SCHEMA_VERSION == "1.0"
    assert level in CONTENT_FIDELITY_LEVELS


# Errors


ERROR_TYPE_ROWS = [
    ("validation", 400, False, "No, fix input"),
    ("authentication", 401, False, "No, re-authenticate"),
    ("authorization", 403, False, "No"),
    ("not_found", 404, False, "No"),
    ("conflict", 409, False, "Maybe, check state"),
    ("rate_limit", 429, True, "Yes, after delay"),
    ("feature_flag", 403, False, "No, check flag status"),
    ("internal", 500, True, "Yes, with backoff"),
    ("unavailable", 503, True, "Yes, with backoff"),
]


@pytest.mark.parametrize(
    ("error_type", "status", "retryable", "rule"),
    [
        pytest.param(*row, marks=shows(f"000.error-type.{row[0]}", f"003.error-type.{row[0]}"), id=row[0])
        for row in ERROR_TYPE_ROWS
    ],
)
def test_each_error_type_has_its_http_analog_and_retry_rule(error_type, status, retryable, rule):
    assert ERROR_TYPES[error_type][:3] == (status, retryable, rule)

    data = error_response("No", error_type=error_type).data
    assert data["error_type"] == error_type
    assert data["retryable"] is retryable
    assert ERROR_CODES[data["error_code"]].error_type == error_type
    assert ERROR_CODES[data["error_code"]].http_status == status
    assert ERROR_CODES[data["error_code"]].retry_rule == rule


def test_there_are_no_other_error_types_and_every_code_belongs_to_one():
    assert list(ERROR_TYPES) == [row[0] for row in ERROR_TYPE_ROWS]
    assert {rule.error_type for rule in ERROR_CODES.values()} == set(ERROR_TYPES)


@pytest.mark.parametrize(
    ("code", "error_type"),
    [
        pytest.param(
            "VALIDATION_ERROR",
            "validation",
            marks=shows("000.error-code.VALIDATION_ERROR", "003.error-code.VALIDATION_ERROR"),
        ),
        pytest.param("INVALID_FORMAT", "validation", marks=shows("000.error-code.INVALID_FORMAT")),
        pytest.param("MISSING_REQUIRED", "validation", marks=shows("000.error-code.MISSING_REQUIRED")),
        pytest.param(
            "NOT_FOUND", "not_found", marks=shows("000.error-code.NOT_FOUND", "003.error-code.NOT_FOUND")
        ),
        pytest.param("SPEC_NOT_FOUND", "not_found", marks=shows("000.error-code.SPEC_NOT_FOUND")),
        pytest.param("TASK_NOT_FOUND", "not_found", marks=shows("000.error-code.TASK_NOT_FOUND")),
        pytest.param("DUPLICATE_ENTRY", "conflict", marks=shows("000.error-code.DUPLICATE_ENTRY")),
        pytest.param("CONFLICT", "conflict", marks=shows("000.error-code.CONFLICT")),
        pytest.param("UNAUTHORIZED", "authentication", marks=shows("000.error-code.UNAUTHORIZED")),
        pytest.param("FORBIDDEN", "authorization", marks=shows("000.error-code.FORBIDDEN")),
        pytest.param(
            "FEATURE_DISABLED",
            "feature_flag",
            marks=shows("000.error-code.FEATURE_DISABLED", "003.error-code.FEATURE_DISABLED"),
        ),
        pytest.param(
            "RATE_LIMIT_EXCEEDED",
            "rate_limit",
            marks=shows("000.error-code.RATE_LIMIT_EXCEEDED", "003.error-code.RATE_LIMIT_EXCEEDED"),
        ),
        pytest.param(
            "INTERNAL_ERROR",
            "internal",
            marks=shows("000.error-code.INTERNAL_ERROR", "003.error-code.INTERNAL_ERROR"),
        ),
        pytest.param("UNAVAILABLE", "unavailable", marks=shows("000.error-code.UNAVAILABLE")),
        pytest.param("ALREADY_EXISTS", "conflict", marks=shows("003.error-code.ALREADY_EXISTS")),
        pytest.param("INVALID_STATE", "conflict", marks=shows("003.error-code.INVALID_STATE")),
        pytest.param("DEPENDENCY_ERROR", "conflict", marks=shows("003.error-code.DEPENDENCY_ERROR")),
        pytest.param("INVALID_FIELDS", "validation", marks=shows("004.error-code.INVALID_FIELDS")),
        pytest.param(
            "TOKEN_LIMIT_EXCEEDED", "validation", marks=shows("004.error-code.TOKEN_LIMIT_EXCEEDED")
        ),
        ("INVALID_CURSOR", "validation"),
        ("VERSION_CONFLICT", "conflict"),
        ("SPEC_CORRUPTED", "internal"),
        ("DEADLINE_EXCEEDED", "unavailable"),
    ],
)
def test_each_error_code_alone_brings_its_type_retry_rule_and_remediation(code, error_type):
    data = error_response("It failed", error_code=code).data

    assert data == {
        "error_code": code,
        "error_type": error_type,
        "remediation": ERROR_CODES[code].remediation,
        "details": {},
        "retryable": ERROR_TYPES[error_type].retryable,
        "effect": "unknown" if error_type in {"internal", "unavailable"} else "none",
    }
    assert ERROR_CODES[code].description


@pytest.mark.parametrize("code", ERROR_CODES)
def test_no_remediation_holds_a_command_that_destroys_something(code):
    destructive = re.compile(
        r"\brm\b|\brmdir\b|\bdel\b|\bunlink\b|\bshred\b|\bdd\b|\bmkfs|\bkill|\bsudo\b|\bdrop\b|\btruncate\b"
        r"|\bdelete\b|\bremove\b|\bpurge\b|\bwipe\b|\berase\b|\boverwrite\b|--hard|--force|\bforce\b"
        r"|\bclean\b|\breset\b|\bcheckout\b|[`|>]|&&",
        re.IGNORECASE,
    )
    remediation = ERROR_CODES[code].remediation

    assert remediation
    assert not destructive.search(remediation)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        pytest.param(
            "error_code",
            "not_found",
            marks=shows(
                "000.error-field.error_code", "001.error-field.error_code", "003.error-field.error_code"
            ),
        ),
        pytest.param(
            "error_type",
            "oops",
            marks=shows(
                "000.error-field.error_type", "001.error-field.error_type", "003.error-field.error_type"
            ),
        ),
        pytest.param(
            "remediation",
            5,
            marks=shows(
                "000.error-field.remediation", "001.error-field.remediation", "003.error-field.remediation"
            ),
        ),
        pytest.param(
            "details",
            "spec_id",
            marks=shows("000.error-field.details", "001.error-field.details", "003.error-field.details"),
        ),
        ("retryable", "yes"),
        ("effect", "maybe"),
        ("retry_after_seconds", -1),
    ],
)
def test_each_error_field_is_in_data_with_its_type_checked(field, wrong):
    answer = error_response(
        "No",
        error_code="RATE_LIMIT_EXCEEDED",
        error_type="rate_limit",
        remediation="Wait.",
        details={"limit": "100/minute"},
        retry_after_seconds=4.5,
    )
    assert answer.data == {
        "error_code": "RATE_LIMIT_EXCEEDED",
        "error_type": "rate_limit",
        "remediation": "Wait.",
        "details": {"limit": "100/minute"},
        "retryable": True,
        "effect": "none",
        "retry_after_seconds": 4.5,
    }
    with pytest.raises(ContractViolation, match=f"data.{field} must be"):
        ToolResponse(False, {**answer.data, field: wrong}, "No", dict(META))
    without = {key: value for key, value in answer.data.items() if key != field}
    assert ToolResponse(False, without, "No", dict(META)).data == without


@pytest.mark.parametrize(
    ("arguments", "path", "value"),
    [
        pytest.param({}, ("error",), "It failed", marks=shows("000.error-parameter.message")),
        pytest.param(
            {"error_code": "TASK_NOT_FOUND"},
            ("data", "error_code"),
            "TASK_NOT_FOUND",
            marks=shows("000.error-parameter.error_code"),
        ),
        pytest.param(
            {"error_type": "conflict"},
            ("data", "error_type"),
            "conflict",
            marks=shows("000.error-parameter.error_type"),
        ),
        pytest.param(
            {"remediation": "Try x."},
            ("data", "remediation"),
            "Try x.",
            marks=shows("000.error-parameter.remediation"),
        ),
        pytest.param(
            {"data": {"feature": "f"}}, ("data", "feature"), "f", marks=shows("000.error-parameter.data")
        ),
        pytest.param(
            {"details": {"field": "a"}},
            ("data", "details"),
            {"field": "a"},
            marks=shows("000.error-parameter.details"),
        ),
        pytest.param(
            {"request_id": "req_1"},
            ("meta", "request_id"),
            "req_1",
            marks=shows("000.error-parameter.request_id"),
        ),
        pytest.param(
            {"rate_limit": {"limit": 100, "remaining": 0}},
            ("meta", "rate_limit"),
            {"limit": 100, "remaining": 0},
            marks=shows("000.error-parameter.rate_limit"),
        ),
        pytest.param(
            {"telemetry": {"duration_ms": 3}},
            ("meta", "telemetry"),
            {"duration_ms": 3},
            marks=shows("000.error-parameter.telemetry"),
        ),
        pytest.param(
            {"meta": {"replayed": True}}, ("meta", "replayed"), True, marks=shows("000.error-parameter.meta")
        ),
        ({"retryable": True}, ("data", "retryable"), True),
        ({"retry_after_seconds": 0}, ("data", "retry_after_seconds"), 0),
        ({"effect": "applied"}, ("data", "effect"), "applied"),
    ],
)
def test_each_parameter_of_error_response_lands_in_its_place(arguments, path, value):
    found: Any = asdict(error_response("It failed", **arguments))
    for key in path:
        found = found[key]
    assert found == value
    assert type(found) is type(value)


def test_a_message_alone_is_an_internal_error():
    data = error_response("It failed").data
    assert (data["error_code"], data["error_type"]) == ("INTERNAL_ERROR", "internal")


def test_a_code_of_another_server_needs_a_type_and_takes_its_retry_rule():
    data = error_response("No", error_code="QUOTA_GONE", error_type="rate_limit").data
    assert data["retryable"] is True
    assert "after delay" in data["remediation"]
    with pytest.raises(ContractViolation, match="'QUOTA_GONE' is not a code of ours, so say its error_type"):
        error_response("No", error_code="QUOTA_GONE")


def test_data_may_repeat_an_argument_but_not_contradict_it():
    assert (
        error_response("No", error_code="NOT_FOUND", data={"error_code": "NOT_FOUND", "n": 1}).data["n"] == 1
    )
    with pytest.raises(ContractViolation, match=r"data\['error_code'\] contradicts the argument"):
        error_response("No", error_code="NOT_FOUND", data={"error_code": "CONFLICT"})


def test_a_typed_error_knows_its_whole_answer():
    limited = failure_response(
        rate_limited("100 per minute", 45), request_id="req_1", telemetry={"duration_ms": 1}
    )
    assert limited.error == "Rate limit exceeded: 100 per minute"
    assert limited.data["retry_after_seconds"] == 45
    assert limited.data["remediation"].startswith("Wait 45 seconds")
    assert limited.meta == {**META, "request_id": "req_1", "telemetry": {"duration_ms": 1}}

    assert failure_response(feature_disabled("beta_search")).data["feature"] == "beta_search"
    assert failure_response(conflict("No"), effect="unknown").data["effect"] == "unknown"
    assert failure_response(conflict("No")).data["effect"] == "none"


# What cannot be built


class Word(str):
    __slots__ = ()


REFUSED_ENVELOPES: list[tuple[Any, str]] = [
    ((1, {}, None, META), "success must be true or false"),
    ((None, {}, None, META), "success must be true or false"),
    (("true", {}, None, META), "success must be true or false"),
    ((True, None, None, META), "data must be an object; send {}"),
    ((True, [], None, META), "data must be an object; send {}"),
    ((True, "text", None, META), "data must be an object; send {}"),
    ((True, OrderedDict(), None, META), "data must be an object; send {}"),
    ((True, {1: "n"}, None, META), "keys of data must be strings"),
    ((False, {None: "n"}, "No", META), "keys of data must be strings"),
    ((True, {}, "No", META), "error must be null when success is true; use error_response"),
    ((True, {}, "", META), "error must be null when success is true"),
    ((False, {}, None, META), "error must be a non-empty string when success is false"),
    ((False, {}, "", META), "error must be a non-empty string when success is false"),
    ((False, {}, ["No"], META), "error must be a non-empty string when success is false"),
    ((False, None, "No", META), "data must be an object"),
    ((True, {}, None, None), 'meta must be an object with "version": "response-v2"'),
    ((True, {}, None, {}), 'meta must be an object with "version": "response-v2"'),
    ((True, {}, None, []), 'meta must be an object with "version": "response-v2"'),
    ((True, {}, None, {"version": "response-v1"}), 'meta must be an object with "version": "response-v2"'),
]


@shows("000.rule.no-ad-hoc-shapes", "000.testing.unit")
@pytest.mark.parametrize(("parts", "message"), REFUSED_ENVELOPES)
def test_an_envelope_of_another_shape_cannot_be_built(parts, message):
    with pytest.raises(ContractViolation, match=re.escape(message)):
        ToolResponse(*parts)


REFUSED_META = [
    ("request_id", "", "request_id must be a non-empty string; leave it out"),
    ("request_id", 7, "request_id must be a non-empty string"),
    ("warnings", "late", "must be a list"),
    ("warnings", {"a": 1}, "must be a list"),
    ("warnings", [1], "must be a list of strings; structure goes into warning_details"),
    ("warning_details", ["late"], "object"),
    ("warning_details", {"message": "x"}, "must be a list"),
    ("warning_details", [{"message": 5}], "warning"),
    ("pagination", [], "object"),
    ("pagination", {}, "has_more true or false"),
    ("pagination", {"cursor": "abc"}, "has_more true or false"),
    ("pagination", {"cursor": "abc", "has_more": 1}, "has_more true or false"),
    ("pagination", {"has_more": True}, "a cursor for the next page must be there"),
    ("pagination", {"has_more": True, "cursor": ""}, "a cursor for the next page must be there"),
    ("pagination", {"has_more": True, "cursor": None}, "a cursor for the next page must be there"),
    ("pagination", {"has_more": True, "cursor": 20}, "cursor must be an opaque string"),
    ("pagination", {"has_more": False, "total_count": -1}, "total_count must be a whole number"),
    ("pagination", {"has_more": False, "total_count": 1.5}, "total_count must be a whole number"),
    ("pagination", {"has_more": False, "page_size": "20"}, "page_size must be a whole number"),
    ("pagination", {"has_more": False, "page_size": True}, "page_size must be a whole number"),
    ("rate_limit", "100", "object"),
    ("rate_limit", {"limit": "100"}, "limit must be a whole number"),
    ("rate_limit", {"remaining": -1}, "remaining must be a whole number"),
    ("telemetry", 12, "object"),
    ("telemetry", {"duration_ms": "12"}, "duration_ms a number"),
    ("telemetry", {"duration_ms": -1}, "duration_ms a number"),
    ("telemetry", {"duration_ms": float("nan")}, "duration_ms a number"),
    ("content_fidelity", "most", "must be one of full, partial, summary, reference_only"),
    ("content_fidelity", "", "must be one of full, partial, summary, reference_only"),
    ("content_fidelity", ["full"], "must be one of full, partial, summary, reference_only"),
    ("dropped_content_ids", "finding-1", "must be a list"),
    ("dropped_content_ids", [1], "must be a list of strings"),
    ("content_archive_hashes", ["sha256:0"], "object"),
    ("content_archive_hashes", {"a": 1}, "map archive ids to hashes"),
]


@pytest.mark.parametrize(("key", "wrong", "message"), REFUSED_META)
def test_a_metadata_key_of_the_wrong_shape_cannot_be_built(key, wrong, message):
    arguments: Any = {key: wrong}
    with pytest.raises(ContractViolation, match=re.escape(message)):
        success_response(**arguments)


@pytest.mark.parametrize(("key", "wrong", "message"), REFUSED_META)
def test_neither_can_it_when_it_comes_through_meta(key, wrong, message):
    named = {
        "object": f"{key} must" if key != "warning_details" else "warning detail must",
        "must be a list": f"{key} must be a list",
    }.get(message, message)
    with pytest.raises(ContractViolation, match=re.escape(named)):
        success_response(meta={key: wrong})
    with pytest.raises(ContractViolation, match=re.escape(named)):
        error_response("No", meta={key: wrong})


def test_the_version_of_content_fidelity_is_a_string():
    with pytest.raises(ContractViolation, match="content_fidelity_schema_version must be a string"):
        success_response(meta={"content_fidelity_schema_version": 1.0})


REFUSED_ERRORS = [
    ({"message": ""}, "error must be a non-empty string"),
    ({"message": None}, "error must be a non-empty string"),
    ({"message": ValueError("x")}, "error must be a non-empty string"),
    ({"error_code": "not_found", "error_type": "not_found"}, "SCREAMING_SNAKE_CASE, such as NOT_FOUND"),
    ({"error_code": "Not_Found", "error_type": "not_found"}, "SCREAMING_SNAKE_CASE"),
    ({"error_code": "NOT-FOUND", "error_type": "not_found"}, "SCREAMING_SNAKE_CASE"),
    ({"error_code": "_NOT_FOUND", "error_type": "not_found"}, "SCREAMING_SNAKE_CASE"),
    ({"error_code": "NOT__FOUND", "error_type": "not_found"}, "SCREAMING_SNAKE_CASE"),
    ({"error_code": "NOT_FOUND\n", "error_type": "not_found"}, "SCREAMING_SNAKE_CASE"),
    ({"error_code": 404, "error_type": "not_found"}, "SCREAMING_SNAKE_CASE"),
    ({"error_type": "missing"}, "error_type must be one of validation, authentication"),
    ({"error_code": "NOT_FOUND", "error_type": "validation"}, "NOT_FOUND is of error_type 'not_found'"),
    ({"remediation": 5}, "data.remediation must be a sentence"),
    ({"details": "spec_id"}, "expected an object"),
    ({"data": ["x"]}, "expected an object"),
    ({"rate_limit": 5}, "expected an object"),
    ({"telemetry": 5}, "expected an object"),
    ({"meta": 5}, "expected an object"),
    ({"request_id": ""}, "request_id must be a non-empty string"),
    ({"retryable": 1}, "data.retryable must be true or false"),
    ({"effect": "maybe"}, "data.effect must be none, applied or unknown"),
    ({"retry_after_seconds": "soon"}, "data.retry_after_seconds must be a number of seconds"),
    ({"retry_after_seconds": True}, "data.retry_after_seconds must be a number of seconds"),
    ({"data": {"retry_after_seconds": -3}}, "data.retry_after_seconds must be a number of seconds"),
    ({"data": {5: "x"}}, "keys of data must be strings"),
    ({"meta": {"version": "response-v3"}}, 'meta must be an object with "version": "response-v2"'),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED_ERRORS)
def test_a_failure_that_breaks_the_contract_cannot_be_built(arguments, message):
    with pytest.raises(ContractViolation, match=re.escape(message)):
        error_response(**{"message": "It failed", **arguments})


@pytest.mark.parametrize("wrong", [[], "text", 5, {"a"}, Word("x")])
def test_a_payload_that_is_no_object_cannot_be_built(wrong):
    with pytest.raises(ContractViolation, match="data must be an object"):
        success_response(wrong)


def test_a_refusal_shows_what_came_but_not_all_of_it():
    with pytest.raises(ContractViolation) as refusal:
        ToolResponse(True, {}, "x" * 1000)
    assert "got str 'xxx" in str(refusal.value)
    assert len(str(refusal.value)) < 250
    assert isinstance(refusal.value, TypeError)


@calm
@given(st.text(alphabet="AZ09_az-", max_size=12))
def test_a_code_is_screaming_snake_case_or_refused(code):
    screaming = code[:1] in {"A", "Z"} and all(part and set(part) <= set("AZ09") for part in code.split("_"))
    if not code:
        assert error_response("No", error_code=code, error_type="conflict").data["error_code"] == "CONFLICT"
    elif screaming:
        assert error_response("No", error_code=code, error_type="conflict").data["error_code"] == code
    else:
        with pytest.raises(ContractViolation, match="SCREAMING_SNAKE_CASE"):
            error_response("No", error_code=code, error_type="conflict")


LEAKS: list[Any] = [
    (error_response, {"message": "No", "error_type": ["not_found"]}),
    (error_response, {"message": "No", "error_code": ["NOT_FOUND"]}),
    (error_response, {"message": "No", "effect": ["none"]}),
    (error_response, {"message": "No", "retry_after_seconds": float("inf")}),
    (success_response, {"telemetry": {"duration_ms": float("inf")}}),
    (success_response, {"telemetry": {"cache_hit": "yes"}}),
    (success_response, {"rate_limit": {"reset_at": None}}),
    (success_response, {"content_archive_hashes": {1: "sha256:0"}}),
    (success_response, {"meta": {"replayed": "yes"}}),
    (success_response, {"meta": {1: "one"}}),
]


@pytest.mark.parametrize(("build", "arguments"), LEAKS)
def test_what_the_schema_refuses_cannot_be_built_either(build, arguments):
    with pytest.raises(ContractViolation):
        build(**arguments)


def test_metadata_given_twice_loses_no_warning():
    meta = success_response(warnings=["a"], meta={"warnings": ["b"]}).meta
    assert meta["warnings"] == ["a", "b"]


# Request ids


def test_a_request_id_is_req_and_twelve_hex_digits_and_never_repeats():
    ids = [new_request_id() for _ in range(100_000)]

    assert all(re.fullmatch(r"req_[0-9a-f]{12}", one) for one in ids)
    assert len(set(ids)) == len(ids)


def test_threads_never_get_the_same_request_id():
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [new_request_id() for _ in range(5_000)], range(8)))
    assert len({one for batch in batches for one in batch}) == 40_000


FORKING = """
import os
from foundry_mcp.core.responses import new_request_id
new_request_id()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, " ".join(new_request_id() for _ in range(50)).encode())
    os._exit(0)
os.wait()
print(os.read(reader, 100_000).decode())
print(" ".join(new_request_id() for _ in range(50)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process_does_not_repeat_its_parents_request_ids():
    run = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    child, parent = (set(line.split()) for line in run.stdout.splitlines())

    assert len(child) == len(parent) == 50
    assert child.isdisjoint(parent)
