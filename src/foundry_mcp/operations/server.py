"""The tool `server`: what this server can do, how it feels, and how it speaks."""

import os
import time
from typing import Annotated, Any, Literal

from msgspec import Meta

from foundry_mcp import __version__
from foundry_mcp.core.contracts import CONTRACT_NAMES, KNOWLEDGE_VERSION, Contract, negotiate
from foundry_mcp.core.errors import unknown_name, validation
from foundry_mcp.core.pagination import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, paginate, query_hash
from foundry_mcp.core.responses import RESPONSE_VERSION
from foundry_mcp.core.schemas import json_schema, typescript
from foundry_mcp.operations.declaration import Answer, Call, Operation, operation
from foundry_mcp.operations.parameters import Cursor, Limit

CONTRACT_META_KEY = "foundry-mcp/response_contract"
"""In the `_meta` of a request, for transports that have no connection to remember a contract."""

ToolName = Annotated[str, Meta(max_length=100, description="Only this tool")]
FlagName = Annotated[str, Meta(max_length=100, description="Only this flag")]
SchemaName = Annotated[
    Literal["response-v2", "response-v1", "knowledge", "typescript"],
    Meta(description="Which wire form, or all as TypeScript"),
]
MetricsFormat = Annotated[
    Literal["json", "prometheus"], Meta(description="Rows, or text for a Prometheus scrape")
]
ClientCapabilities = Annotated[
    dict[str, Any], Meta(description='What the client wants, such as {"response_contract": "v2"}')
]


@operation("server", "capabilities", cli="server capabilities")
def capabilities(call: Call) -> dict[str, Any]:
    """Name the version, contracts, tools and limits of this server."""
    return {
        "name": "foundry-mcp",
        "version": __version__,
        "response_contract": _current(call),
        "response_contracts": {
            "v2": RESPONSE_VERSION,
            "v1": f"{Contract.V1.value} (deprecated)",
            "knowledge": KNOWLEDGE_VERSION,
        },
        "contract_meta_key": CONTRACT_META_KEY,
        "tools": {
            tool: [name for name in actions if name]
            for tool, actions in call.surroundings.registry.tools.items()
        },
        "flags": {row["name"]: row["enabled"] for row in call.surroundings.flags.describe()},
        "limits": {"default_page_size": DEFAULT_PAGE_SIZE, "max_page_size": MAX_PAGE_SIZE},
    }


@operation(
    "server",
    "capability-negotiate",
    cli="server capability-negotiate",
    example='--client-capabilities \'{"response_contract": "v2"}\'',
)
def capability_negotiate(call: Call, *, client_capabilities: ClientCapabilities = {}) -> dict[str, Any]:  # noqa: B006 - never written to
    """Agree on the response contract for the rest of this connection."""
    for key in client_capabilities:
        if key != "response_contract":
            raise unknown_name(
                "client capability", key, ("response_contract",), field=f"client_capabilities.{key}"
            )
    wanted = client_capabilities.get("response_contract")
    if wanted is not None:
        if not isinstance(wanted, (str, list)):
            raise validation(
                "client_capabilities.response_contract",
                "type",
                "response_contract must be a name or a list of names",
                received=wanted,
                code="INVALID_FORMAT",
                remediation=f"Use one of: {', '.join(CONTRACT_NAMES)}",
            )
        call.session.contract = negotiate(wanted)
    return {
        "response_contract": _current(call),
        "scope": "connection" if call.session.lasting else "request",
        "supported": list(CONTRACT_NAMES),
        "contract_meta_key": CONTRACT_META_KEY,
    }


@operation("server", "tools", cli="server tools", example="--tool server")
def tools(
    call: Call,
    *,
    tool: ToolName | None = None,
    limit: Limit = DEFAULT_PAGE_SIZE,
    cursor: Cursor | None = None,
) -> Answer:
    """List the tools and their actions with parameters."""
    registry = call.surroundings.registry
    if tool is not None and tool not in registry.tools:
        raise unknown_name("tool", tool, registry.tools, field="tool")
    found = sorted(
        (declared for declared in registry if tool in {None, declared.tool}), key=lambda row: row.name
    )
    query = query_hash("server.tools", tool=tool)
    page = paginate(found, key=lambda row: row.name, query=query, cursor=cursor, limit=limit)
    return Answer(
        {"operations": [_describe(declared) for declared in page.rows], "total_count": len(found)},
        page.pagination,
    )


@operation("server", "schema", cli="server schema", example="response-v2")
def schema(call: Call, form: SchemaName = "response-v2") -> dict[str, Any]:  # noqa: ARG001 - every operation takes the call
    """Give the JSON Schema of a wire form, or all of them as TypeScript types."""
    if form == "typescript":
        return {"form": form, "source": typescript()}
    return {"form": form, "schema": json_schema(form)}


@operation("server", "flags", cli="server flags", example="--name response_contract_v2")
def flags(
    call: Call,
    *,
    name: FlagName | None = None,
    limit: Limit = DEFAULT_PAGE_SIZE,
    cursor: Cursor | None = None,
) -> Answer:
    """List the feature flags, their stage and where their values come from."""
    known = call.surroundings.flags
    if name is not None:
        known.enabled(name)
    rows = sorted(
        (row for row in known.describe() if name in {None, row["name"]}), key=lambda row: row["name"]
    )
    for complaint in known.complaints():
        call.warn("UNKNOWN_FLAG", complaint)
    query = query_hash("server.flags", name=name)
    page = paginate(rows, key=lambda row: row["name"], query=query, cursor=cursor, limit=limit)
    return Answer({"flags": list(page.rows), "total_count": len(rows)}, page.pagination)


@operation("server", "health", cli="server health")
def health(call: Call) -> dict[str, Any]:
    """Say whether the server can do its work, and how long it has been running."""
    around = call.surroundings
    checks = {
        "workspace_readable": os.access(around.workspace, os.R_OK | os.X_OK),
        "workspace_writable": os.access(around.workspace, os.W_OK),
    }
    return {
        "status": "ok" if all(checks.values()) else "degraded" if checks["workspace_readable"] else "down",
        "version": __version__,
        "uptime_seconds": round(time.monotonic() - around.started, 1),
        "checks": checks,
    }


@operation("server", "metrics", cli="server metrics", example="--format prometheus")
def metrics(call: Call, *, format: MetricsFormat = "json") -> dict[str, Any]:  # noqa: A002 - the name users type
    """Count the calls so far by operation, outcome and error code."""
    if format == "prometheus":
        return {"content_type": "text/plain; version=1.0.0", "text": call.surroundings.metrics.prometheus()}
    rows = call.surroundings.metrics.describe()
    return {"operations": rows, "total_calls": sum(row["count"] for row in rows)}


def _current(call: Call) -> str:
    return (call.session.contract or call.surroundings.default_contract).value


def _describe(declared: Operation) -> dict[str, Any]:
    properties = declared.schema["properties"]
    return {
        "tool": declared.tool,
        "action": declared.action,
        "summary": declared.summary,
        "cli": f"foundry-cli {declared.cli}",
        "writes": declared.writes,
        "required": declared.schema.get("required", []),
        "parameters": {name: _brief(entry) for name, entry in properties.items()},
    }


def _brief(entry: dict[str, Any]) -> str:
    """A parameter in one line, for a person or an agent who wants the gist."""
    kind = " | ".join(map(str, entry["enum"])) if "enum" in entry else str(entry.get("type", "any"))
    return f"{kind}: {entry['description']}" if "description" in entry else kind
