"""What a good spec satisfies. Each finding says where, how bad, what to do, and whether `fix` can do it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

from foundry_mcp.core.specs import graph, structure
from foundry_mcp.core.specs.model import CONTAINERS, ROOT, STATUSES, TASKS, Spec, copied

__all__ = ["Finding", "findings", "fix"]

Mend = Callable[[], None]
MAX_PASSES = 20


class Finding(NamedTuple):
    code: str
    severity: Literal["error", "warning", "info"]
    place: str
    message: str
    remedy: str
    mend: Mend | None = None

    def describe(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "place": self.place,
            "message": self.message,
            "remedy": self.remedy,
            "fixable": self.mend is not None,
        }


def findings(spec: Spec) -> list[Finding]:
    """Everything that is wrong or doubtful, worst first."""
    found = [finding for rule in RULES for finding in rule(spec)]
    return sorted(found, key=lambda finding: ("error", "warning", "info").index(finding.severity))


def fix(spec: Spec) -> list[Finding]:
    """Mend what can be mended, in place; returns what was mended. One pass may uncover more for the next."""
    mended: list[Finding] = []
    for _ in range(MAX_PASSES):
        found = [finding for finding in findings(spec) if finding.mend is not None]
        if not found:
            break
        for finding in found:
            if finding.mend is not None:
                finding.mend()
        spec.changed()
        mended += found
    return mended


def _document(spec: Spec) -> Iterator[Finding]:
    for key in ("title", "generated", "last_updated"):
        if not isinstance(spec.document.get(key), str) or not spec.document[key]:
            yield Finding("MISSING_FIELD", "warning", key, f"the spec has no {key}", f"Set {key}.")


def _kinds(spec: Spec) -> Iterator[Finding]:
    for node_id, node in spec.nodes.items():
        if node["type"] not in CONTAINERS | TASKS:
            known = ", ".join(sorted(CONTAINERS | TASKS))
            yield Finding(
                "UNKNOWN_TYPE", "error", node_id, f"unknown type {node['type']!r}", f"Use one of {known}."
            )
        if node["status"] not in STATUSES:
            said = f"unknown status {node['status']!r}"
            remedy = f"Use one of {', '.join(STATUSES)}; fix makes it pending."
            yield Finding(
                "UNKNOWN_STATUS", "error", node_id, said, remedy, partial(node.update, status="pending")
            )
        if not isinstance(node.get("title"), str) or not node["title"].strip():
            remedy = "Give it one; fix uses its id."
            mend = partial(node.update, title=node_id)
            yield Finding("MISSING_TITLE", "warning", node_id, "it has no title", remedy, mend)


def _tree(spec: Spec) -> Iterator[Finding]:
    reachable = set(spec.order)
    for node_id, node in spec.nodes.items():
        children = node.get("children", [])
        for child in dict.fromkeys(children):
            if child not in spec.nodes:
                said = f"its child {child} does not exist"
                mend = partial(_take_off, node, "children", child)
                yield Finding("UNKNOWN_CHILD", "error", node_id, said, "Take it off the list.", mend)
            elif spec.nodes[child].get("parent") != node_id:
                other = spec.nodes[child].get("parent")
                said = f"{node_id} lists it, but its parent is {other!r}"
                mend = partial(spec.nodes[child].update, parent=node_id)
                if other in spec.nodes and child in spec.nodes[other].get("children", ()):
                    mend = partial(_take_off, node, "children", child)
                yield Finding("PARENT_MISMATCH", "error", child, said, f"Set its parent to {node_id}.", mend)
        if len(children) != len(set(children)):
            mend = partial(node.update, children=list(dict.fromkeys(children)))
            yield Finding(
                "DUPLICATE_CHILD", "error", node_id, "it lists a child twice", "List each child once.", mend
            )
        if node_id not in reachable:
            yield _orphan(spec, node_id)
        if node["type"] in {"phase", "group"} and not children:
            yield Finding(
                "EMPTY_PHASE",
                "info",
                node_id,
                f"this {node['type']} has no tasks",
                "Add tasks, or remove it.",
            )


def _orphan(spec: Spec, node_id: str) -> Finding:
    parent = spec.nodes[node_id].get("parent")
    mend: Mend | None = None
    if parent in spec.nodes and parent != node_id and node_id not in spec.ancestors(str(parent)):
        mend = partial(spec.nodes[str(parent)].setdefault("children", []).append, node_id)
    remedy = "List it among the children of its parent."
    return Finding("ORPHAN_NODE", "error", node_id, "nothing leads to it from the root", remedy, mend)


def _edges(spec: Spec) -> Iterator[Finding]:
    for node_id, node in spec.nodes.items():
        edges = node.get("dependencies") or {}
        for key, mirror in (("blocked_by", "blocks"), ("blocks", "blocked_by"), ("depends", None)):
            for other in dict.fromkeys(edges.get(key) or ()):
                place = f"{node_id}.dependencies.{key}"
                off = partial(_take_off, edges, key, other)
                if other not in spec.nodes:
                    said = f"{other} does not exist"
                    yield Finding("DANGLING_DEPENDENCY", "error", place, said, "Take it off the list.", off)
                elif other == node_id:
                    yield Finding(
                        "SELF_DEPENDENCY", "error", place, "it waits for itself", "Take it off the list.", off
                    )
                elif mirror and node_id not in (
                    (spec.nodes[other].get("dependencies") or {}).get(mirror) or ()
                ):
                    both = (node_id, other) if key == "blocked_by" else (other, node_id)
                    said = f"{other} does not say so in its {mirror}"
                    mend = partial(structure.join, spec, *both)
                    yield Finding("ONE_WAY_DEPENDENCY", "warning", place, said, "Say it on both sides.", mend)
    for cycle in graph.find_cycles(spec):
        said = f"these wait for one another: {' → '.join(cycle)}"
        remedy = 'Remove one of the edges with task(action="depend", remove=true).'
        yield Finding("DEPENDENCY_CYCLE", "error", cycle[0], said, remedy)


def _counts(spec: Spec) -> Iterator[Finding]:
    settled = Spec(copied(spec.document), spec.folder)
    structure.settle(settled)
    mend = partial(structure.settle, spec)
    for node_id in spec.order:
        here, there = spec.nodes[node_id], settled.nodes[node_id]
        counted, right = (
            f"{node.get('completed_tasks')}/{node.get('total_tasks')}" for node in (here, there)
        )
        if counted != right:
            said = f"it counts {counted} tasks, there are {right}"
            yield Finding("WRONG_COUNTS", "warning", node_id, said, "Count again.", mend)
        elif here["status"] != there["status"]:
            said = f"it is {here['status']}, but its tasks make it {there['status']}"
            yield Finding("WRONG_STATUS", "warning", node_id, said, "Take the status of its tasks.", mend)


def _content(spec: Spec) -> Iterator[Finding]:
    if not spec.tasks:
        yield Finding("NO_TASKS", "info", ROOT, "the spec has no tasks", 'Add some with task(action="add").')
    for node_id in spec.tasks:
        node = spec.nodes[node_id]
        waiting = graph.unmet(spec, node_id) if node["status"] == "completed" else []
        if waiting:
            said = f"it is completed, but waits for {', '.join(waiting)}"
            yield Finding(
                "COMPLETED_TOO_EARLY", "warning", node_id, said, "Complete those, or remove the edges."
            )


def _take_off(holder: dict[str, Any], key: str, entry: str) -> None:
    holder[key] = [other for other in holder[key] if other != entry]


RULES = (_document, _kinds, _tree, _edges, _counts, _content)
