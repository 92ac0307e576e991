"""The wire forms as types: the one source of the JSON Schemas, the TypeScript types and what mypy knows.

Only what generates or publishes schemas imports this; an answer is checked by `invariants`.
"""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from foundry_mcp.core.errors import Effect, ErrorType
from foundry_mcp.core.invariants import ContentFidelity, Severity

Code = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$")]
Count = Annotated[int, Field(ge=0)]
Duration = Annotated[float, Field(ge=0)]

# The four keys of the envelope are all there are; what is inside them may grow.
CLOSED = ConfigDict(extra="forbid")
OPEN = ConfigDict(extra="allow")


@with_config(OPEN)
class WarningDetail(TypedDict):
    """A warning with severity and context."""

    code: NotRequired[Annotated[Code, Field(description="Machine-readable classification")]]
    severity: NotRequired[Severity]
    message: Annotated[str, Field(description="Human-readable description")]
    context: NotRequired[Annotated[dict[str, Any], Field(description="Context of this kind of warning")]]


@with_config(OPEN)
class MorePages(TypedDict):
    """There is a next page, and the cursor leads to it."""

    has_more: Literal[True]
    cursor: Annotated[str, Field(min_length=1, description="Opaque token for the next page")]
    total_count: NotRequired[Annotated[Count, Field(description="Total matching items, if known")]]
    page_size: NotRequired[Annotated[Count, Field(description="Items per page")]]


@with_config(OPEN)
class LastPage(TypedDict):
    """This page is the last."""

    has_more: Literal[False]
    cursor: NotRequired[str | None]
    total_count: NotRequired[Annotated[Count, Field(description="Total matching items, if known")]]
    page_size: NotRequired[Annotated[Count, Field(description="Items per page")]]


@with_config(OPEN)
class RateLimit(TypedDict):
    """The quota and what is left of it."""

    limit: NotRequired[Count]
    remaining: NotRequired[Count]
    reset_at: NotRequired[Annotated[str | float, Field(description="When the quota is whole again")]]


@with_config(OPEN)
class Telemetry(TypedDict):
    """Timing and other measurements of the call."""

    duration_ms: NotRequired[Duration]
    cache_hit: NotRequired[bool]


@with_config(OPEN)
class Meta(TypedDict):
    """Operational metadata; an optional key is absent rather than empty."""

    version: Literal["response-v2"]
    request_id: NotRequired[
        Annotated[str, Field(description="Correlation id in the answer, the log and the trace")]
    ]
    warnings: NotRequired[Annotated[list[str], Field(description="Non-fatal issues")]]
    warning_details: NotRequired[list[WarningDetail]]
    pagination: NotRequired[MorePages | LastPage]
    rate_limit: NotRequired[RateLimit]
    telemetry: NotRequired[Telemetry]
    content_fidelity: NotRequired[Annotated[ContentFidelity, Field(description="How complete the answer is")]]
    content_fidelity_schema_version: NotRequired[str]
    dropped_content_ids: NotRequired[Annotated[list[str], Field(description="What was left out")]]
    content_archive_hashes: NotRequired[
        Annotated[dict[str, str], Field(description="Archive id to hash, to fetch what was left out")]
    ]
    replayed: NotRequired[Annotated[bool, Field(description="The first answer to this idempotency key")]]


@with_config(OPEN)
class ErrorData(TypedDict):
    """Why it failed; further keys depend on the code."""

    error_code: NotRequired[Annotated[Code, Field(description="Machine-readable classification")]]
    error_type: NotRequired[Annotated[ErrorType, Field(description="Category for routing")]]
    remediation: NotRequired[Annotated[str, Field(description="What to do about it")]]
    details: NotRequired[Annotated[dict[str, Any], Field(description="Field or context of the failure")]]
    retryable: NotRequired[Annotated[bool, Field(description="Whether the same call may succeed later")]]
    retry_after_seconds: NotRequired[Duration]
    effect: NotRequired[Annotated[Effect, Field(description="Whether a failed write happened")]]


@with_config(CLOSED)
class Success(TypedDict):
    """The operation completed."""

    success: Literal[True]
    data: Annotated[dict[str, Any], Field(description="Operation payload; {} when there is none")]
    error: None
    meta: Meta


@with_config(CLOSED)
class Failure(TypedDict):
    """The operation failed."""

    success: Literal[False]
    data: ErrorData
    error: Annotated[str, Field(min_length=1, description="Human-readable description")]
    meta: Meta


@with_config(OPEN)
class LegacyMeta(TypedDict):
    """What response-v2 says in `meta`, in the flat form."""

    version: Literal["response-v1"]
    request_id: NotRequired[str]


@with_config(OPEN)
class LegacySuccess(TypedDict):
    success: Literal[True]
    error: None
    _warnings: NotRequired[list[str]]
    _meta: NotRequired[LegacyMeta]


@with_config(OPEN)
class LegacyFailure(TypedDict):
    success: Literal[False]
    error: str
    _warnings: NotRequired[list[str]]
    _meta: NotRequired[LegacyMeta]
