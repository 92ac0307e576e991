"""The published schemas: valid 2020-12, telling success from failure, refusing what is wrong, and fresh."""

import json
import re
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from jsonschema import (  # type: ignore[import-untyped, unused-ignore] # its stubs are a package of their own
    Draft202012Validator,
    FormatChecker,
)

from foundry_mcp.core.contracts import Contract, encode, render
from foundry_mcp.core.responses import (
    ContractViolation,
    ToolResponse,
    error_response,
    success_response,
    warning,
)
from foundry_mcp.core.schemas import SCHEMA_NAMES, json_schema, typescript

shows = pytest.mark.requirement

PUBLISHED = Path(__file__).parent.parent / "schemas"
SUCCESS = success_response(
    tasks=[{"id": "task-1"}],
    request_id="req_1",
    warnings=["Plain"],
    warning_details=[warning("STALE_CACHE", "Old", age=7200)],
    pagination={"cursor": "abc", "has_more": True, "total_count": 3, "page_size": 1},
    rate_limit={"limit": 100, "remaining": 5, "reset_at": "2025-01-15T10:30:00Z"},
    telemetry={"duration_ms": 1.5, "cache_hit": True},
    content_fidelity="partial",
    dropped_content_ids=["a"],
    content_archive_hashes={"archive-1": "sha256:0"},
    meta={"replayed": True},
)
FAILURE = error_response(
    "Too often",
    error_code="RATE_LIMIT_EXCEEDED",
    details={"limit": "5/s"},
    retry_after_seconds=1.5,
    request_id="req_1",
)
VALIDATORS = {
    name: Draft202012Validator(json_schema(name), format_checker=FormatChecker()) for name in SCHEMA_NAMES
}
BRANCHES = {
    "response-v2": ("Success", "Failure"),
    "response-v1": ("LegacySuccess", "LegacyFailure"),
    "knowledge": ("KnowledgeSuccess", "KnowledgeFailure"),
}
GONE = object()


def wire(answer: ToolResponse, name: str) -> dict[str, Any]:
    rendered: dict[str, Any] = json.loads(encode(render(answer, Contract(name), operation="task.query")))
    return rendered


def changed(answer: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    mutant = deepcopy(answer)
    *parents, last = path.split(".")
    place: Any = mutant
    for parent in parents:
        place = place[int(parent) if isinstance(place, list) else parent]
    key = int(last) if isinstance(place, list) else last
    if value is GONE:
        del place[key]
    else:
        place[key] = value
    return mutant


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_each_schema_is_valid_2020_12_and_names_itself(name):
    schema = json_schema(name)

    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:foundry-mcp:schema:{name}"
    references = re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema))
    assert set(references) == set(schema["$defs"])


def test_there_is_a_schema_for_each_wire_form():
    assert list(SCHEMA_NAMES) == [contract.value for contract in Contract]
    with pytest.raises(KeyError):
        json_schema("response-v3")


@pytest.mark.parametrize("name", SCHEMA_NAMES)
@pytest.mark.parametrize("answer", [SUCCESS, FAILURE, success_response(), error_response("No")])
def test_success_and_failure_are_one_branch_each(name, answer):
    schema = json_schema(name)
    fitting = [
        branch
        for branch in BRANCHES[name]
        if Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#/$defs/{branch}"}).is_valid(
            wire(answer, name)
        )
    ]
    assert fitting == [BRANCHES[name][0 if answer.success else 1]]
    assert VALIDATORS[name].is_valid(wire(answer, name))
    assert schema["oneOf"] == [{"$ref": f"#/$defs/{branch}"} for branch in BRANCHES[name]]


