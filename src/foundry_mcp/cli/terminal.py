"""What only makes sense at a terminal: making a workspace, watching one, and telling a client of this server."""

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from foundry_mcp.core.disk import disk_error
from foundry_mcp.core.errors import forbidden
from foundry_mcp.core.specs import outline
from foundry_mcp.core.specs.model import FOLDERS, Spec
from foundry_mcp.core.specs.store import SpecStore
from foundry_mcp.operations.declaration import Call, Registry

__all__ = ["TERMINAL", "watch"]

TERMINAL = Registry()
LOOK_EVERY_SECONDS = 0.25
EXAMPLE = """
# Example

## Look around
- [ ] Show the specs: foundry-cli specs list
- [ ] Show this one as a tree: foundry-cli specs get example
## Work
- [ ] Take the next task: foundry-cli tasks next example
- [ ] Complete a task: foundry-cli tasks complete example task-1-1
  - the bar of the first phase moves
- [ ] verify: Delete this example: it is the file specs/pending/example.json
"""


@TERMINAL.operation("terminal", "init", cli="init")
def init(call: Call) -> dict[str, Any]:
    """Make a workspace here: the specs folders, and an example that can be deleted."""
    root = call.surroundings.workspace / "specs"
    if root.is_symlink():
        raise forbidden("specs is a link, and links are not followed")
    fresh = not root.exists()
    created = []
    try:
        for folder in FOLDERS:
            if not (root / folder).is_dir():
                (root / folder).mkdir(parents=True)
                created.append(f"specs/{folder}")
    except OSError as error:
        raise disk_error(error, "specs") from error
    data: dict[str, Any] = {"workspace": call.surroundings.workspace.name, "created": created}
    if fresh:
        document = outline.new_document("Example", spec_id="example")
        outline.read_outline(Spec(document, "pending"), EXAMPLE)
        data["example"] = call.surroundings.specs.create(document).id
    return data


ClientName = Annotated[
    Literal["claude-code", "claude-desktop", "cursor", "vscode", "codex"],
    Meta(description="The MCP client to configure"),
]
Remove = Annotated[bool, Meta(description="Take this server out again")]


@TERMINAL.operation("terminal", "install", cli="install", example="claude-code", writes=True)
def install_into(call: Call, client: ClientName, *, remove: Remove = False) -> dict[str, Any]:
    """Put this server into the configuration of an MCP client; shows the change, and keeps what was there."""
    from difflib import unified_diff  # noqa: PLC0415 - only who installs pays for it

    from foundry_mcp.cli.install import install  # noqa: PLC0415 - likewise

    done = install(client, call.surroundings.workspace, Path.home(), remove=remove, dry_run=call.dry_run)
    change = unified_diff(done.before.splitlines(), done.after.splitlines(), "before", "after", lineterm="")
    data: dict[str, Any] = {"client": client, "file": str(done.path), "changed": done.before != done.after}
    if data["changed"]:
        data["change"] = "\n".join(change)
    if done.backup is not None:
        data["backup"] = str(done.backup)
    return {**data, "dry_run": True} if call.dry_run else data


def watch(store: SpecStore, draw: Callable[[], Any]) -> None:
    """Redraw whenever a spec file changes, until Ctrl-C."""
    from rich.live import Live  # noqa: PLC0415 - rich, only when a person is looking

    from foundry_mcp.cli.screen import plain_console  # noqa: PLC0415 - likewise

    gc.enable()
    with Live(draw(), console=plain_console(), auto_refresh=False, screen=True) as live:
        seen = None
        while True:
            entries = store.index()
            now = [
                (row.get("revision"), row.get("last_updated"), row["spec_id"], row["status"])
                for row in store.summaries(entries)
            ]
            if now != seen:
                live.update(draw(), refresh=True)
                seen = now
            time.sleep(LOOK_EVERY_SECONDS)
