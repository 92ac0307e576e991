"""The envelope of the knowledge contract 1.0.0, field by field."""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

ResponseStatus = Literal["success", "partial", "error"]
WarningLevel = Literal["info", "warning", "error"]

T = TypeVar("T")
TOKEN_TOLERANCE = 1.1


class ResponseMetadata(BaseModel):
    """Core metadata of every answer."""

    operation: Annotated[str, Field(description="Tool operation name")]
    version: Annotated[str, Field(description="API version")]
    timestamp: Annotated[
        str, Field(description="ISO 8601 with timezone", json_schema_extra={"format": "date-time"})
    ]
    request_id: Annotated[str, Field(description="Unique request identifier")]
    status: ResponseStatus
    message: Annotated[str | None, Field(description="Status message")] = None

    @field_validator("timestamp")
    @classmethod
    def _has_a_timezone(cls, value: str) -> str:
        if datetime.fromisoformat(value).tzinfo is None:
            raise ValueError("timestamp must be ISO 8601 with a timezone")
        return value


class PaginationMetadata(BaseModel):
    """Where the next page begins."""

    cursor: Annotated[str, Field(description="Base64-encoded JSON cursor")]
    page_size: Annotated[int, Field(ge=1, description="Results per page")]
    has_more: Annotated[bool, Field(description="More results available")]
    total_available: Annotated[int | None, Field(ge=0, description="Total results, if known")] = None


class ExecutionContext(BaseModel):
    """What the answer cost."""

    tokens_estimated: Annotated[int, Field(ge=0, description="Estimated token count")]
    tokens_used: Annotated[int | None, Field(ge=0, description="Actual tokens, if counted")] = None
    cache_hit: Annotated[bool, Field(description="Result from cache")]
    execution_time_ms: Annotated[float, Field(gt=0, description="Execution time")]
    request_id: Annotated[str, Field(description="Matches _metadata.request_id")]

    @model_validator(mode="after")
    def _estimate_holds(self) -> Self:
        if self.tokens_used is not None and self.tokens_used > self.tokens_estimated * TOKEN_TOLERANCE:
            raise ValueError("tokens_used cannot exceed tokens_estimated by more than 10%")
        return self


class ResponseWarning(BaseModel):
    """Something the client may want to act on."""

    level: WarningLevel
    code: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$", description="SCREAMING_SNAKE_CASE")]
    message: Annotated[str, Field(description="Human-readable message")]
    suggestion: Annotated[str | None, Field(description="Remediation action")] = None


class ResponseError(BaseModel):
    """Why it failed; further keys depend on the code."""

    model_config = ConfigDict(extra="allow")

    code: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$", description="SCREAMING_SNAKE_CASE")]
    message: Annotated[str, Field(description="Human-readable message")]


class MCPResponseEnvelope(BaseModel, Generic[T]):
    """The envelope of every knowledge answer; `error` is there only when status is error."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    metadata: Annotated[ResponseMetadata, Field(alias="_metadata")]
    results: Annotated[T, Field(description="Tool-specific results")]
    pagination: PaginationMetadata | None = None
    execution_context: ExecutionContext
    warnings: list[ResponseWarning]
    error: ResponseError | None = None

    @model_validator(mode="after")
    def _is_one_answer(self) -> Self:
        if self.execution_context.request_id != self.metadata.request_id:
            raise ValueError("execution_context.request_id must match _metadata.request_id")
        return self


class Succeeded(ResponseMetadata):
    """Metadata of an answer that holds results, all of them or a part."""

    status: Literal["success", "partial"]


class Failed(ResponseMetadata):
    """Metadata of an answer that holds none."""

    status: Literal["error"]


class KnowledgeSuccess(MCPResponseEnvelope[list[Any] | dict[str, Any]]):
    """An answer with results."""

    metadata: Annotated[Succeeded, Field(alias="_metadata")]
    error: None = None


class KnowledgeFailure(MCPResponseEnvelope[list[Any]]):
    """An answer that says why there are none."""

    metadata: Annotated[Failed, Field(alias="_metadata")]
    error: ResponseError