V2_MUTANTS = [
    (SUCCESS, "success", GONE),
    (SUCCESS, "success", False),
    (SUCCESS, "success", 1),
    (SUCCESS, "success", "true"),
    (SUCCESS, "data", GONE),
    (SUCCESS, "data", None),
    (SUCCESS, "data", []),
    (SUCCESS, "error", GONE),
    (SUCCESS, "error", "No"),
    (SUCCESS, "error", ""),
    (SUCCESS, "meta", GONE),
    (SUCCESS, "meta", {}),
    (SUCCESS, "meta.version", GONE),
    (SUCCESS, "meta.version", "response-v1"),
    (SUCCESS, "meta.version", 2),
    (SUCCESS, "meta.request_id", 5),
    (SUCCESS, "meta.request_id", None),
    (SUCCESS, "meta.warnings", "late"),
    (SUCCESS, "meta.warnings", [5]),
    (SUCCESS, "meta.warning_details", {}),
    (SUCCESS, "meta.warning_details.0", "late"),
    (SUCCESS, "meta.warning_details.0.message", GONE),
    (SUCCESS, "meta.warning_details.0.code", "lower"),
    (SUCCESS, "meta.warning_details.0.severity", "fatal"),
    (SUCCESS, "meta.warning_details.0.context", []),
    (SUCCESS, "meta.pagination", None),
    (SUCCESS, "meta.pagination.has_more", GONE),
    (SUCCESS, "meta.pagination.has_more", "yes"),
    (SUCCESS, "meta.pagination.cursor", GONE),
    (SUCCESS, "meta.pagination.cursor", ""),
    (SUCCESS, "meta.pagination.cursor", None),
    (SUCCESS, "meta.pagination.cursor", 20),
    (SUCCESS, "meta.pagination.total_count", -1),
    (SUCCESS, "meta.pagination.total_count", "3"),
    (SUCCESS, "meta.pagination.page_size", 1.5),
    (SUCCESS, "meta.rate_limit", []),
    (SUCCESS, "meta.rate_limit.limit", "100"),
    (SUCCESS, "meta.rate_limit.remaining", -1),
    (SUCCESS, "meta.telemetry", 5),
    (SUCCESS, "meta.telemetry.duration_ms", "fast"),
    (SUCCESS, "meta.telemetry.duration_ms", -1),
    (SUCCESS, "meta.content_fidelity", "most"),
    (SUCCESS, "meta.content_fidelity", None),
    (SUCCESS, "meta.content_fidelity_schema_version", 1.0),
    (SUCCESS, "meta.dropped_content_ids", "a"),
    (SUCCESS, "meta.dropped_content_ids", [5]),
    (SUCCESS, "meta.content_archive_hashes", ["sha256:0"]),
    (SUCCESS, "meta.content_archive_hashes", {"a": 5}),
    (FAILURE, "success", True),
    (FAILURE, "error", None),
    (FAILURE, "error", ""),
    (FAILURE, "error", GONE),
    (FAILURE, "data", GONE),
    (FAILURE, "data", "Too often"),
    (FAILURE, "data.error_code", "rate_limit_exceeded"),
    (FAILURE, "data.error_code", 429),
    (FAILURE, "data.error_type", "too_often"),
    (FAILURE, "data.remediation", None),
    (FAILURE, "data.details", "5/s"),
    (FAILURE, "data.retryable", "yes"),
    (FAILURE, "data.retry_after_seconds", -1),
    (FAILURE, "data.retry_after_seconds", "soon"),
    (FAILURE, "data.effect", "maybe"),
    (FAILURE, "meta.version", GONE),
]


def shown(case: Any) -> str | None:
    return "gone" if case is GONE else None


@pytest.mark.parametrize(("answer", "path", "value"), V2_MUTANTS, ids=shown)
def test_a_mutant_of_a_good_answer_is_refused_by_the_schema_and_cannot_be_built(answer, path, value):
    mutant = changed(asdict(answer), path, value)

    assert not VALIDATORS["response-v2"].is_valid(mutant)
    with pytest.raises((ContractViolation, TypeError)):
        ToolResponse(**{"error": GONE, "data": GONE, "meta": GONE, **mutant})


