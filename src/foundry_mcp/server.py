"""The MCP door: the operations as tools, over stdio, on the SDK's low-level server.

Every answer goes out twice in one result, as MCP has it: `structuredContent` is the envelope, and
`content[0].text` is the same envelope as compact JSON, because clients show a model one or the other.
"""

import argparse
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

import anyio
import anyio.to_thread
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCResponse,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from mcp_types.jsonrpc import INVALID_REQUEST, PARSE_ERROR
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic import ValidationError

from foundry_mcp import __version__
from foundry_mcp.core.errors import FoundryError, missing, validation
from foundry_mcp.core.rate_limits import RateLimits
from foundry_mcp.core.settings import find_workspace, load_settings
from foundry_mcp.logs import configure_logs
from foundry_mcp.operations import REGISTRY
from foundry_mcp.operations.declaration import (
    DRY_RUN,
    EXPECTED_REVISION,
    IDEMPOTENCY,
    MAX_TOKENS,
    Operation,
    Session,
    Surroundings,
)
from foundry_mcp.operations.server import CONTRACT_META_KEY
from foundry_mcp.runtime import Outcome, Request, Runtime
from foundry_mcp.stdio import Unreadable, stdio_streams

__all__ = ["Door", "main"]

NAME = "foundry-mcp"
INSTRUCTIONS = (
    "Every answer has the same shape: check success, then read data; on failure follow data.remediation and"
    " retry only if data.retryable. Lists page with meta.pagination.cursor."
)

# All three wire forms satisfy this, success and failure alike: a client that validates must never be kept
# from seeing an error.
OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "anyOf": [
        {"required": ["success", "data", "error", "meta"]},
        {"required": ["success", "error", "_meta"]},
        {"required": ["_metadata", "results"]},
    ],
}

log = logging.getLogger("foundry_mcp")

Context = ServerRequestContext[Session, Any]


class Door:
    """One MCP server around one runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.connection = Session()
        """On stdio a server has one connection, so what was agreed on lasts as long as the process."""
        self.server: Server[Session] = Server(
            NAME,
            version=__version__,
            instructions=INSTRUCTIONS,
            lifespan=self._connected,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
        )
        self.server.middleware.append(self.answer_malformed_call)

    async def serve_stdio(self) -> None:
        async with stdio_streams(self.answer_unreadable) as (incoming, outgoing):
            await self.server.run(incoming, outgoing, self.server.create_initialization_options())

    @asynccontextmanager
    async def _connected(self, _server: Server[Session]) -> AsyncIterator[Session]:
        yield self.connection

    @cached_property
    def tools(self) -> list[Tool]:
        return [
            _tool(name, list(actions.values()))
            for name, actions in self.runtime.surroundings.registry.tools.items()
        ]

    async def list_tools(self, _context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=self.tools)

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        request = Request(
            params.name,
            params.arguments or {},
            _session(context),
            contract=(context.meta or {}).get(CONTRACT_META_KEY),
        )
        trace.get_current_span().set_attribute("foundry.request_id", request.request_id)
        seconds = self.runtime.surroundings.settings.deadline_seconds
        outcome = None
        with anyio.move_on_after(seconds):
            outcome = await anyio.to_thread.run_sync(self.runtime.call, request, abandon_on_cancel=True)
        return _result(outcome or self.runtime.expire(request, seconds))

    async def answer_malformed_call(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """A tool call without a name, or whose arguments are no object, gets an envelope like any other mistake."""
        try:
            return await call_next(ctx)
        except ValidationError as error:
            if ctx.method != "tools/call":
                raise
            place = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in place["loc"])
            if place["type"] == "missing":
                failure = missing(field)
            else:
                said = f"{field}: {place['msg']}"
                failure = validation(field, "type", said, received=place["input"], code="INVALID_FORMAT")
            return _result(self.runtime.refuse(Request("", {}, _session(ctx)), failure))

    def answer_unreadable(self, line: Unreadable) -> JSONRPCResponse | JSONRPCError:
        """A tool call gets the envelope it waits for; anything else a JSON-RPC error, with its id if it has one."""
        failure = validation(
            "message", line.constraint, line.reason, received=f"{line.size} bytes", code="INVALID_FORMAT",
            remediation="Send one JSON-RPC 2.0 message a line, as UTF-8 JSON of moderate depth and size.",
        )  # fmt: skip
        outcome = self.runtime.refuse(Request("", {}, self.connection), failure)
        if line.method == "tools/call" and line.id is not None:
            result = _result(outcome).model_dump(by_alias=True, mode="json", exclude_none=True)
            return JSONRPCResponse(jsonrpc="2.0", id=line.id, result=result)
        code = INVALID_REQUEST if line.constraint == "json-rpc" else PARSE_ERROR
        return JSONRPCError(
            jsonrpc="2.0", id=line.id, error=ErrorData(code=code, message=failure.message, data=outcome.wire)
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the server until its client goes away."""
    options = _options(arguments)
    try:
        workspace = find_workspace(options.workspace, os.environ)
        settings, flags = load_settings(workspace, os.environ, flags=options.flag)
        configure_logs(options.log_level or settings.log_level)
        limits = (
            RateLimits(settings.rate_limits, settings.rate_limit_storage) if settings.rate_limits else None
        )
    except FoundryError as error:
        sys.exit(f"foundry-mcp: {error.message}\n{error.remediation}")
    for complaint in flags.complaints():
        log.warning(complaint)
    runtime = Runtime(
        Surroundings(workspace, settings, flags, REGISTRY),
        log=log_call,
        rate_limits=limits,
        max_tokens=settings.max_tokens,
    )
    anyio.run(Door(runtime).serve_stdio)
    # A call that never ends has a thread that never ends: the client has gone, so nobody waits for it.
    logging.shutdown()
    os._exit(0)


