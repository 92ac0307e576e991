"""What waits for what. Pure functions over a spec.

Every node has a beginning and an end. A child begins after its parent begins and ends before its parent
ends; a node begins after everything it is blocked by has ended. On those few rules rest readiness, cycles,
the critical path and the width, whether an edge joins tasks, groups or whole phases.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from foundry_mcp.core.specs.model import ROOT, Spec, is_container

__all__ = [
    "blockers",
    "critical_path",
    "dependents",
    "find_cycles",
    "is_ready",
    "ready",
    "unmet",
    "waves",
    "would_cycle",
    "would_cycle_below",
]

Point = tuple[str, str]
BEGIN, END = "begin", "end"


def blocked_by(spec: Spec, node_id: str) -> list[str]:
    return list((spec.nodes[node_id].get("dependencies") or {}).get("blocked_by") or ())


def blockers(spec: Spec, node_id: str) -> list[str]:
    """Everything that must be completed first: what blocks this node, and what blocks the ones it is part of."""
    found = blocked_by(spec, node_id)
    for above in spec.ancestors(node_id):
        found += blocked_by(spec, above)
    return list(dict.fromkeys(found))


def unmet(spec: Spec, node_id: str) -> list[str]:
    """The blockers that are not completed; one that does not exist can never be."""
    return [blocker for blocker in blockers(spec, node_id) if not _is_completed(spec, blocker)]


def is_ready(spec: Spec, node_id: str) -> bool:
    return spec.nodes[node_id]["status"] == "pending" and not unmet(spec, node_id)


def ready(spec: Spec) -> list[str]:
    """The leaf tasks that could start now, in order."""
    # A phase is asked once, not once for each of its tasks.
    open_above: dict[str, bool] = {}
    found = []
    for node_id in spec.leaves:
        if spec.nodes[node_id]["status"] != "pending" or not _all_completed(spec, blocked_by(spec, node_id)):
            continue
        for above in spec.ancestors(node_id):
            if above not in open_above:
                open_above[above] = _all_completed(spec, blocked_by(spec, above))
            if not open_above[above]:
                break
        else:
            found.append(node_id)
    return found


def dependents(spec: Spec, node_id: str) -> list[str]:
    """What waits for this node, directly."""
    return spec.once(_dependents).get(node_id, [])


def _dependents(spec: Spec) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for other in spec.order:
        for blocker in blocked_by(spec, other):
            found.setdefault(blocker, []).append(other)
    return found


def would_cycle(spec: Spec, node_id: str, blocker: str) -> list[str]:
    """The way by which `blocker` already waits for `node_id`; empty when the new edge is harmless."""
    return _path(_edges(spec), (node_id, BEGIN), (blocker, END))


def would_cycle_below(
    spec: Spec, parent: str, *, node_id: str | None = None, waits_for: Iterable[str] = ()
) -> list[str]:
    """The way by which a node would wait for itself if it stood below `parent`; a new node has no id yet."""
    edges = _edges(spec)
    here = node_id or "…"
    before = spec.nodes[here].get("parent") if node_id else None
    if before in spec.nodes:
        edges[before, BEGIN] = [after for after in edges[before, BEGIN] if after != (here, BEGIN)]
        edges[here, END] = [after for after in edges[here, END] if after != (before, END)]
    edges.setdefault((here, BEGIN), []).append((here, END))
    fresh: list[tuple[Point, Point]] = [((parent, BEGIN), (here, BEGIN)), ((here, END), (parent, END))]
    fresh += [((blocker, END), (here, BEGIN)) for blocker in waits_for]
    for before_it, after_it in fresh:
        edges.setdefault(before_it, []).append(after_it)
    # A circle that was not there before goes through one of the new edges.
    return next((loop for start, end in fresh if (loop := _path(edges, end, start))), [])


def find_cycles(spec: Spec) -> list[list[str]]:
    """Each group of nodes that wait for one another."""
    edges = _edges(spec)
    remaining = _strip(edges)
    cycles = []
    while remaining:
        start = min(remaining)
        loop = next(
            (p for after in edges.get(start, ()) if after in remaining and (p := _path(edges, after, start))),
            None,
        )
        if loop is not None:
            cycles.append(loop)
            remaining -= {point for point in remaining if point[0] in loop}
        remaining.discard(start)
    return cycles


def critical_path(spec: Spec) -> tuple[list[str], float]:
    """The longest chain of open leaf tasks, by estimated hours (1 where none is said), and its length."""
    edges = _edges(spec)
    if _strip(edges):
        return [], 0.0
    best: dict[Point, tuple[float, Point | None]] = {}
    for point in _sorted(edges):
        length, _ = best.setdefault(point, (0.0, None))
        for after in edges.get(point, ()):
            cost = _hours(spec, point[0]) if point[1] == BEGIN and after == (point[0], END) else 0.0
            if length + cost > best.get(after, (-1.0, None))[0]:
                best[after] = (length + cost, point)
    chain: list[str] = []
    place: Point | None = (ROOT, END)
    total = best.get((ROOT, END), (0.0, None))[0]
    while place is not None:
        before = best[place][1]
        if before == (place[0], BEGIN) and _hours(spec, place[0]):
            chain.append(place[0])
        place = before
    return chain[::-1], total


def waves(spec: Spec) -> list[list[str]]:
    """The open leaf tasks by turns: all of a wave could be worked on side by side once the ones before are done."""
    open_leaves = [node_id for node_id in spec.leaves if spec.nodes[node_id]["status"] != "completed"]
    edges = _edges(spec)
    if _strip(edges):
        return []
    level: dict[Point, int] = {}
    for point in _sorted(edges):
        here = level.setdefault(point, 0)
        for after in edges.get(point, ()):
            step = 1 if point[1] == BEGIN and after == (point[0], END) and _hours(spec, point[0]) else 0
            level[after] = max(level.get(after, 0), here + step)
    found: dict[int, list[str]] = {}
    for node_id in open_leaves:
        found.setdefault(level[node_id, BEGIN], []).append(node_id)
    return [found[turn] for turn in sorted(found)]


def _is_completed(spec: Spec, node_id: str) -> bool:
    node = spec.nodes.get(node_id)
    if node is None:
        return False
    # A phase without tasks is nothing to wait for.
    return node["status"] == "completed" or (
        is_container(node) and not any(map(spec.is_leaf, spec.walk(node_id)))
    )


def _all_completed(spec: Spec, nodes: Iterable[str]) -> bool:
    return all(_is_completed(spec, node_id) for node_id in nodes)


def _hours(spec: Spec, node_id: str) -> float:
    node = spec.nodes[node_id]
    if not spec.is_leaf(node_id) or node["status"] == "completed":
        return 0.0
    hours: Any = node.get("metadata", {}).get("estimated_hours")
    return float(hours) if isinstance(hours, (int, float)) and hours > 0 else 1.0


def _edges(spec: Spec) -> dict[Point, list[Point]]:
    edges: dict[Point, list[Point]] = {}
    for node_id in spec.nodes:
        edges.setdefault((node_id, BEGIN), []).append((node_id, END))
        for child in spec.children(node_id):
            edges[node_id, BEGIN].append((child, BEGIN))
            edges.setdefault((child, END), []).append((node_id, END))
        for blocker in blocked_by(spec, node_id):
            if blocker in spec.nodes:
                edges.setdefault((blocker, END), []).append((node_id, BEGIN))
    return edges


def _strip(edges: Mapping[Point, list[Point]]) -> set[Point]:
    """The points that are left when everything with nothing before it is taken away, over and over."""
    return {*_incoming(edges)} - set(_sorted(edges))


def _sorted(edges: Mapping[Point, list[Point]]) -> list[Point]:
    incoming = _incoming(edges)
    waiting = deque(point for point, count in incoming.items() if not count)
    done = []
    while waiting:
        point = waiting.popleft()
        done.append(point)
        for after in edges.get(point, ()):
            incoming[after] -= 1
            if not incoming[after]:
                waiting.append(after)
    return done


def _incoming(edges: Mapping[Point, list[Point]]) -> dict[Point, int]:
    incoming = dict.fromkeys(edges, 0)
    for targets in edges.values():
        for after in targets:
            incoming[after] = incoming.get(after, 0) + 1
    return incoming


def _path(edges: Mapping[Point, list[Point]], start: Point, goal: Point) -> list[str]:
    """The nodes on a shortest way from `start` to `goal`, without repeats."""
    came: dict[Point, Point | None] = {start: None}
    waiting = deque([start])
    while waiting:
        point = waiting.popleft()
        if point == goal:
            return _names(came, point)
        for after in edges.get(point, ()):
            if after not in came:
                came[after] = point
                waiting.append(after)
    return []


def _names(came: Mapping[Point, Point | None], point: Point | None) -> list[str]:
    names: list[str] = []
    while point is not None:
        names.append(point[0])
        point = came[point]
    return list(dict.fromkeys(reversed(names)))
