"""The yardstick: the smallest server the SDK's low-level API allows, with one tool, over its stock stdio."""

from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

Context = ServerRequestContext[Any, Any]


async def list_tools(_context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return ListToolsResult(tools=[Tool(name="echo", input_schema=schema)])


async def echo(_context: Context, params: CallToolRequestParams) -> CallToolResult:
    text = (params.arguments or {})["text"]
    return CallToolResult(content=[TextContent(type="text", text=text)])


async def main() -> None:
    server: Server[Any] = Server("bare", on_list_tools=list_tools, on_call_tool=echo)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
