"""How specs and tasks look on a terminal: trees with bars, tables, a card. Anything else is shown as it comes."""

from collections.abc import Callable, Iterable
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

__all__ = ["VIEWS", "spec_tree"]

Data = dict[str, Any]
View = Callable[[Data], RenderableType]

BAR_WIDTH = 12
TASK_TYPES = frozenset({"task", "subtask", "verify"})
LOOKS = {
    "completed": ("✓", "green"),
    "in_progress": ("▶", "cyan"),
    "blocked": ("■", "red"),
    "pending": ("○", "white"),
}


def spec_tree(head: Data, lines: Iterable[Data]) -> RenderableType:
    """A spec as a tree: phases with bars, tasks with their state."""
    title = Text(str(head.get("title") or head.get("spec_id")), style="bold")
    title.append(f"  {head.get('status', '')}", style="dim")
    if progress := head.get("progress"):
        title = Text.assemble(title, "  ", bar(progress["completed"], progress["total"]))
    tree = Tree(title, guide_style="dim")
    branches: dict[int, Tree] = {}
    for line in lines:
        depth = line["depth"]
        if depth == 0:
            branches[0] = tree
            continue
        branches[depth] = branches.get(depth - 1, tree).add(_leaf(line))
    return tree


def bar(done: int, total: int) -> Text:
    filled = round(BAR_WIDTH * done / total) if total else 0
    return Text.assemble(
        ("━" * filled, "green"), ("╌" * (BAR_WIDTH - filled), "bright_black"), (f" {done}/{total}", "dim")
    )


def _leaf(line: Data) -> Text:
    if "total_tasks" in line:
        return Text.assemble(
            (line["title"], "bold"),
            "  ",
            bar(line["completed_tasks"], line["total_tasks"]),
            (f"  {line['id']}", "dim"),
        )
    mark, style = LOOKS.get(line["status"], ("?", "yellow"))
    return Text.assemble(
        (f"{mark} ", style),
        (line["title"], "dim" if line["status"] == "completed" else ""),
        (f"  {line['id']}", "dim"),
    )


def _spec(data: Data) -> RenderableType:
    if "outline" in data:
        return spec_tree(data["spec"], data["outline"])
    nodes = data["hierarchy"]
    if "phase" in data["spec"]:
        return _phase(data["spec"], nodes)
    return spec_tree(data["spec"], [_flat(nodes, node_id) for node_id in nodes])


def _phase(head: Data, nodes: Data) -> RenderableType:
    phase = nodes[head["phase"]]
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in ("", "task", "what", "owner", "waits for"):
        table.add_column(column, overflow="fold")
    for node_id, node in nodes.items():
        if node["type"] in TASK_TYPES:
            mark, style = LOOKS.get(node["status"], ("?", "yellow"))
            facts = node.get("metadata", {})
            owner = (facts.get("claim") or {}).get("owner") or facts.get("owner") or ""
            waits = ", ".join((node.get("dependencies") or {}).get("blocked_by") or ())
            table.add_row(Text(mark, style=style), node_id, node.get("title", ""), str(owner), waits)
    done = head["progress"]
    title = Text.assemble((phase.get("title", ""), "bold"), "  ", bar(done["completed"], done["total"]))
    return Group(title, table)


def _flat(nodes: Data, node_id: str) -> Data:
    node, depth, parent = nodes[node_id], 0, nodes[node_id].get("parent")
    while parent in nodes and depth < len(nodes):
        depth, parent = depth + 1, nodes[parent].get("parent")
    line = {"id": node_id, "title": node.get("title", ""), "status": node["status"], "depth": depth}
    counts = {key: node.get(key, 0) for key in ("completed_tasks", "total_tasks")}
    return line if node["type"] in TASK_TYPES else {**line, **counts}


def _created(data: Data) -> RenderableType:
    return spec_tree({**data, "title": f"{data['title']}  {data['spec_id']}"}, data["outline"])


def _specs(data: Data) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in ("spec", "title", "status", "progress"):
        table.add_column(column, overflow="fold")
    for row in data["specs"]:
        if "problem" in row:
            table.add_row(row["spec_id"], Text(row["problem"], style="red"), row["status"], "")
        else:
            table.add_row(
                row["spec_id"], row["title"], row["status"], bar(row["completed_tasks"], row["total_tasks"])
            )
    return (
        table
        if data["specs"]
        else Text("No specs here. Make one: foundry-cli specs create TITLE", style="dim")
    )


def _tasks(data: Data) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in ("", "task", "what", "phase", "owner"):
        table.add_column(column, overflow="fold")
    for row in data["tasks"]:
        mark, style = LOOKS.get(row["status"], ("?", "yellow"))
        table.add_row(
            Text(mark, style=style),
            row["task_id"],
            row["description"],
            row["phase"] or "",
            row.get("owner", ""),
        )
    return table if data["tasks"] else Text("No tasks match.", style="dim")


def _card(data: Data) -> RenderableType:
    task = data["task"]
    if task is None:
        return Text(f"Nothing to start: {data['state'].replace('_', ' ')}", style="yellow")
    mark, style = LOOKS.get(task["status"], ("?", "yellow"))
    parts: list[RenderableType] = [Text(task["title"], style="bold")]
    if said := task["metadata"].get("description"):
        parts += [Text(""), Text(str(said))]
    facts = [
        (key, task["metadata"].get(key)) for key in ("expected", "command", "details", "estimated_hours")
    ]
    for label, values in (
        *(
            (key.replace("_", " "), value if isinstance(value, list) else [value])
            for key, value in facts
            if value
        ),
        ("done when", task["acceptance_criteria"]),
        ("files", task["files"]),
        ("waits for", task["blocked_by"]),
        ("waited for by", task["waited_for_by"]),
    ):
        if values:
            parts += [Text(""), Text(label, style="dim"), *(Text(f"  • {value}") for value in values)]
    if task["claim"]:
        parts += [
            Text(""),
            Text(f"claimed by {task['claim']['owner']} until {task['claim']['expires_at']}", style="yellow"),
        ]
    return Panel(
        Group(*parts),
        title=Text.assemble((f"{mark} ", style), task["task_id"]),
        subtitle=Text(task["phase"] or "", style="dim"),
        title_align="left",
        subtitle_align="right",
        border_style=style,
        width=88,
    )


def _progress(data: Data) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    whole = data["progress"]
    table.add_row(
        Text("all", style="bold"), bar(whole["completed"], whole["total"]), f"{whole['percentage']} %"
    )
    for phase in data["phases"]:
        table.add_row(phase["title"], bar(phase["completed"], phase["total"]), f"{phase['percentage']} %")
    return table


def _findings(data: Data) -> RenderableType:
    if not data["findings"]:
        return Text(f"✓ {data['spec_id']} is valid", style="green")
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in ("", "where", "what", "how to mend it"):
        table.add_column(column, overflow="fold")
    styles = {"error": "red", "warning": "yellow", "info": "dim"}
    for found in data["findings"]:
        table.add_row(
            Text(found["severity"], style=styles[found["severity"]]),
            found["place"],
            found["message"],
            found["remedy"],
        )
    return table


VIEWS: dict[str, View] = {
    "spec.list": _specs,
    "spec.find": _specs,
    "spec.get": _spec,
    "spec.create": _created,
    "spec.validate": _findings,
    "task.query": _tasks,
    "task.ready": _tasks,
    "task.next": _card,
    "task.get": _card,
    "task.progress": _progress,
}
