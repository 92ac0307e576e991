"""The terminal door: `foundry-cli`. Tables for people, one JSON envelope for everything else."""

import gc
import os
import sys
from contextlib import suppress

__all__ = ["main"]


def main() -> None:
    """Run one command and be gone: a process this short has no garbage to look for and nothing to take down."""
    gc.disable()
    from foundry_mcp.cli.commands import run  # noqa: PLC0415 - imported under the switch above

    code = run(sys.argv[1:])
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    if logging := sys.modules.get("logging"):
        logging.shutdown()
    sys.stderr.flush()
    os._exit(code)
