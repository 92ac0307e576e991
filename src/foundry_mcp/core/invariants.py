"""What makes an answer response-v2. Each rule says what to change, because its reader is building an answer."""

import re
from math import isfinite
from typing import Any, Literal, NoReturn, get_args

from foundry_mcp.core.errors import EFFECTS, ERROR_CODES, ERROR_TYPES

RESPONSE_VERSION = "response-v2"
CONTENT_FIDELITY_SCHEMA_VERSION = "1.0"

ContentFidelity = Literal["full", "partial", "summary", "reference_only"]
Severity = Literal["info", "warning", "error"]
CONTENT_FIDELITY_LEVELS: tuple[str, ...] = get_args(ContentFidelity)
SEVERITIES: tuple[str, ...] = get_args(Severity)

_SCREAMING = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*").fullmatch


class ContractViolation(TypeError):  # noqa: N818 - it names what happened, as the contract kit reports it
    """An answer that would break response-v2: a bug of whoever builds the answer, never a user's."""


def check_envelope(success: Any, data: Any, error: Any, meta: Any) -> None:
    """Raise unless these four are response-v2; it runs for every answer, so it stays flat and short."""
    if type(data) is not dict:
        refuse("data must be an object; send {} when there is no payload", data)
    if success is True:
        if error is not None:
            refuse("error must be null when success is true; use error_response for a failure", error)
    elif success is False:
        if type(error) is not str or not error:
            refuse("error must be a non-empty string when success is false", error)
        _check_error_data(data)
    else:
        refuse("success must be true or false", success)
    for key in data:
        if type(key) is not str:
            refuse("the keys of data must be strings", key)
    if type(meta) is not dict or meta.get("version") != RESPONSE_VERSION:
        refuse(f'meta must be an object with "version": "{RESPONSE_VERSION}"', meta)
    for key, value in meta.items():
        if type(key) is not str:
            refuse("the keys of meta must be strings", key)
        check = _META_CHECKS.get(key)
        if check is not None:
            check(value)


def refuse(rule: str, received: Any) -> NoReturn:
    shown = repr(received)
    raise ContractViolation(
        f"{rule}; got {type(received).__name__} {shown if len(shown) <= 80 else shown[:80] + '…'}"
    )


def _check_error_data(data: dict[str, Any]) -> None:
    for key, (holds, rule) in _ERROR_FIELDS.items():
        if key in data and not holds(data[key]):
            refuse(f"data.{key} must be {rule}", data[key])
    known = ERROR_CODES.get(data.get("error_code", ""))
    if known is not None and data.get("error_type", known.error_type) != known.error_type:
        refuse(f"{data['error_code']} is of error_type '{known.error_type}'", data["error_type"])


def _is_code(value: Any) -> bool:
    return isinstance(value, str) and _SCREAMING(value) is not None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value) and value >= 0


_ERROR_FIELDS = {
    "error_code": (_is_code, "SCREAMING_SNAKE_CASE, such as NOT_FOUND"),
    "error_type": (
        lambda value: isinstance(value, str) and value in ERROR_TYPES,
        f"one of {', '.join(ERROR_TYPES)}",
    ),
    "remediation": (lambda value: isinstance(value, str), "a sentence"),
    "details": (lambda value: type(value) is dict, "an object"),
    "retryable": (lambda value: type(value) is bool, "true or false"),
    "effect": (lambda value: isinstance(value, str) and value in EFFECTS, "none, applied or unknown"),
    "retry_after_seconds": (_is_amount, "a number of seconds, 0 or more"),
}


def _check_request_id(value: Any) -> None:
    if type(value) is not str or not value:
        refuse("meta.request_id must be a non-empty string; leave it out when there is none", value)


def _check_warnings(value: Any) -> None:
    if type(value) is not list or not all(isinstance(entry, str) for entry in value):
        refuse("meta.warnings must be a list of strings; structure goes into warning_details", value)


def _check_warning_details(value: Any) -> None:
    if type(value) is not list:
        refuse("meta.warning_details must be a list of objects", value)
    for entry in value:
        check_warning(entry)


def check_warning(entry: Any) -> None:
    if type(entry) is not dict or not isinstance(entry.get("message"), str):
        refuse("a warning detail must be an object with a message", entry)
    if not _is_code(entry.get("code", "OK")):
        refuse("a warning's code must be SCREAMING_SNAKE_CASE", entry["code"])
    if entry.get("severity", "info") not in SEVERITIES:
        refuse(f"a warning's severity must be one of {', '.join(SEVERITIES)}", entry["severity"])
    if type(entry.get("context", {})) is not dict:
        refuse("a warning's context must be an object", entry["context"])


def _check_pagination(value: Any) -> None:
    if type(value) is not dict or type(value.get("has_more")) is not bool:
        refuse("meta.pagination must be an object with has_more true or false", value)
    cursor = value.get("cursor")
    if cursor is not None and not isinstance(cursor, str):
        refuse("meta.pagination.cursor must be an opaque string", cursor)
    if value["has_more"] and not cursor:
        refuse("meta.pagination.has_more is true, so a cursor for the next page must be there", value)
    for key in ("total_count", "page_size"):
        if not _is_count(value.get(key, 0)):
            refuse(f"meta.pagination.{key} must be a whole number, 0 or more", value[key])


def _check_rate_limit(value: Any) -> None:
    if type(value) is not dict:
        refuse("meta.rate_limit must be an object", value)
    for key in ("limit", "remaining"):
        if not _is_count(value.get(key, 0)):
            refuse(f"meta.rate_limit.{key} must be a whole number, 0 or more", value[key])
    if not isinstance(value.get("reset_at", ""), (str, int, float)):
        refuse("meta.rate_limit.reset_at must be a time", value["reset_at"])


def _check_telemetry(value: Any) -> None:
    if type(value) is not dict or not _is_amount(value.get("duration_ms", 0)):
        refuse("meta.telemetry must be an object, and its duration_ms a number, 0 or more", value)
    if type(value.get("cache_hit", False)) is not bool:
        refuse("meta.telemetry.cache_hit must be true or false", value["cache_hit"])


def _check_fidelity(value: Any) -> None:
    if value not in CONTENT_FIDELITY_LEVELS:
        refuse(f"meta.content_fidelity must be one of {', '.join(CONTENT_FIDELITY_LEVELS)}", value)


def _check_fidelity_version(value: Any) -> None:
    if not isinstance(value, str):
        refuse(
            f'meta.content_fidelity_schema_version must be a string such as "{CONTENT_FIDELITY_SCHEMA_VERSION}"',
            value,
        )


def _check_dropped(value: Any) -> None:
    if type(value) is not list or not all(isinstance(entry, str) for entry in value):
        refuse("meta.dropped_content_ids must be a list of strings", value)


def _check_hashes(value: Any) -> None:
    if type(value) is not dict or not all(isinstance(entry, str) for pair in value.items() for entry in pair):
        refuse("meta.content_archive_hashes must map archive ids to hashes, both strings", value)


def _check_replayed(value: Any) -> None:
    if type(value) is not bool:
        refuse("meta.replayed must be true or false", value)


_META_CHECKS = {
    "replayed": _check_replayed,
    "request_id": _check_request_id,
    "warnings": _check_warnings,
    "warning_details": _check_warning_details,
    "pagination": _check_pagination,
    "rate_limit": _check_rate_limit,
    "telemetry": _check_telemetry,
    "content_fidelity": _check_fidelity,
    "content_fidelity_schema_version": _check_fidelity_version,
    "dropped_content_ids": _check_dropped,
    "content_archive_hashes": _check_hashes,
}
