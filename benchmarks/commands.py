"""The programs that stand side by side, as they are installed."""

import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.measurement import ENVIRONMENT

__all__ = ["BARE_SERVER", "CLI", "PREVIOUS", "PYTHON", "SERVER", "previous_environment", "previous_release"]

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path(sys.executable)
CLI = PYTHON.parent / "foundry-cli"
SERVER = PYTHON.parent / "foundry-mcp"
BARE_SERVER = (PYTHON, ROOT / "benchmarks" / "bare_server.py")

PREVIOUS = "0.16.0"


def previous_release() -> Path:
    """The folder with the commands of the release before this code, set up when it is first asked for."""
    folder = ROOT / ".cache" / "bench" / f"foundry-mcp-{PREVIOUS}"
    ready = folder / ".ready"
    if not ready.exists():
        print(f"Setting up foundry-mcp {PREVIOUS} in {folder.relative_to(ROOT)} …", flush=True)
        venv.create(folder, with_pip=True, clear=True, symlinks=True)
        wanted = (f"foundry-mcp[pdf]=={PREVIOUS}", "mcp<2", "fastmcp<3")
        installing = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", *wanted)
        ended = subprocess.run(installing, capture_output=True, timeout=900, check=False)
        if ended.returncode:
            raise RuntimeError(
                f"pip ended with {ended.returncode}:\n{ended.stderr.decode('utf-8', 'replace')}"
            )
        ready.touch()
    return folder / "bin"


def previous_environment(workspace: Path, home: Path) -> dict[str, str]:
    """What spares that release a search for its specs in each call, and keeps what it stores out of the user's folder."""
    specs = str(workspace / "specs")
    return {
        **ENVIRONMENT,
        "HOME": str(home),
        "FOUNDRY_SPECS_DIR": specs,
        "FOUNDRY_MCP_SPECS_DIR": specs,
    }