def log_call(message: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
    log.log(logging.ERROR if error else logging.INFO, message, exc_info=error, extra={"fields": fields})


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=NAME, description="Serve specs, tasks, research and knowledge over MCP (stdio)."
    )
    parser.add_argument(
        "--workspace", metavar="FOLDER", help="work here instead of the folder found from the current one"
    )
    parser.add_argument(
        "--flag", action="append", default=[], metavar="NAME=on|off", help="switch a feature flag"
    )
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    parser.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    return parser.parse_args(arguments)


def _session(context: Context) -> Session:
    client = context.session.client_params
    name = client.client_info.name if client else "anonymous"
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return Session(client=name, lasting=False)
    session = context.lifespan_context
    session.client = name
    return session


def _result(outcome: Outcome) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=outcome.body.decode("utf-8"))],
        structured_content=outcome.wire,
        is_error=not outcome.response.success,
    )


def _tool(name: str, operations: Sequence[Operation]) -> Tool:
    writes = any(declared.writes for declared in operations)
    return Tool(
        name=name,
        title=name.replace("_", " ").capitalize(),
        description="\n".join((*(_line(declared) for declared in operations), *_shared(operations))),
        input_schema=_input_schema(operations),
        output_schema=OUTPUT_SCHEMA,
        annotations=ToolAnnotations(
            read_only_hint=not writes,
            destructive_hint=any(declared.destructive for declared in operations),
            open_world_hint=False,
        ),
    )


def _line(declared: Operation) -> str:
    """An action as an agent reads it: what it needs, what else it takes, what it does."""
    if declared.action is None:
        return declared.summary
    required = declared.schema.get("required", ())
    optional = (name for name in declared.schema["properties"] if name not in required and name not in SHARED)
    names = [*required, *(f"{name}?" for name in optional)]
    return f"{declared.action}({', '.join(names)}): {declared.summary}"


SHARED = {
    "limit": "Lists",
    "cursor": "Lists",
    DRY_RUN: "Writes",
    EXPECTED_REVISION: "Writes",
    IDEMPOTENCY: "Writes",
    MAX_TOKENS: "All",
}


def _shared(operations: Sequence[Operation]) -> Iterator[str]:
    """Once for the whole tool, the parameters that so many of its actions take that naming them each time is noise."""
    taken = {name for declared in operations for name in declared.schema["properties"]}
    lines = {
        who: ", ".join(name for name, whose in SHARED.items() if whose == who and name in taken)
        for who in ("Lists", "Writes", "All")
    }
    said = "; ".join(f"{who} take {names}" for who, names in lines.items() if names)
    if said:
        yield f"{said}."


def _input_schema(operations: Sequence[Operation]) -> dict[str, Any]:
    """The parameters of all actions side by side: several clients refuse a schema with alternatives at its top."""
    actions = [declared.action for declared in operations if declared.action is not None]
    properties: dict[str, Any] = {"action": {"enum": actions}} if actions else {}
    for declared in operations:
        for name, entry in declared.schema["properties"].items():
            # What a parameter is stays the same throughout a tool; what happens without it may differ by action.
            meant = {key: value for key, value in entry.items() if key != "default"}
            if properties.setdefault(name, meant) != meant:
                raise ValueError(
                    f"{declared.name} declares '{name}' otherwise than another action of its tool"
                )
    required = ["action"] if actions else operations[0].schema.get("required", [])
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
