"""response-v2: the one shape of every answer.

    {"success": bool, "data": {...}, "error": str | null, "meta": {"version": "response-v2", ...}}

`success_response` and `error_response` build it; `ToolResponse` refuses to exist in any other shape, with
a message that says what to change. Both return the dataclass, so `asdict(...)` gives the wire form.
"""

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from foundry_mcp.core.errors import ERROR_CODES, ERROR_TYPES, Effect, FoundryError
from foundry_mcp.core.invariants import (
    CONTENT_FIDELITY_LEVELS,
    CONTENT_FIDELITY_SCHEMA_VERSION,
    RESPONSE_VERSION,
    ContractViolation,
    check_envelope,
    check_warning,
    refuse,
)

__all__ = [
    "CONTENT_FIDELITY_LEVELS",
    "CONTENT_FIDELITY_SCHEMA_VERSION",
    "RESPONSE_VERSION",
    "WARNING_CODES",
    "ContractViolation",
    "ToolResponse",
    "error_response",
    "failure_response",
    "new_request_id",
    "success_response",
    "warning",
]


class WarningRule(NamedTuple):
    severity: str
    description: str
    suggestion: str


WARNING_CODES: Mapping[str, WarningRule] = {
    "CONTENT_TRUNCATED": WarningRule("info", "Content was left out because of size limits", "Fetch what was dropped with the content tool."),
    "STALE_CACHE": WarningRule("warning", "Cached data may be outdated", "Ask again once the source has been read anew."),
    "PARTIAL_FAILURE": WarningRule("warning", "Some parts failed although the whole succeeded", "Look at 'failures' in data."),
    "DEPRECATED_FIELD": WarningRule("info", "The answer includes deprecated fields", "Move to the field or contract that replaces it."),
    "RATE_LIMIT_APPROACHING": WarningRule("warning", "The rate limit is near", "Slow down, or batch requests."),
    "FALLBACK_USED": WarningRule("info", "The primary source was unavailable and another was used", "Check the primary source if the quality matters."),
    "TASK_BLOCKED": WarningRule("warning", "The work is blocked and cannot proceed", "Look at what it waits for."),
    "DUPLICATE_SPEC": WarningRule("warning", "The same spec id lies in more than one folder", "Compare the files and keep one of them."),
    "SPEC_UNREADABLE": WarningRule("warning", "A spec file could not be read", "Look at its problem, and restore it."),
    "UNKNOWN_FLAG": WarningRule("warning", "A feature flag was set that does not exist", "Remove it, or correct its name."),
    "TOKEN_LIMIT_WARNING": WarningRule("warning", "The answer is near the token limit", "Use metadata mode or reduce page_size"),
    "TOKEN_LIMIT_EXCEEDED": WarningRule("error", "The token limit was exceeded", "Use ids_only mode"),
    "CACHE_MISS_SLOW": WarningRule("info", "Not in the cache, so slower", "Query will be cached for next time"),
    "LOW_QUALITY_RESULTS": WarningRule("info", "No result has a high confidence", "Try different keywords"),
    "PARTIAL_RESULTS": WarningRule("warning", "Some results were left out", "Reduce page_size for complete results"),
    "DEPRECATED_PARAMETER": WarningRule("warning", "A deprecated parameter was used", "Use suggested alternative"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolResponse:
    success: bool
    data: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    meta: dict[str, Any] = field(default_factory=lambda: {"version": RESPONSE_VERSION})

    def __post_init__(self) -> None:
        check_envelope(self.success, self.data, self.error, self.meta)


def success_response(
    data: Mapping[str, Any] | None = None,
    *,
    warnings: Sequence[str] | None = None,
    warning_details: Sequence[Mapping[str, Any]] | None = None,
    pagination: Mapping[str, Any] | None = None,
    rate_limit: Mapping[str, Any] | None = None,
    telemetry: Mapping[str, Any] | None = None,
    content_fidelity: str | None = None,
    dropped_content_ids: Sequence[str] | None = None,
    content_archive_hashes: Mapping[str, str] | None = None,
    request_id: str | None = None,
    meta: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ToolResponse:
    """A success. The payload comes as `data={...}`, as keyword arguments, or both.

    An optional `meta` key that would be empty is left out.
    """
    if data is None:
        payload = fields
    else:
        payload = dict(data) if isinstance(data, Mapping) else refuse("data must be an object", data)
        for key, value in fields.items():
            if key in payload:
                refuse(f"'{key}' was given both in data and as a keyword", value)
            payload[key] = value
    built = _meta(request_id, warnings, warning_details, rate_limit, telemetry, meta)
    if pagination is not None:
        built["pagination"] = _plain(pagination)
    if content_fidelity is not None:
        built["content_fidelity_schema_version"] = CONTENT_FIDELITY_SCHEMA_VERSION
        built["content_fidelity"] = content_fidelity
    if dropped_content_ids:
        built["dropped_content_ids"] = _listed("dropped_content_ids", dropped_content_ids)
    if content_archive_hashes:
        built["content_archive_hashes"] = _plain(content_archive_hashes)
    return ToolResponse(True, payload, None, built)


def error_response(
    message: str,
    *,
    error_code: str | None = None,
    error_type: str | None = None,
    remediation: str | None = None,
    data: Mapping[str, Any] | None = None,
    details: Mapping[str, Any] | None = None,
    request_id: str | None = None,
    rate_limit: Mapping[str, Any] | None = None,
    telemetry: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    retryable: bool | None = None,
    retry_after_seconds: float | None = None,
    effect: Effect | None = None,
) -> ToolResponse:
    """A failure. What is not said is taken from the table of the code; `data` is merged into the payload."""
    if not isinstance(error_code or "", str):
        refuse("error_code must be a string in SCREAMING_SNAKE_CASE", error_code)
    if not isinstance(error_type or "", str):
        refuse(f"error_type must be one of {', '.join(ERROR_TYPES)}", error_type)
    code = error_code or _DEFAULT_CODES.get(error_type or "internal", "INTERNAL_ERROR")
    rule = ERROR_CODES.get(code)
    if error_type is None:
        if rule is None:
            refuse(f"{code!r} is not a code of ours, so say its error_type", error_type)
        error_type = rule.error_type
    kind = ERROR_TYPES.get(error_type)
    if kind is None:
        refuse(f"error_type must be one of {', '.join(ERROR_TYPES)}", error_type)
    payload: dict[str, Any] = {
        "error_code": code,
        "error_type": error_type,
        "remediation": remediation or (rule.remediation if rule else f"Retry? {kind.retry_rule}."),
        "details": _plain(details) if details is not None else {},
        "retryable": kind.retryable if retryable is None else retryable,
        "effect": effect or ("unknown" if error_type in {"internal", "unavailable"} else "none"),
    }
    if retry_after_seconds is not None:
        payload["retry_after_seconds"] = retry_after_seconds
    if data is not None:
        for key, value in _plain(data).items():
            if key in payload and payload[key] != value:
                refuse(f"data['{key}'] contradicts the argument of that name", value)
            payload[key] = value
    return ToolResponse(False, payload, message, _meta(request_id, None, None, rate_limit, telemetry, meta))


def failure_response(
    failure: FoundryError,
    *,
    request_id: str | None = None,
    rate_limit: Mapping[str, Any] | None = None,
    telemetry: Mapping[str, Any] | None = None,
    effect: Effect | None = None,
) -> ToolResponse:
    """The answer that a typed error knows."""
    return error_response(
        failure.message,
        error_code=failure.code,
        error_type=failure.error_type,
        remediation=failure.remediation,
        details=failure.details,
        data=failure.data or None,
        request_id=request_id,
        rate_limit=rate_limit,
        telemetry=telemetry,
        retry_after_seconds=failure.retry_after_seconds,
        effect=effect or failure.effect,
    )


def warning(code: str, message: str, *, severity: str | None = None, **context: Any) -> dict[str, Any]:
    """One structured warning; the severity of a known code need not be said."""
    rule = WARNING_CODES.get(code)
    if severity is None:
        if rule is None:
            refuse(f"{code!r} is not a warning code of ours, so say its severity", severity)
        severity = rule.severity
    built: dict[str, Any] = {"code": code, "severity": severity, "message": message}
    if context:
        built["context"] = context
    check_warning(built)
    return built


class _RequestIds:
    """`req_` and 12 digits: never twice in a process, and cheap to read.

    Decimal digits are hex digits that o200k_base packs three to a token, so an id costs 4 tokens where
    random hex costs 8. A process walks the 10^12 ids in steps coprime to their number from a random start.
    """

    SPACE = 10**12
    STEP = 381_966_011_251  # coprime to 10^12, about the golden section of it, so neighbours look unrelated

    def __init__(self) -> None:
        self.restart()
        os.register_at_fork(after_in_child=self.restart)

    def restart(self) -> None:
        self._start = random.SystemRandom().randrange(self.SPACE)
        self._steps = count()

    def __call__(self) -> str:
        return f"req_{(self._start + next(self._steps) * self.STEP) % self.SPACE:012d}"


new_request_id = _RequestIds()

_DEFAULT_CODES = {
    "validation": "VALIDATION_ERROR",
    "authentication": "UNAUTHORIZED",
    "authorization": "FORBIDDEN",
    "not_found": "NOT_FOUND",
    "conflict": "CONFLICT",
    "rate_limit": "RATE_LIMIT_EXCEEDED",
    "feature_flag": "FEATURE_DISABLED",
    "internal": "INTERNAL_ERROR",
    "unavailable": "UNAVAILABLE",
}


def _meta(
    request_id: str | None,
    warnings: Sequence[str] | None,
    warning_details: Sequence[Mapping[str, Any]] | None,
    rate_limit: Mapping[str, Any] | None,
    telemetry: Mapping[str, Any] | None,
    extra: Mapping[str, Any] | None,
) -> dict[str, Any]:
    meta: dict[str, Any] = {"version": RESPONSE_VERSION}
    if request_id is not None:
        meta["request_id"] = request_id
    more = dict(_plain(extra)) if extra is not None else {}
    if warnings or warning_details or more:
        said = _listed("warnings", warnings, more.pop("warnings", None))
        details = _listed("warning_details", warning_details, more.pop("warning_details", None))
        for detail in details:
            check_warning(detail)
            if detail["message"] not in said:
                said.append(detail["message"])
        if said:
            meta["warnings"] = said
        if details:
            meta["warning_details"] = details
    if rate_limit is not None:
        meta["rate_limit"] = _plain(rate_limit)
    if telemetry is not None:
        meta["telemetry"] = _plain(telemetry)
    meta.update(more)
    return meta


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    return (
        value
        if type(value) is dict
        else dict(value)
        if isinstance(value, Mapping)
        else refuse("expected an object", value)
    )


def _listed(name: str, *values: Iterable[Any] | None) -> list[Any]:
    listed: list[Any] = []
    for value in values:
        if value is None:
            continue
        if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
            refuse(f"{name} must be a list", value)
        listed.extend(value)
    return listed
