"""Put this server into the configuration of an MCP client, or take it out again.

Only our own entry is touched. What was there before is kept beside the file, and a file that cannot be
understood is left alone.
"""

import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foundry_mcp.core.disk import disk_error, open_folder, replace_file
from foundry_mcp.core.errors import conflict

__all__ = ["Installed", "install"]

NAME = "foundry"


class Installed(NamedTuple):
    path: Path
    before: str
    after: str
    backup: Path | None


class _Place(NamedTuple):
    """Where a client looks, under which key, and whether it runs in the workspace by itself."""

    path: Callable[[Path, Path], Path]
    key: str
    in_workspace: bool


def _desktop(home: Path, _workspace: Path) -> Path:
    folder = home / "Library" / "Application Support" if sys.platform == "darwin" else home / ".config"
    return folder / "Claude" / "claude_desktop_config.json"


PLACES: Mapping[str, _Place] = {
    "claude-code": _Place(lambda _home, workspace: workspace / ".mcp.json", "mcpServers", True),
    "claude-desktop": _Place(_desktop, "mcpServers", False),
    "cursor": _Place(lambda home, _workspace: home / ".cursor" / "mcp.json", "mcpServers", False),
    "vscode": _Place(lambda _home, workspace: workspace / ".vscode" / "mcp.json", "servers", True),
    "codex": _Place(lambda home, _workspace: home / ".codex" / "config.toml", "mcp_servers", False),
}


def install(
    client: str, workspace: Path, home: Path, *, remove: bool = False, dry_run: bool = False
) -> Installed:
    """Change the client's configuration, or with `dry_run` only work out the change."""
    place = PLACES[client]
    path = place.path(home, workspace)
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise _not_understood(path, str(error), place, workspace) from error
    entry = None if remove else _entry(place, workspace)
    edit = _edit_toml if path.suffix == ".toml" else _edit_json
    try:
        after = edit(before, place.key, entry)
    except ValueError as error:
        raise _not_understood(path, str(error), place, workspace) from error
    backup = None
    if after != before and not dry_run:
        backup = _write(path, before, after)
    return Installed(path, before, after, backup)


def _entry(place: _Place, workspace: Path) -> dict[str, Any]:
    command = shutil.which("foundry-mcp")
    start = [command] if command else [sys.executable, "-m", "foundry_mcp"]
    # A client that starts its servers elsewhere has to be told where the work is.
    where = [] if place.in_workspace else ["--workspace", str(workspace)]
    entry: dict[str, Any] = {"command": start[0], "args": [*start[1:], *where]}
    return {"type": "stdio", **entry} if place.key == "servers" else entry


def _edit_json(text: str, key: str, entry: dict[str, Any] | None) -> str:
    settings = msgspec.json.decode(text or "{}")
    if not isinstance(settings, dict) or not isinstance(settings.get(key, {}), dict):
        raise ValueError(f"it is not an object with {key}")  # noqa: TRY004 - the file is wrong, not our call
    if entry is None:
        if NAME not in settings.get(key, {}):
            return text
        del settings[key][NAME]
    elif settings.setdefault(key, {}).get(NAME) == entry:
        return text
    else:
        settings[key][NAME] = entry
    return msgspec.json.format(msgspec.json.encode(settings), indent=2).decode("utf-8") + "\n"


def _edit_toml(text: str, key: str, entry: dict[str, Any] | None) -> str:
    """Text in, text out: whatever else stands in the file keeps its comments and its order."""
    known = tomllib.loads(text).get(key, {}).get(NAME)
    if known == entry:
        return text
    block = re.compile(rf"^\[{key}\.{NAME}\][^\n]*\n(?:(?!\s*\[).*\n?)*", re.MULTILINE)
    rest = block.sub("", text)
    if entry is None:
        after = rest
    else:
        lines = "".join(f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in entry.items())
        after = f"{rest.rstrip()}\n\n" if rest.strip() else ""
        after += f"[{key}.{NAME}]\n{lines}"
    if tomllib.loads(after).get(key, {}).get(NAME) != entry:
        raise ValueError(f"its {key}.{NAME} is written in a way that only its author can change")
    return after


def _write(path: Path, before: str, after: str) -> Path | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = path.with_name(f"{path.name}.before-foundry") if before else None
    try:
        with open_folder(path.parent.resolve()) as folder:
            if backup is not None:
                replace_file(folder, backup.name, before.encode("utf-8"), mode=0o600)
            replace_file(folder, path.name, after.encode("utf-8"), mode=_mode(path))
    except OSError as error:
        raise disk_error(error, path.name) from error
    return backup


def _mode(path: Path) -> int:
    """As open as it was: some of these files hold other servers' secrets."""
    return os.stat(path).st_mode & 0o777 if path.exists() else 0o600


def _not_understood(path: Path, why: str, place: _Place, workspace: Path) -> Exception:
    snippet = msgspec.json.encode({place.key: {NAME: _entry(place, workspace)}}).decode("utf-8")
    return conflict(
        f"{path.name} is left as it is: {why}",
        remediation=f"Add this to it by hand: {snippet}",
        file=str(path),
    )
