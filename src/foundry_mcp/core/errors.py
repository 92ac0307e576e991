"""Everything that can go wrong, on one screen.

    FoundryError              code, message, details, remediation, effect, retry_after_seconds
    ├── ValidationError       400  the input is wrong; fix it
    ├── AuthenticationError   401  who are you?
    ├── AuthorizationError    403  you may not
    ├── NotFoundError         404  there is no such thing
    ├── ConflictError         409  the state does not allow it now; look again
    ├── RateLimitError        429  too often; wait
    ├── FeatureFlagError      403  the feature is switched off
    ├── InternalError         500  our fault; retry with backoff
    └── UnavailableError      503  not now; retry with backoff

One class for each `error_type` of the contract; the finer `error_code` is data, and `ERROR_CODES` says
which type it belongs to, whether a retry helps, and what to do about it. Code below `runtime` raises
these and never builds an answer; `runtime` turns them into one.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, NamedTuple, get_args

__all__ = [
    "ERROR_CODES",
    "ERROR_TYPES",
    "AuthenticationError",
    "AuthorizationError",
    "ConflictError",
    "Effect",
    "ErrorType",
    "FeatureFlagError",
    "FoundryError",
    "InternalError",
    "NotFoundError",
    "RateLimitError",
    "UnavailableError",
    "ValidationError",
    "conflict",
    "feature_disabled",
    "forbidden",
    "internal",
    "invalid_cursor",
    "missing",
    "nearest",
    "not_found",
    "rate_limited",
    "shorten",
    "timed_out",
    "unauthorized",
    "unavailable",
    "unknown_name",
    "validation",
]

ErrorType = Literal[
    "validation",
    "authentication",
    "authorization",
    "not_found",
    "conflict",
    "rate_limit",
    "feature_flag",
    "internal",
    "unavailable",
]
Effect = Literal["none", "applied", "unknown"]
MAX_ECHOED_BITS = 256
MAX_SENTENCE = 600
EFFECTS: frozenset[str] = frozenset(get_args(Effect))


class TypeRule(NamedTuple):
    """What an `error_type` means to whoever has to react to it."""

    http_status: int
    retryable: bool
    retry_rule: str
    description: str


ERROR_TYPES: Mapping[str, TypeRule] = {
    "validation": TypeRule(400, False, "No, fix input", "Invalid input data"),
    "authentication": TypeRule(401, False, "No, re-authenticate", "Invalid or missing credentials"),
    "authorization": TypeRule(403, False, "No", "Insufficient permissions"),
    "not_found": TypeRule(404, False, "No", "The requested resource does not exist"),
    "conflict": TypeRule(409, False, "Maybe, check state", "The state does not allow it, or a duplicate"),
    "rate_limit": TypeRule(429, True, "Yes, after delay", "Too many requests"),
    "feature_flag": TypeRule(403, False, "No, check flag status", "Feature not enabled for the client"),
    "internal": TypeRule(500, True, "Yes, with backoff", "Server-side error"),
    "unavailable": TypeRule(503, True, "Yes, with backoff", "Service temporarily unavailable"),
}


class CodeRule(NamedTuple):
    """One row of the table: the type a code belongs to, and what to do when nothing better is known."""

    error_type: str
    description: str
    remediation: str

    @property
    def http_status(self) -> int:
        return ERROR_TYPES[self.error_type].http_status

    @property
    def retryable(self) -> bool:
        return ERROR_TYPES[self.error_type].retryable

    @property
    def retry_rule(self) -> str:
        return ERROR_TYPES[self.error_type].retry_rule


# A remediation is read by agents that act on it: none of them names a command that destroys anything.
ERROR_CODES: Mapping[str, CodeRule] = {
    "VALIDATION_ERROR": CodeRule("validation", "Generic input validation failure", "Check the parameter values against the tool's schema."),
    "INVALID_FORMAT": CodeRule("validation", "Malformed input: wrong type or bad JSON", "Send the value in the type the schema names."),
    "MISSING_REQUIRED": CodeRule("validation", "A required field was not provided", "Provide the missing parameter."),
    "INVALID_CURSOR": CodeRule("validation", "A cursor that was altered, is outdated, or belongs to another query", "Start again without a cursor, and send each cursor only with the query it came from."),
    "INVALID_FIELDS": CodeRule("validation", "Fields that this response mode does not have", "Ask only for fields of this response_mode, or choose a fuller mode."),
    "TOKEN_LIMIT_EXCEEDED": CodeRule("validation", "The answer would exceed the token limit", "Use a smaller response_mode or page_size, or raise max_tokens."),
    "UNAUTHORIZED": CodeRule("authentication", "Invalid or missing credentials", "Send a valid token and try again."),
    "FORBIDDEN": CodeRule("authorization", "Insufficient permissions", "Ask for the scope or the path you need; this one is not open to you."),
    "NOT_FOUND": CodeRule("not_found", "The resource does not exist", "Verify the identifier with the list action of the same tool."),
    "SPEC_NOT_FOUND": CodeRule("not_found", "The specification file was not found", 'Verify the spec ID with spec(action="list").'),
    "TASK_NOT_FOUND": CodeRule("not_found", "The task ID was not found in the spec", 'Verify the task ID with task(action="query").'),
    "CONFLICT": CodeRule("conflict", "State conflict or invalid transition", "Read the current state, then decide again."),
    "DUPLICATE_ENTRY": CodeRule("conflict", "The resource already exists", "Use the existing resource, or choose another identifier."),
    "ALREADY_EXISTS": CodeRule("conflict", "A resource with this ID already exists", "Use a different ID, or work with the one that exists."),
    "INVALID_STATE": CodeRule("conflict", "The operation is not allowed in the current state", "Check the lifecycle state; the details name the moves that are legal."),
    "DEPENDENCY_ERROR": CodeRule("conflict", "Unmet dependencies", "Complete the tasks it depends on first."),
    "VERSION_CONFLICT": CodeRule("conflict", "Somebody else wrote since you read", "Read again, reapply your change, and send the new revision."),
    "RATE_LIMIT_EXCEEDED": CodeRule("rate_limit", "Too many requests", "Wait for retry_after_seconds, and batch requests where you can."),
    "FEATURE_DISABLED": CodeRule("feature_flag", "The feature flag is not enabled", 'Enable the flag in foundry-mcp.toml or the environment; server(action="flags") lists them.'),
    "INTERNAL_ERROR": CodeRule("internal", "Unexpected server error", "Retry with backoff; if it persists, report the request_id."),
    "SPEC_CORRUPTED": CodeRule("internal", "The spec file cannot be read as a spec", "Restore the file from its history or from version control, then try again."),
    "CONTENT_CORRUPTED": CodeRule("internal", "Archived content does not match its hash", "Ask the tool that gave the hash again; what it answers is archived anew."),
    "UNAVAILABLE": CodeRule("unavailable", "Service temporarily unavailable", "Retry with backoff."),
    "DEADLINE_EXCEEDED": CodeRule("unavailable", "The call took longer than its deadline", "Retry with a longer deadline or a smaller request."),
}  # fmt: skip


class FoundryError(Exception):
    """A failure that knows its answer. Raise a subclass, or use one of the constructors below."""

    error_type: ClassVar[str] = "internal"
    default_code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        remediation: str | None = None,
        details: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        effect: Effect | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        # Whatever a client sent may end up in here, and it must not come back at length.
        self.message = str(shorten(message, MAX_SENTENCE))
        super().__init__(self.message)
        self.code = code or self.default_code
        rule = ERROR_CODES.get(self.code)
        if rule is not None and rule.error_type != self.error_type:
            raise ValueError(
                f"{self.code} is of error_type {rule.error_type}; raise that class instead of {type(self).__name__}"
            )
        said = remediation or (rule or ERROR_CODES[self.default_code]).remediation
        self.remediation = str(shorten(said, MAX_SENTENCE))
        self.details = dict(details or {})
        self.data = dict(data or {})
        self.effect = effect
        self.retry_after_seconds = retry_after_seconds


class ValidationError(FoundryError):
    error_type = "validation"
    default_code = "VALIDATION_ERROR"


class AuthenticationError(FoundryError):
    error_type = "authentication"
    default_code = "UNAUTHORIZED"


class AuthorizationError(FoundryError):
    error_type = "authorization"
    default_code = "FORBIDDEN"


class NotFoundError(FoundryError):
    error_type = "not_found"
    default_code = "NOT_FOUND"


class ConflictError(FoundryError):
    error_type = "conflict"
    default_code = "CONFLICT"


class RateLimitError(FoundryError):
    error_type = "rate_limit"
    default_code = "RATE_LIMIT_EXCEEDED"


class FeatureFlagError(FoundryError):
    error_type = "feature_flag"
    default_code = "FEATURE_DISABLED"


class InternalError(FoundryError):
    error_type = "internal"
    default_code = "INTERNAL_ERROR"


class UnavailableError(FoundryError):
    error_type = "unavailable"
    default_code = "UNAVAILABLE"


def validation(
    field: str,
    constraint: str,
    message: str,
    *,
    received: Any = None,
    code: str = "VALIDATION_ERROR",
    remediation: str | None = None,
    **details: Any,
) -> ValidationError:
    """The input is wrong: which field, which rule, and what came instead (shortened)."""
    return ValidationError(
        f"Validation failed: {message}",
        code=code,
        remediation=remediation,
        details={"field": shorten(field), "constraint": constraint, **details, "received": shorten(received)},
    )


def missing(field: str, *, remediation: str | None = None) -> ValidationError:
    return validation(
        field,
        "required",
        f"{field} is required",
        code="MISSING_REQUIRED",
        remediation=remediation or f"Provide a non-empty {field} parameter",
    )


def unknown_name(kind: str, name: Any, known: Iterable[str], *, field: str) -> ValidationError:
    """A name that is not in a closed set: says which are, and the one that was probably meant."""
    known = list(known)
    guess = nearest(str(name), known)
    hint = f"Did you mean '{guess[0]}'? " if guess else ""
    return validation(
        field,
        "enum",
        f"unknown {kind} '{shorten(name)}'",
        received=name,
        remediation=f"{hint}Use one of: {', '.join(known)}",
        allowed=known,
        **({"nearest": guess[0]} if guess else {}),
    )


def invalid_cursor(reason: str, received: Any) -> ValidationError:
    return validation("cursor", "cursor", f"cursor {reason}", code="INVALID_CURSOR", received=received)


def not_found(
    resource_type: str, resource_id: str, *, code: str = "NOT_FOUND", near: Iterable[str] = (), **details: Any
) -> NotFoundError:
    guess = nearest(resource_id, near)
    rule = ERROR_CODES[code]
    return NotFoundError(
        f"{resource_type.capitalize()} not found: {shorten(resource_id)}",
        code=code,
        remediation=f"Did you mean {' or '.join(repr(g) for g in guess)}? {rule.remediation}"
        if guess
        else None,
        details={
            "resource_type": resource_type,
            "resource_id": shorten(resource_id),
            **details,
            **({"nearest": guess} if guess else {}),
        },
    )


def conflict(
    message: str,
    *,
    code: str = "CONFLICT",
    remediation: str | None = None,
    effect: Effect | None = None,
    **details: Any,
) -> ConflictError:
    return ConflictError(message, code=code, remediation=remediation, effect=effect, details=details)


def unauthorized(message: str = "Credentials are missing or invalid") -> AuthenticationError:
    return AuthenticationError(message)


def forbidden(message: str, *, remediation: str | None = None, **details: Any) -> AuthorizationError:
    return AuthorizationError(message, remediation=remediation, details=details)


def feature_disabled(flag: str) -> FeatureFlagError:
    return FeatureFlagError(
        f"Feature '{flag}' is not enabled", data={"feature": flag}, details={"flag": flag}
    )


def rate_limited(limit: str, retry_after_seconds: float) -> RateLimitError:
    return RateLimitError(
        f"Rate limit exceeded: {limit}",
        remediation=f"Wait {retry_after_seconds:g} seconds before retrying. Consider batching requests.",
        details={"limit": limit},
        retry_after_seconds=retry_after_seconds,
    )


def timed_out(seconds: float) -> UnavailableError:
    return UnavailableError(
        f"The call did not finish within its deadline of {seconds:g} seconds",
        code="DEADLINE_EXCEEDED",
        details={"deadline_seconds": seconds},
    )


def unavailable(
    message: str, *, retry_after_seconds: float | None = None, effect: Effect | None = None, **details: Any
) -> UnavailableError:
    return UnavailableError(message, details=details, retry_after_seconds=retry_after_seconds, effect=effect)


def internal(message: str = "An unexpected error occurred") -> InternalError:
    return InternalError(message)


def nearest(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """The known names that look most like `name`; a very long one is not worth comparing."""
    return get_close_matches(name, list(known), n=most, cutoff=0.6) if len(name) <= 100 else []


def shorten(value: Any, limit: int = 80) -> Any:
    """What was received, small enough to send back: long text is cut, containers become a description."""
    if isinstance(value, int):
        return value if value.bit_length() <= MAX_ECHOED_BITS else f"a number of {value.bit_length()} bits"
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, str):
        cut = value if len(value) <= limit else f"{value[:limit]}… ({len(value)} characters)"
        return cut.encode("utf-8", "replace").decode()  # an argument of a shell may hold half a character
    if isinstance(value, Mapping):
        return f"object with {len(value)} keys"
    if isinstance(value, (list, tuple)):
        return f"array of {len(value)} items"
    return type(value).__name__
