"""What surrounds every call: one way in, one way out.

    request ──▶ find ─▶ parse ─▶ flag ─▶ quota ─▶ idempotency ─▶ operation ──▶ answer ─▶ metrics ─▶ wire form
                  └───────────────┴────────┴──────────┴────────────┴── any exception ─▶ answer

A door decodes a `Request` and sends what comes back. Whatever is raised on the way becomes an answer here
and nowhere else: a typed error its own, anything unexpected INTERNAL_ERROR with nothing of the inside in
it, while the log keeps the trace under the same request id.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Thread
from time import perf_counter
from typing import Any, Protocol

import msgspec

from foundry_mcp.core.contracts import Contract, encode, parse_contract, render
from foundry_mcp.core.errors import FoundryError, internal, rate_limited, timed_out
from foundry_mcp.core.idempotency import IdempotencyStore
from foundry_mcp.core.rate_limits import Quota, RateLimits
from foundry_mcp.core.responses import (
    ToolResponse,
    failure_response,
    new_request_id,
    success_response,
)
from foundry_mcp.operations.declaration import (
    DRY_RUN,
    EXPECTED_REVISION,
    IDEMPOTENCY,
    MAX_TOKENS,
    Answer,
    Call,
    Operation,
    Session,
    Surroundings,
)

__all__ = ["Log", "Outcome", "Request", "Runtime"]

MAX_LOGGED = 200


class Log(Protocol):
    """Where the runtime tells what happened; `error` carries the trace of an unexpected one."""

    def __call__(self, message: str, fields: dict[str, Any], error: BaseException | None = None) -> None: ...


@dataclass(slots=True)
class Request:
    """A call as a door received it. `arguments` holds the action of tools that have some."""

    tool: str
    arguments: Mapping[str, Any]
    session: Session = field(default_factory=Session)
    contract: Any = None
    """A contract asked for with this request alone, as it was spelled."""
    from_text: bool = False
    request_id: str = field(default_factory=new_request_id)
    received: float = field(default_factory=perf_counter)
    abandoned: bool = False
    """It has been answered, because its deadline passed, while its work goes on."""


@dataclass(slots=True)
class Outcome:
    """An answer, ready to be sent."""

    response: ToolResponse
    wire: dict[str, Any]
    body: bytes
    """`wire` as compact JSON."""
    understood: bool
    """False when the request never reached an operation: to a terminal, that is wrong usage."""


@dataclass(slots=True)
class _Progress:
    """How far a request came, for the answer if it fails on the way."""

    operation: Operation | None = None
    parsed: bool = False
    running: bool = False
    applied: bool = False
    """A write has happened; whatever fails after it does not undo it."""
    max_tokens: int | None = None
    quota: Quota | None = None

    @property
    def name(self) -> str:
        # Unknown names are one series: a client could otherwise grow the metrics without end.
        return self.operation.name if self.operation else "unknown"


class Runtime:
    def __init__(
        self,
        surroundings: Surroundings,
        *,
        log: Log,
        rate_limits: RateLimits | None = None,
        max_tokens: int | None = None,
    ) -> None:
        """`max_tokens` is how long an answer may be where the caller does not say; none says no limit."""
        self.surroundings = surroundings
        self._max_tokens = max_tokens
        self._log = log
        self._rate_limits = rate_limits
        self._kept: IdempotencyStore | None = None

    def call(self, request: Request) -> Outcome:
        """Answer a request, in this thread, whatever happens."""
        progress = _Progress()
        try:
            return self._close(request, progress, self._answer(request, progress))
        except Exception as error:  # noqa: BLE001 - the one place where every exception becomes an answer
            return self._fail(request, progress, self._typed(request, progress, error))

    def call_within(self, request: Request, seconds: float) -> Outcome:
        """Answer within a deadline; what has not ended by then goes on alone, and its effect is unknown."""
        outcomes: list[Outcome] = []
        worker = Thread(target=lambda: outcomes.append(self.call(request)), daemon=True)
        worker.start()
        worker.join(seconds)
        return outcomes[0] if outcomes else self.expire(request, seconds)

    def expire(self, request: Request, seconds: float) -> Outcome:
        """The answer to a request that did not end within its deadline."""
        progress = _Progress(parsed=True, running=True)
        failure: FoundryError = timed_out(seconds)
        try:
            progress.operation = self.surroundings.registry.find(
                request.tool, request.arguments.get("action")
            )
        except FoundryError as error:
            failure = error
        outcome = self._fail(request, progress, failure)
        request.abandoned = True
        return outcome

    def refuse(self, request: Request, failure: FoundryError) -> Outcome:
        """The answer to what a door could not even decode."""
        return self._fail(request, _Progress(), failure)

    def _answer(self, request: Request, progress: _Progress) -> ToolResponse:
        around = self.surroundings
        if request.contract is not None:
            parse_contract(request.contract)
        operation = progress.operation = around.registry.find(request.tool, request.arguments.get("action"))
        arguments = request.arguments
        if operation.action is not None:
            arguments = {key: value for key, value in arguments.items() if key != "action"}
        parameters = operation.parse(arguments, from_text=request.from_text)
        progress.parsed = True
        if operation.flag is not None:
            around.flags.require(operation.flag)
        call = Call(request.request_id, request.session, around)
        self._take_quota(request, progress, call)
        progress.running = True
        values = {name: getattr(parameters, name) for name in parameters.__struct_fields__}
        key = values.pop(IDEMPOTENCY, None)
        progress.max_tokens = call.max_tokens = values.pop(MAX_TOKENS, None) or self._max_tokens
        call.dry_run = values.pop(DRY_RUN, False)
        call.expected_revision = values.pop(EXPECTED_REVISION, None)
        if key is None or call.dry_run:
            return self._succeed(request, progress, call, operation.run(call, **values))
        return self._run_once(request, progress, call, values, key)

    def _typed(self, request: Request, progress: _Progress, error: Exception) -> FoundryError:
        if isinstance(error, FoundryError):
            return error
        self._log("unexpected error", {"request_id": request.request_id, "operation": progress.name}, error)
        return internal()

    def _take_quota(self, request: Request, progress: _Progress, call: Call) -> None:
        quota = self._rate_limits.count(request.session.client, request.tool) if self._rate_limits else None
        if quota is None:
            return
        progress.quota = quota
        if quota.retry_after is not None:
            raise rate_limited(quota.rule, quota.retry_after)
        if quota.approaching:
            call.warn(
                "RATE_LIMIT_APPROACHING",
                f"{quota.remaining} of {quota.limit} calls are left",
                reset_at=quota.reset_at,
            )

    def _run_once(
        self, request: Request, progress: _Progress, call: Call, values: dict[str, Any], key: str
    ) -> ToolResponse:
        if self._kept is None:
            self._kept = IdempotencyStore(self.surroundings.workspace)
        operation = progress.operation
        assert operation is not None  # noqa: S101 - only a found operation is run
        sent = {**msgspec.to_builtins(values), EXPECTED_REVISION: call.expected_revision}
        with self._kept.slot(key, operation.name, sent) as slot:
            if slot.answer is not None:
                kept = msgspec.convert(slot.answer, ToolResponse)
                meta = {**kept.meta, "request_id": request.request_id, "replayed": True}
                return ToolResponse(kept.success, kept.data, kept.error, meta)
            try:
                response = self._succeed(request, progress, call, operation.run(call, **values))
            except FoundryError as failure:
                if _effect(progress, failure) == "none":
                    slot.forget()
                raise
            slot.keep(msgspec.to_builtins(response))
            return response

    def _succeed(
        self, request: Request, progress: _Progress, call: Call, result: Answer | dict[str, Any]
    ) -> ToolResponse:
        progress.applied = bool(progress.operation and progress.operation.writes and not call.dry_run)
        answer = result if isinstance(result, Answer) else Answer(result)
        telemetry: dict[str, Any] = {"duration_ms": _milliseconds(request)}
        if answer.telemetry:
            telemetry |= answer.telemetry
        return success_response(
            answer.data,
            request_id=request.request_id,
            warning_details=call.warnings or None,
            pagination=answer.pagination,
            rate_limit=progress.quota.meta if progress.quota else None,
            telemetry=telemetry,
        )

    def _fail(self, request: Request, progress: _Progress, failure: FoundryError) -> Outcome:
        try:
            return self._close(request, progress, self._failed(request, progress, failure))
        except Exception as error:  # noqa: BLE001 - a typed error whose details cannot be sent is a bug like any other
            bug = self._typed(request, progress, error)
            return self._close(request, progress, self._failed(request, progress, bug))

    def _failed(self, request: Request, progress: _Progress, failure: FoundryError) -> ToolResponse:
        return failure_response(
            failure,
            request_id=request.request_id,
            rate_limit=progress.quota.meta if progress.quota else None,
            telemetry={"duration_ms": _milliseconds(request)},
            effect=_effect(progress, failure),
        )

    def _close(self, request: Request, progress: _Progress, response: ToolResponse) -> Outcome:
        contract = self._contract(request, progress.operation)
        wire = render(response, contract, operation=progress.name)
        body = encode(wire)
        # A token is at least a byte, so most answers need no counting.
        if progress.max_tokens is not None and len(body) > progress.max_tokens:
            response = self._fitted(response, progress, contract)
            wire = render(response, contract, operation=progress.name)
            body = encode(wire)
        outcome = Outcome(response, wire, body, progress.parsed)
        code = "" if response.success else response.data["error_code"]
        duration = _milliseconds(request)
        if not request.abandoned:  # it was answered and counted when its time was over
            self.surroundings.metrics.record(progress.name, code, duration)
        self._log(
            "call ended after its deadline" if request.abandoned else "call",
            {
                "request_id": request.request_id,
                "operation": progress.name,
                "client": request.session.client[:MAX_LOGGED],
                "outcome": code or "success",
                "duration_ms": duration,
            },
        )
        return outcome

    def _fitted(self, response: ToolResponse, progress: _Progress, contract: Contract) -> ToolResponse:
        """As much of an answer as its budget allows; the rest is archived before anything is sent."""
        from foundry_mcp.core.budget import count_tokens, fit  # noqa: PLC0415 - only a long answer pays for it

        def count(candidate: ToolResponse) -> int:
            return count_tokens(encode(render(candidate, contract, operation=progress.name)))

        fitted = fit(response, progress.max_tokens or 0, count)
        for part in fitted.kept:
            self.surroundings.archive.put(part.content, part.name, ids=part.ids, operation=progress.name)
        return fitted.response

    def _contract(self, request: Request, operation: Operation | None) -> Contract:
        """What the client asked for, else what the server's flag says, else what the operation speaks."""
        if request.contract is not None:
            try:
                return parse_contract(request.contract)
            except FoundryError:
                pass  # it is being refused; say so in the ordinary form
        if request.session.contract is not None:
            return request.session.contract
        default = self.surroundings.default_contract
        return operation.contract if operation and default is Contract.V2 else default


def _effect(progress: _Progress, failure: FoundryError) -> Any:
    """Whether a failed call changed anything: one that reads, or never began, did not."""
    if progress.applied:
        return "applied"
    if not progress.running or progress.operation is None or not progress.operation.writes:
        return "none"
    if failure.effect is not None:
        return failure.effect
    return "unknown" if failure.error_type in {"internal", "unavailable"} else "none"


def _milliseconds(request: Request) -> float:
    """Two decimals below a second, none above: precise enough, and few tokens."""
    elapsed = (perf_counter() - request.received) * 1000
    return max(round(elapsed, 2), 0.01) if elapsed < 1000 else round(elapsed)
