"""What a user decides: `foundry-mcp.toml` in the workspace, then the environment, then the command line."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from foundry_mcp.core.errors import not_found, validation
from foundry_mcp.core.flags import Flags, flags_of_environment, parse_flag

__all__ = ["SETTINGS_FILE", "Settings", "find_workspace", "load_settings"]

SETTINGS_FILE = "foundry-mcp.toml"


class Settings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The keys of `foundry-mcp.toml`; every one has a default, and an unknown one is refused."""

    flags: dict[str, bool] = {}
    rate_limits: dict[str, str] = {}
    """A limit by tool, or `default` for the others: "100/minute". None unless set."""
    rate_limit_storage: str = "memory://"
    """Where the counts live; a redis:// address lets several servers share them."""
    deadline_seconds: Annotated[float, msgspec.Meta(gt=0)] = 120.0
    max_tokens: Annotated[int, msgspec.Meta(ge=500)] = 25_000
    """How long an answer over MCP may be (o200k_base); what does not fit is archived and named."""
    log_level: str = "info"


def load_settings(
    workspace: Path, environment: Mapping[str, str], *, flags: Iterable[str] = ()
) -> tuple[Settings, Flags]:
    """The settings that hold here. A file that cannot be understood is an error: guessing would be worse."""
    settings = _read(workspace / SETTINGS_FILE)
    switches = Flags()
    switches.set(settings.flags, SETTINGS_FILE)
    switches.set(flags_of_environment(environment), "the environment")
    for text in flags:
        name, value = parse_flag(text)
        switches.enabled(name)  # on the command line a wrong name is a slip worth stopping for
        switches.set({name: value}, "the command line")
    if level := environment.get("FOUNDRY_LOG_LEVEL"):
        settings.log_level = level
    return settings, switches


def find_workspace(chosen: str | None, environment: Mapping[str, str], start: Path | None = None) -> Path:
    """The folder we work in: the one chosen, else the nearest one upwards that has `specs/` or is a git root."""
    wanted = chosen or environment.get("FOUNDRY_WORKSPACE")
    if wanted:
        try:
            folder = Path(wanted).expanduser().resolve()
            found = folder.is_dir()
        except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
            found = False
        if not found:
            raise not_found("workspace", wanted)
        return folder
    here = (start or Path.cwd()).resolve()
    # A worktree has a `.git` file where a clone has a folder, and it is a root of its own: whichever comes first.
    for folder in (here, *here.parents):
        if any((folder / mark).exists() for mark in ("specs", ".git")) and _is_own(folder):
            return folder
    return here


def _is_own(folder: Path) -> bool:
    """A `specs` folder of the file system root or the home folder is nobody's workspace."""
    return folder.parent != folder and folder != Path(os.path.expanduser("~"))


def _read(path: Path) -> Settings:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise validation(
            SETTINGS_FILE, "readable", f"{SETTINGS_FILE} cannot be read: {error.strerror}"
        ) from error
    try:
        return msgspec.toml.decode(text, type=Settings)
    except (ValueError, RecursionError) as error:
        raise validation(
            SETTINGS_FILE,
            "settings",
            f"{SETTINGS_FILE} is not understood: {error}",
            remediation=f"Mend {SETTINGS_FILE}; its keys are {', '.join(Settings.__struct_fields__)}",
        ) from error
