"""The domain. It knows nothing of MCP, HTTP, terminals or browsers."""
