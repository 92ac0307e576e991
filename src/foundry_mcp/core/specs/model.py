"""A spec in memory: the JSON document as it stands on disk, and what can be seen in it at a glance.

The document stays the truth: it is kept as it was read, unknown fields and all, and what is derived from it
(order, leaves, counts) is worked out here on first use.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeVar

import msgspec

from foundry_mcp.core.errors import not_found

__all__ = ["FOLDERS", "ROOT", "STATUSES", "Folder", "Node", "Spec", "Status", "natural", "now_text"]

Folder = Literal["pending", "active", "completed", "archived"]
Status = Literal["pending", "in_progress", "completed", "blocked"]
Node = dict[str, Any]
Found = TypeVar("Found")

FOLDERS: tuple[Folder, ...] = ("pending", "active", "completed", "archived")
STATUSES: tuple[Status, ...] = ("pending", "in_progress", "completed", "blocked")
CONTAINERS = frozenset({"spec", "phase", "group"})
TASKS = frozenset({"task", "subtask", "verify"})
ROOT = "spec-root"


class Spec:
    def __init__(self, document: dict[str, Any], folder: Folder) -> None:
        self.document = document
        self.folder = folder

    @property
    def id(self) -> str:
        return str(self.document["spec_id"])

    @property
    def title(self) -> str:
        return str(self.document.get("title") or self.nodes[ROOT].get("title") or self.id)

    @property
    def revision(self) -> int:
        return int(self.document.get("revision", 0))

    @property
    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = self.document.setdefault("metadata", {})
        return found

    @property
    def nodes(self) -> dict[str, Node]:
        found: dict[str, Node] = self.document["hierarchy"]
        return found

    @property
    def journal(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.document.setdefault("journal", [])
        return found

    def node(self, node_id: str) -> Node:
        found = self.nodes.get(node_id)
        if found is None:
            raise not_found("task", node_id, code="TASK_NOT_FOUND", near=self.nodes, spec_id=self.id)
        return found

    def children(self, node_id: str) -> list[str]:
        """The children there are, in natural order; a phase keeps the order it was given."""
        nodes = self.nodes
        found = [child for child in nodes[node_id].get("children", ()) if child in nodes]
        return found if node_id == ROOT or len(found) < 2 else sorted(found, key=natural)

    def is_leaf(self, node_id: str) -> bool:
        return is_task(self.nodes[node_id]) and not self.nodes[node_id].get("children")

    def ancestors(self, node_id: str) -> Iterator[str]:
        """Parent, grandparent and so on; a loop in damaged data ends it."""
        seen = {node_id}
        parent = self.nodes[node_id].get("parent")
        while parent in self.nodes and parent not in seen:
            yield parent
            seen.add(parent)
            parent = self.nodes[parent].get("parent")

    def phase_of(self, node_id: str) -> str | None:
        return next(
            (above for above in self.ancestors(node_id) if self.nodes[above].get("type") == "phase"), None
        )

    def walk(self, start: str = ROOT) -> Iterator[str]:
        """Every node below `start` and itself, parents first, in the order the work is meant to be done."""
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            node_id = waiting.pop()
            if node_id in seen:
                continue
            seen.add(node_id)
            yield node_id
            waiting.extend(reversed(self.children(node_id)))

    @cached_property
    def order(self) -> tuple[str, ...]:
        return tuple(self.walk())

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Everything that is work, in order: tasks, subtasks and verifications."""
        nodes = self.nodes
        return tuple(node_id for node_id in self.order if nodes[node_id].get("type") in TASKS)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        nodes = self.nodes
        return tuple(node_id for node_id in self.tasks if not nodes[node_id].get("children"))

    def once(self, work: "Callable[[Spec], Found]") -> "Found":
        """What `work` finds in the document; worked out once, until the document is written to."""
        known: dict[Any, Any] = self.__dict__.setdefault("_known", {})
        if work not in known:
            known[work] = work(self)
        found: Found = known[work]
        return found

    def turned(self) -> None:
        """Forget what was worked out from states and words; what is below what has stayed."""
        self.__dict__.pop("_known", None)

    def changed(self) -> None:
        """Forget whatever was worked out from the document: its shape has changed."""
        self.__dict__ = {"document": self.document, "folder": self.folder}

    def draft(self) -> "Spec":
        """A spec of one's own to change. Its nodes are copied when they are first touched; most never are."""
        document = {
            key: value if key in {"hierarchy", "journal"} else copied(value)
            for key, value in self.document.items()
        }
        document["hierarchy"] = Drafted(self.nodes)
        document["journal"] = list(self.journal)  # entries are only ever added
        draft = Spec(document, self.folder)
        draft.__dict__.update(
            {name: self.__dict__[name] for name in ("order", "tasks", "leaves") if name in self.__dict__}
        )
        return draft

    def finish(self) -> None:
        """Make a draft an ordinary spec, which others may read and nobody changes any more."""
        self.document["hierarchy"] = dict(self.nodes)
        self.turned()

    def progress(self, start: str = ROOT) -> dict[str, int]:
        """Leaf tasks only, so that a task with subtasks does not count twice."""
        if start == ROOT:
            return dict(self.once(_whole_progress))
        return _counted(self, [node_id for node_id in self.walk(start) if self.is_leaf(node_id)])


def _whole_progress(spec: Spec) -> dict[str, int]:
    return _counted(spec, spec.leaves)


def _counted(spec: Spec, leaves: Sequence[str]) -> dict[str, int]:
    nodes = spec.nodes
    done = sum(nodes[node_id]["status"] == "completed" for node_id in leaves)
    return {
        "completed": done,
        "total": len(leaves),
        "percentage": round(100 * done / len(leaves)) if leaves else 0,
    }


def is_task(node: Node) -> bool:
    return node.get("type") in TASKS


def is_container(node: Node) -> bool:
    return node.get("type") in CONTAINERS


_NUMBERS = re.compile(r"(\d+)")


@lru_cache(maxsize=50_000)
def natural(name: str) -> tuple[tuple[Any, ...], str]:
    """Sort key in which task-1-2 comes before task-1-10, and no two names are equal."""
    parts = _NUMBERS.split(name)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts)), name


def copied(value: Any) -> Any:
    """A value of one's own; through JSON, which is faster than copying and as deep as a document may be."""
    return msgspec.json.decode(msgspec.json.encode(value)) if isinstance(value, (dict, list)) else value


class Drafted(dict[str, Node]):
    """The nodes of a draft: whoever looks at one gets a copy to change, and the original stays with its owner."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        super().__init__(nodes)
        self._shared = set(nodes)

    def __getitem__(self, node_id: str) -> Node:
        node = super().__getitem__(node_id)
        if node_id in self._shared:
            node = copied(node)
            self[node_id] = node
        return node

    def __setitem__(self, node_id: str, node: Node) -> None:
        self._shared.discard(node_id)
        super().__setitem__(node_id, node)

    def get(self, node_id: Any, default: Any = None) -> Any:
        return self[node_id] if node_id in self else default  # noqa: SIM401 - this is that method

    def values(self) -> Any:
        return [self[node_id] for node_id in self]

    def items(self) -> Any:
        return [(node_id, self[node_id]) for node_id in self]


def now_text(after: str | None = None) -> str:
    """This moment as the files spell it; never before `after`, whatever the clock does."""
    text = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return max(text, after) if after else text
