"""The terminal door: `foundry-cli`. Tables for people, one JSON envelope for everything else."""

import sys

__all__ = ["main"]


def main() -> None:
    from foundry_mcp.cli.commands import run  # noqa: PLC0415 - what this costs is measured, so it is said where it is paid

    sys.exit(run(sys.argv[1:]))