@shows("002.checklist.no-top-level")
@pytest.mark.parametrize("answer", [SUCCESS, FAILURE])
def test_the_envelope_has_no_further_key_but_data_and_meta_may_grow(answer):
    schema = VALIDATORS["response-v2"]
    assert not schema.is_valid(asdict(answer) | {"found": True})
    assert schema.is_valid(changed(asdict(answer), "data.found", True))
    assert schema.is_valid(changed(asdict(answer), "meta.further", {"a": 1}))


VALUES = [
    GONE,
    None,
    True,
    False,
    0,
    1,
    -1,
    2.5,
    "",
    "x",
    "SHOUT",
    "full",
    "none",
    [],
    ["x"],
    [5],
    {},
    {"a": 5},
]


def can_be_built(mutant: dict[str, Any]) -> bool:
    try:
        ToolResponse(**{"error": GONE, "data": GONE, "meta": GONE, **mutant})
    except TypeError:
        return False
    return True


@pytest.mark.parametrize(
    "path", sorted({("failure", "success")[a.success] + ":" + p for a, p, _ in V2_MUTANTS})
)
def test_the_schema_and_the_builder_agree_on_every_mutant(path):
    outcome, _, path = path.partition(":")
    answer = asdict(SUCCESS if outcome == "success" else FAILURE)
    for value in VALUES:
        if (path, value) == ("meta.request_id", ""):
            continue  # an empty id is no id, which only the builder says
        mutant = changed(answer, path, value)
        assert can_be_built(mutant) == VALIDATORS["response-v2"].is_valid(mutant), value


@pytest.mark.parametrize(
    ("answer", "path", "value"),
    [
        (SUCCESS, "success", GONE),
        (SUCCESS, "success", False),
        (SUCCESS, "error", "No"),
        (SUCCESS, "error", GONE),
        (SUCCESS, "_warnings", "late"),
        (SUCCESS, "_warnings", [5]),
        (SUCCESS, "_meta", []),
        (SUCCESS, "_meta.version", "response-v2"),
        (SUCCESS, "_meta.version", GONE),
        (SUCCESS, "_meta.request_id", 5),
        (FAILURE, "error", None),
        (FAILURE, "success", True),
    ],
    ids=shown,
)
def test_a_mutant_of_the_legacy_form_is_refused(answer, path, value):
    assert not VALIDATORS["response-v1"].is_valid(changed(wire(answer, "response-v1"), path, value))


def knowledge_mutants(requirement: str, *cases: tuple[ToolResponse, str, Any]) -> list[Any]:
    return [pytest.param(*case, marks=shows(requirement)) for case in cases]


