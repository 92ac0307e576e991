"""Every operation once: typed parameters in, plain data out. One module for each tool."""

from foundry_mcp.operations import content, journal, server, spec, task
from foundry_mcp.operations.declaration import REGISTRY

__all__ = ["REGISTRY", "content", "journal", "server", "spec", "task"]
