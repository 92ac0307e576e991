"""One answer, three wire forms, and how a client says which it wants.

| contract      | form                                                                              |
|---------------|-----------------------------------------------------------------------------------|
| `response-v2` | success, data, error, meta: what every tool speaks unless asked otherwise          |
| `response-v1` | the flat legacy form, with `_warnings` and `_meta` as reserved keys; deprecated    |
| `knowledge`   | `_metadata`, results, pagination, execution_context, warnings: version 1.0.0       |

This is the only module that turns an answer into a wire form.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from foundry_mcp.core.errors import unknown_name, validation
from foundry_mcp.core.responses import WARNING_CODES, ToolResponse

__all__ = ["KNOWLEDGE_VERSION", "Contract", "encode", "negotiate", "parse_contract", "render"]

KNOWLEDGE_VERSION = "1.0.0"
V1_DEPRECATION = "The response-v1 form is deprecated: ask for response_contract v2."
UNCODED_WARNING = "GENERAL_WARNING"
CHARACTERS_PER_TOKEN = 4


class Contract(StrEnum):
    V2 = "response-v2"
    V1 = "response-v1"
    KNOWLEDGE = "knowledge"


_SPELLINGS = {
    "v2": Contract.V2,
    "response-v2": Contract.V2,
    "2": Contract.V2,
    "v1": Contract.V1,
    "response-v1": Contract.V1,
    "1": Contract.V1,
    "knowledge": Contract.KNOWLEDGE,
    "knowledge-1.0.0": Contract.KNOWLEDGE,
    "1.0.0": Contract.KNOWLEDGE,
}
CONTRACT_NAMES = ("v2", "v1", "knowledge")


def parse_contract(name: str) -> Contract:
    """The contract a client means by `name`, in any of the usual spellings."""
    contract = _SPELLINGS.get(name.strip().lower()) if isinstance(name, str) else None
    if contract is None:
        raise unknown_name("response contract", name, CONTRACT_NAMES, field="response_contract")
    return contract


def negotiate(wanted: str | Iterable[str]) -> Contract:
    """The first contract of the client's list, in its order, that this server speaks."""
    if isinstance(wanted, str):
        return parse_contract(wanted)
    names = list(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, Mapping) else []
    for name in names:
        if isinstance(name, str) and name.strip().lower() in _SPELLINGS:
            return parse_contract(name)
    if not names:
        raise validation(
            "response_contract",
            "type",
            "response_contract must be a name or a list of names",
            received=wanted,
        )
    raise unknown_name(
        "response contract", ", ".join(map(str, names)), CONTRACT_NAMES, field="response_contract"
    )


def render(
    response: ToolResponse, contract: Contract, *, operation: str, at: datetime | None = None
) -> dict[str, Any]:
    """The wire form of an answer. `operation` and `at` are said only in the knowledge form."""
    if contract is Contract.V2:
        return {
            "success": response.success,
            "data": response.data,
            "error": response.error,
            "meta": response.meta,
        }
    if contract is Contract.V1:
        return _render_v1(response)
    return _render_knowledge(response, operation, at or datetime.now(UTC))


encode = msgspec.json.Encoder(order=None).encode
"""Compact JSON, the only encoding of an answer; key order is the order of the contract."""


def _render_v1(response: ToolResponse) -> dict[str, Any]:
    meta = {**response.meta, "version": Contract.V1.value}
    warnings = [*meta.pop("warnings", ()), V1_DEPRECATION]
    own = {"success": response.success, "error": response.error, "_warnings": warnings, "_meta": meta}
    # A payload key that the flat form needs for itself is kept aside rather than lost.
    shadowed = {key: value for key, value in response.data.items() if key in own}
    if shadowed:
        meta["shadowed"] = shadowed
    return {"success": response.success, **{k: v for k, v in response.data.items() if k not in own}, **own}


def _render_knowledge(response: ToolResponse, operation: str, at: datetime) -> dict[str, Any]:
    meta, data = response.meta, response.data
    request_id = meta.get("request_id", "")
    telemetry = meta.get("telemetry", {})
    used = telemetry.get("tokens_used")
    warnings = _knowledge_warnings(meta)
    partial = response.success and any(w["code"] in _PARTIAL for w in warnings)
    results = _knowledge_results(data) if response.success else []
    rendered = {
        "_metadata": {
            "operation": operation,
            "version": KNOWLEDGE_VERSION,
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "request_id": request_id,
            "status": "partial" if partial else "success" if response.success else "error",
            "message": response.error,
        },
        "results": results,
        "pagination": _knowledge_pagination(meta.get("pagination"), results),
        "execution_context": {
            "tokens_estimated": telemetry.get("tokens_estimated") or max(_estimate(results), used or 0),
            "tokens_used": used,
            "cache_hit": telemetry.get("cache_hit", False),
            "execution_time_ms": telemetry.get("duration_ms") or 0.01,
            "request_id": request_id,
        },
        "warnings": warnings,
    }
    if not response.success:
        rendered["error"] = _knowledge_error(response)
    return rendered


_PARTIAL = {"PARTIAL_RESULTS", "PARTIAL_FAILURE", "CONTENT_TRUNCATED"}


def _knowledge_results(data: dict[str, Any]) -> Any:
    """A payload that is nothing but `results` is its list or object; any other payload is sent whole."""
    results = data.get("results")
    return results if len(data) == 1 and isinstance(results, (list, dict)) else data


def _estimate(results: Any) -> int:
    return -(-len(encode(results)) // CHARACTERS_PER_TOKEN)


def _knowledge_error(response: ToolResponse) -> dict[str, Any]:
    """Code and message, then the rest side by side; what would cover another name stays apart."""
    error = {"code": response.data.get("error_code", "INTERNAL_ERROR"), "message": response.error}
    rest = {key: value for key, value in response.data.items() if key not in {"error_code", "details"}}
    for name, group in (("data", rest), ("details", response.data.get("details", {}))):
        error |= {name: group} if error.keys() & group.keys() else group
    return error


def _knowledge_warnings(meta: Mapping[str, Any]) -> list[dict[str, Any]]:
    details: list[dict[str, Any]] = meta.get("warning_details", [])
    rendered = []
    for detail in details:
        code = detail.get("code", UNCODED_WARNING)
        rule = WARNING_CODES.get(code)
        suggestion = detail.get("context", {}).get("suggestion")
        if not isinstance(suggestion, str):
            suggestion = rule.suggestion if rule else None
        if code == "CONTENT_TRUNCATED":  # this form has no other place for where the rest can be fetched
            hashes = meta.get("content_archive_hashes", {}).values()
            suggestion = " ".join(
                [str(suggestion), *(f'content(action="get", hash="{key}")' for key in hashes)]
            )
        level = detail.get("severity", "warning")
        rendered.append(
            {"level": level, "code": code, "message": detail["message"], "suggestion": suggestion}
        )
    told = {detail["message"] for detail in details}
    rendered += [
        {"level": "warning", "code": UNCODED_WARNING, "message": message, "suggestion": None}
        for message in meta.get("warnings", ())
        if message not in told
    ]
    return rendered


def _knowledge_pagination(pagination: Mapping[str, Any] | None, results: Any) -> dict[str, Any] | None:
    """The form has no page without a cursor, so the last page says null, as its own example does."""
    if pagination is None or not pagination["has_more"]:
        return None
    return {
        "cursor": pagination["cursor"],
        "page_size": pagination.get("page_size") or len(results) or 1,
        "has_more": True,
        "total_available": pagination.get("total_count"),
    }
