"""The examples of the source documents: those that are complete answers are valid, and the code runs.

documents/NNN.json holds each JSON example of document NNN as data: complete answers (with the path of what
stood there as an ellipsis under `filled`), and fragments with the reason why they are not complete.
"""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from jsonschema import (  # type: ignore[import-untyped, unused-ignore] # its stubs are a package of their own
    Draft202012Validator,
    FormatChecker,
)

from foundry_mcp.core.knowledge.models import KnowledgeSuccess
from foundry_mcp.core.responses import ToolResponse, error_response, success_response
from foundry_mcp.core.schemas import json_schema

shows = pytest.mark.requirement
Tool = TypeVar("Tool")

DOCUMENTS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(Path(__file__).with_name("documents").glob("*.json"))
}
ANSWERS = [
    pytest.param(
        example["contract"],
        example["answer"],
        marks=shows(*example["requirements"]),
        id=f"{document}-{example['name']}",
    )
    for document, examples in DOCUMENTS.items()
    for example in examples["answers"]
]
FRAGMENTS = [
    pytest.param(document, example["fragment"], id=f"{document}-{example['name']}")
    for document, examples in DOCUMENTS.items()
    for example in examples["fragments"]
    if "fragment" in example
]
SCHEMAS = {
    name: Draft202012Validator(json_schema(name), format_checker=FormatChecker())
    for name in ("response-v2", "knowledge")
}
BLANKS: dict[str, dict[str, Any]] = {
    "response-v2": {"success": True, "data": {}, "error": None, "meta": {"version": "response-v2"}},
    "knowledge": {
        "_metadata": {
            "operation": "semantic_search",
            "version": "1.0.0",
            "timestamp": "2025-11-09T10:30:00Z",
            "request_id": "req_1",
            "status": "success",
        },
        "results": [],
        "execution_context": {
            "tokens_estimated": 1,
            "cache_hit": False,
            "execution_time_ms": 1.0,
            "request_id": "req_1",
        },
        "warnings": [],
    },
}


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    whole = deepcopy(under)
    for key, value in over.items():
        whole[key] = merged(whole[key], value) if isinstance(whole.get(key), dict) else value
    return whole


def test_all_five_documents_are_there():
    assert list(DOCUMENTS) == ["000", "001", "002", "003", "004"]
    assert (len(ANSWERS), sum(len(d["fragments"]) for d in DOCUMENTS.values())) == (17, 35)
    assert all(fragment["why"] for d in DOCUMENTS.values() for fragment in d["fragments"])


@pytest.mark.parametrize(("contract", "answer"), ANSWERS)
def test_each_complete_answer_is_valid_and_can_be_rebuilt(contract, answer):
    assert [error.message for error in SCHEMAS[contract].iter_errors(answer)] == []
    if contract == "knowledge":
        rebuilt = KnowledgeSuccess.model_validate(answer).model_dump(by_alias=True, exclude_unset=True)
    else:
        rebuilt = asdict(ToolResponse(**answer))
    assert rebuilt == answer


@pytest.mark.parametrize(("document", "fragment"), FRAGMENTS)
def test_each_fragment_is_incomplete_and_valid_once_it_is_completed(document, fragment):
    contract = "knowledge" if document == "004" else "response-v2"
    validator = SCHEMAS[contract]
    completed = merged(BLANKS[contract], fragment)
    if contract == "knowledge" and completed["_metadata"]["status"] == "error":
        completed.setdefault("error", {"code": "TOKEN_LIMIT_EXCEEDED", "message": "Too long"})

    assert not validator.is_valid(fragment)
    assert [error.message for error in validator.iter_errors(completed)] == []


# The code


class mcp:  # noqa: N801 - as the documents call their server
    @staticmethod
    def tool() -> Callable[[Tool], Tool]:
        return lambda function: function


context = SimpleNamespace(request_id="req_abc123")


