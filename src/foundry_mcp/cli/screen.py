"""What a person sees: the payload as tables and lines, warnings in yellow, an error with the way out of it."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.json import JSON
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from foundry_mcp.cli.views import VIEWS
from foundry_mcp.core.contracts import encode
from foundry_mcp.core.responses import ToolResponse
from foundry_mcp.operations.declaration import Operation

__all__ = ["plain_console", "show"]


def show(response: ToolResponse, operation: Operation | None = None) -> None:
    console = plain_console(stderr=not response.success)
    if response.success:
        view = VIEWS.get(operation.name) if operation else None
        console.print(view(response.data) if view else Group(*_payload(response.data)))
        _show_paging(console, response.meta.get("pagination"), operation)
    else:
        console.print(_failure(response))
    for text in response.meta.get("warnings", ()):
        console.print(Text(f"! {text}", style="yellow"))


def plain_console(*, stderr: bool = False) -> Console:
    """A console that shows text as it is: what stands in a spec is data, never markup."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def _payload(data: Mapping[str, Any]) -> Iterable[RenderableType]:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column()
    blocks: list[RenderableType] = []
    for key, value in data.items():
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            blocks.append(_table(value))
        elif isinstance(value, dict) and any(isinstance(inner, (dict, list)) for inner in value.values()):
            blocks += [Text(_words(key), style="dim"), JSON(encode(value).decode())]
        elif isinstance(value, str) and "\n" in value:
            blocks.append(Text(value))
        else:
            facts.add_row(_words(key), _cell(value))
    return [facts, *blocks] if facts.row_count else blocks


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        numeric = all(
            isinstance(row.get(column), (int, float)) and row.get(column) is not True for row in rows
        )
        table.add_column(_words(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(_gist(row.get(column))) for column in columns))
    return table


def _gist(value: Any) -> Any:
    """A row has room for the names of what is inside, not for the inside."""
    return list(value) if isinstance(value, dict) else value


def _cell(value: Any) -> Text:
    if value is None or value in ({}, []):
        return Text("-", style="dim")
    if isinstance(value, bool):
        return Text("yes", style="green") if value else Text("no", style="dim")
    if isinstance(value, dict):
        return Text("\n".join(f"{key}: {_cell(inner)}" for key, inner in value.items()))
    if isinstance(value, list):
        return Text(", ".join(str(_cell(inner)) for inner in value))
    return Text(str(value))


def _failure(response: ToolResponse) -> Panel:
    data = response.data
    lines = Text(response.error or "")
    lines.append(f"\n\n{data['remediation']}", style="bold")
    for key, value in data["details"].items():
        if value is not None and key not in {"allowed", "nearest"}:
            lines.append(f"\n{_words(key)}: {_cell(value)}", style="dim")
    if data["effect"] != "none":
        lines.append(f"\neffect: {data['effect']}", style="yellow")
    lines.append(f"\n{response.meta['request_id']}", style="dim")
    return Panel(lines, title=data["error_code"], title_align="left", border_style="red", padding=(0, 1))


def _show_paging(console: Console, pagination: Mapping[str, Any] | None, operation: Operation | None) -> None:
    if pagination and pagination["has_more"]:
        command = f"foundry-cli {operation.cli} … " if operation else ""
        console.print(Text(f"more: {command}--cursor {pagination['cursor']}", style="dim"))


def _words(key: str) -> str:
    return key.replace("_", " ")