@pytest.mark.parametrize(
    ("answer", "path", "value"),
    [
        *knowledge_mutants(
            "004.schema.required",
            (SUCCESS, "_metadata", GONE),
            (SUCCESS, "results", GONE),
            (SUCCESS, "execution_context", GONE),
            (SUCCESS, "warnings", GONE),
            (FAILURE, "error", GONE),
        ),
        *knowledge_mutants(
            "004.schema.metadata",
            (SUCCESS, "_metadata.operation", GONE),
            (SUCCESS, "_metadata.timestamp", GONE),
            (SUCCESS, "_metadata.timestamp", 5),
            (SUCCESS, "_metadata.request_id", GONE),
            (SUCCESS, "_metadata.status", GONE),
            (SUCCESS, "_metadata.message", 5),
        ),
        *knowledge_mutants(
            "004.schema.execution_context",
            (SUCCESS, "execution_context.tokens_estimated", GONE),
            (SUCCESS, "execution_context.tokens_estimated", "many"),
            (SUCCESS, "execution_context.tokens_used", 1.5),
            (SUCCESS, "execution_context.cache_hit", GONE),
            (SUCCESS, "execution_context.execution_time_ms", GONE),
            (SUCCESS, "execution_context.execution_time_ms", 0),
            (SUCCESS, "execution_context.request_id", GONE),
        ),
        *knowledge_mutants(
            "004.schema.warning",
            (SUCCESS, "warnings.0.level", GONE),
            (SUCCESS, "warnings.0.code", GONE),
            (SUCCESS, "warnings.0.code", "lower"),
            (SUCCESS, "warnings.0.message", GONE),
            (SUCCESS, "warnings.0.suggestion", 5),
        ),
        *knowledge_mutants(
            "004.schema.enums",
            (SUCCESS, "_metadata.status", "done"),
            (SUCCESS, "_metadata.status", "error"),
            (FAILURE, "_metadata.status", "success"),
            (SUCCESS, "warnings.0.level", "fatal"),
        ),
        pytest.param(
            SUCCESS,
            "_metadata.version",
            GONE,
        ),
        (SUCCESS, "results", "text"),
        (SUCCESS, "pagination.cursor", GONE),
        (SUCCESS, "pagination.page_size", 0),
        (SUCCESS, "error", {"code": "NOT_FOUND", "message": "No"}),
        (FAILURE, "error.code", "lower"),
        (FAILURE, "error.message", GONE),
        (FAILURE, "results", {"a": 1}),
    ],
    ids=shown,
)
def test_a_mutant_of_the_knowledge_form_is_refused(answer, path, value):
    assert not VALIDATORS["knowledge"].is_valid(changed(wire(answer, "knowledge"), path, value))


@shows("004.schema.nullable")
@pytest.mark.parametrize(
    "path",
    [
        "_metadata.message",
        "pagination",
        "pagination.total_available",
        "execution_context.tokens_used",
        "warnings.0.suggestion",
    ],
)
def test_what_may_be_null_in_the_knowledge_form_may_also_be_absent(path):
    answer = wire(SUCCESS, "knowledge")
    assert VALIDATORS["knowledge"].is_valid(changed(answer, path, None))
    assert VALIDATORS["knowledge"].is_valid(changed(answer, path, GONE))


# TypeScript, and the files


def test_the_typescript_types_are_discriminated_unions_of_declared_interfaces():
    declared = typescript()
    interfaces = re.findall(r"^export interface (\w+) \{$", declared, re.MULTILINE)

    assert len(interfaces) == len(set(interfaces))
    for union, branches in zip(
        ("ResponseV2", "ResponseV1", "KnowledgeResponse"), BRANCHES.values(), strict=True
    ):
        assert f"export type {union} = {' | '.join(branches)};" in declared
        assert set(branches) <= set(interfaces)
    assert declared.count("  success: true;") == declared.count("  success: false;") == 2
    used = set(re.findall(r"\b[A-Z]\w+", re.sub(r"/\*.*?\*/|//.*|\".*?\"", "", declared)))
    assert used == {*interfaces, "ResponseV2", "ResponseV1", "KnowledgeResponse", "Record", "Array"}


def test_the_typescript_types_say_what_may_be_absent():
    declared = typescript()
    success = declared[declared.index("export interface Success {") :].split("\n}")[0]
    meta = declared[declared.index("export interface Meta {") :].split("\n}")[0]

    assert [
        line.split(":")[0].strip() for line in success.splitlines() if ":" in line and "*" not in line
    ] == [
        "success",
        "data",
        "error",
        "meta",
    ]
    assert '  version: "response-v2";' in meta
    assert "  request_id?: string;" in meta
    assert "  pagination?: MorePages | LastPage;" in meta
    assert '  content_fidelity?: "full" | "partial" | "summary" | "reference_only";' in meta


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_the_published_schema_is_fresh(name):
    published = PUBLISHED / f"{name}.schema.json"
    assert published.read_text(encoding="utf-8") == json.dumps(json_schema(name), indent=2) + "\n"


def test_the_published_typescript_types_are_fresh():
    assert (PUBLISHED / "foundry-mcp.d.ts").read_text(encoding="utf-8") == typescript()