@shows("000.python.success")
def test_the_example_of_a_success_runs():
    class Payload(dict[str, Any]):
        warnings = ("Deprecated field used",)
        pagination = {"cursor": "abc", "has_more": True, "total_count": 150, "page_size": 20}  # noqa: RUF012 - as there

    def compute_payload(spec_id):
        return Payload(spec_id=spec_id)

    @mcp.tool()
    def tool_example(spec_id) -> dict[str, Any]:
        payload = compute_payload(spec_id)
        return asdict(
            success_response(
                data={"result": payload},
                warnings=payload.warnings,
                pagination=payload.pagination,
                request_id=context.request_id,
            )
        )

    answer = tool_example("my-spec")
    assert SCHEMAS["response-v2"].is_valid(json.loads(json.dumps(answer)))
    assert answer == {
        "success": True,
        "data": {"result": {"spec_id": "my-spec"}},
        "error": None,
        "meta": {
            "version": "response-v2",
            "request_id": "req_abc123",
            "warnings": ["Deprecated field used"],
            "pagination": Payload.pagination,
        },
    }


@shows("000.python.error")
def test_the_example_of_an_error_runs():
    answer = asdict(
        error_response(
            message="Validation failed: spec_id is required",
            error_code="MISSING_REQUIRED",
            error_type="validation",
            remediation="Provide a non-empty spec_id parameter",
            details={"field": "spec_id", "constraint": "required"},
            request_id=context.request_id,
        )
    )
    assert SCHEMAS["response-v2"].is_valid(answer)
    assert answer["error"] == "Validation failed: spec_id is required"
    assert answer["data"]["details"] == {"field": "spec_id", "constraint": "required"}
    assert answer["meta"] == {"version": "response-v2", "request_id": "req_abc123"}


@shows("000.python.not-found")
def test_the_example_of_a_missing_spec_runs():
    spec_id = "nonexistent-spec"
    answer = asdict(
        error_response(
            message=f"Spec '{spec_id}' not found",
            error_code="SPEC_NOT_FOUND",
            error_type="not_found",
            remediation='Verify the spec ID exists using spec(action="list")',
            request_id=context.request_id,
        )
    )
    assert SCHEMAS["response-v2"].is_valid(answer)
    assert answer["error"] == "Spec 'nonexistent-spec' not found"
    assert answer["data"]["remediation"] == 'Verify the spec ID exists using spec(action="list")'


@shows("000.python.feature-disabled")
def test_the_example_of_a_disabled_feature_runs():
    flag_name = "response_contract_v2"
    answer = asdict(
        error_response(
            message=f"Feature '{flag_name}' is not enabled",
            error_code="FEATURE_DISABLED",
            error_type="feature_flag",
            data={"feature": flag_name},
            remediation="Contact support to enable this feature or check feature flag configuration",
        )
    )
    assert SCHEMAS["response-v2"].is_valid(answer)
    assert answer["data"]["feature"] == flag_name
    assert answer["data"]["retryable"] is False


@shows("000.python.rate-limit")
@pytest.mark.parametrize("reset_timestamp", ["2025-01-15T10:30:00Z", 1736937000, 1736937000.5])
def test_the_example_of_an_exceeded_rate_limit_runs(reset_timestamp):
    answer = asdict(
        error_response(
            message="Rate limit exceeded: 100 requests per minute",
            error_code="RATE_LIMIT_EXCEEDED",
            error_type="rate_limit",
            data={"retry_after_seconds": 45},
            remediation="Wait 45 seconds before retrying. Consider batching requests.",
            rate_limit={"limit": 100, "remaining": 0, "reset_at": reset_timestamp},
        )
    )
    assert SCHEMAS["response-v2"].is_valid(answer)
    assert answer["data"]["retry_after_seconds"] == 45
    assert answer["data"]["retryable"] is True
    assert answer["meta"]["rate_limit"] == {"limit": 100, "remaining": 0, "reset_at": reset_timestamp}


@shows("002.python.example")
@pytest.mark.parametrize("payload", [{"spec": {"id": "a"}, "tasks": []}, {}, KeyError("no spec a")])
def test_the_example_with_the_payload_as_keywords_runs(payload):
    class KnownError(Exception):
        pass

    def compute_payload():
        if isinstance(payload, Exception):
            raise KnownError("No spec a") from payload
        return payload

    @mcp.tool()
    def foundry_example() -> dict[str, Any]:
        try:
            found = compute_payload()
            return asdict(success_response(**found))
        except KnownError as exc:
            return asdict(error_response(str(exc)))

    answer = foundry_example()
    assert SCHEMAS["response-v2"].is_valid(answer)
    if isinstance(payload, Exception):
        assert (answer["success"], answer["error"]) == (False, "No spec a")
    else:
        assert (answer["success"], answer["data"]) == (True, payload)
