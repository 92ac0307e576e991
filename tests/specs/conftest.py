"""Plans to work on, a desk to work at, and processes to work beside."""

import datetime as dt
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from foundry_mcp.core.flags import Flags
from foundry_mcp.core.settings import Settings
from foundry_mcp.core.specs import claims, model
from foundry_mcp.core.specs.model import FOLDERS
from foundry_mcp.operations import REGISTRY
from foundry_mcp.operations.declaration import Session, Surroundings
from foundry_mcp.runtime import Request, Runtime

PATIENCE = 30.0
"""Seconds until a test gives up on a process."""

OUTLINE = """
# Plan
## One
- [ ] a
- [ ] b
## Two
- [ ] c
- [ ] d
"""


class Desk:
    """A workspace and a runtime over it, called as the doors call it."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.specs = workspace / "specs"
        self.unexpected: list[BaseException] = []
        around = Surroundings(workspace, Settings(), Flags(), REGISTRY)
        self.store = around.specs
        self.runtime = Runtime(around, log=self._log)

    def _log(self, message: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
        if error is not None:
            self.unexpected.append(error)

    def ask(self, tool: str, action: str, **arguments: Any) -> dict[str, Any]:
        """The whole answer; nothing that the code did not foresee may be behind it."""
        request = Request(tool, {"action": action, **arguments}, Session())
        answer: dict[str, Any] = json.loads(self.runtime.call(request).body)
        assert not self.unexpected, f"{tool}.{action} {arguments} raised {self.unexpected!r}"
        return answer

    def do(self, tool: str, action: str, **arguments: Any) -> dict[str, Any]:
        """The data of a success."""
        answer = self.ask(tool, action, **arguments)
        assert answer["success"], answer
        data: dict[str, Any] = answer["data"]
        return data

    def refused(self, code: str, tool: str, action: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a failure with this code that changed nothing on disk."""
        before = self.tree()
        answer = self.ask(tool, action, **arguments)
        assert not answer["success"], answer
        assert answer["data"]["error_code"] == code, answer
        assert answer["data"]["effect"] == "none", answer
        assert self.tree() == before
        return answer

    def plan(self, outline: str = OUTLINE, spec_id: str = "plan", **arguments: Any) -> dict[str, Any]:
        return self.do(
            "spec", "create", title=spec_id.capitalize(), spec_id=spec_id, outline=outline, **arguments
        )

    def put(self, document: dict[str, Any], folder: str = "pending", *, text: str | None = None) -> Path:
        """A file as its user wrote it: escaped text, and no newline at the end."""
        path = self.specs / folder / f"{document['spec_id']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text is not None else json.dumps(document, indent=4), encoding="utf-8")
        return path

    def edit(self, change: Callable[[dict[str, Any]], object], spec_id: str = "plan") -> None:
        """Change a file by hand, as an editor does it: in place."""
        path = self.file(spec_id)
        document = json.loads(path.read_bytes())
        change(document)
        path.write_text(json.dumps(document), encoding="utf-8")

    def files(self, spec_id: str = "plan") -> list[Path]:
        return [path for folder in FOLDERS if (path := self.specs / folder / f"{spec_id}.json").exists()]

    def file(self, spec_id: str = "plan") -> Path:
        found = self.files(spec_id)
        assert len(found) == 1, found
        return found[0]

    def document(self, spec_id: str = "plan") -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.file(spec_id).read_bytes())
        return document

    def node(self, task_id: str, spec_id: str = "plan") -> dict[str, Any]:
        node: dict[str, Any] = self.document(spec_id)["hierarchy"][task_id]
        return node

    def tree(self) -> dict[str, bytes]:
        """Every file below specs, with its bytes."""
        return {
            str(path.relative_to(self.workspace)): path.read_bytes()
            for path in sorted(self.specs.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }

    def again(self) -> "Desk":
        """The same workspace seen by a process that knows nothing of this one."""
        return Desk(self.workspace)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "workspace").mkdir()
    return Desk(tmp_path / "workspace")


@pytest.fixture
def make_desk(tmp_path: Path) -> Callable[[str], Desk]:
    def make(name: str) -> Desk:
        (tmp_path / name).mkdir()
        return Desk(tmp_path / name)

    return make


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Desk], Desk]:
    """A fresh copy of a prepared workspace."""
    made: list[Path] = []

    def copy(original: Desk) -> Desk:
        place = tmp_path / f"copy-{len(made)}"
        made.append(place)
        shutil.copytree(original.workspace, place, symlinks=True)
        return Desk(place)

    return copy


class Worker:
    """A process of its own that makes calls; see worker.py."""

    def __init__(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FOUNDRY_", "PYTEST", "COV_"))}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept,
            bufsize=0,
        )
        self._rest = b""

    def send(self, desk: Desk, **job: Any) -> None:
        assert self.process.stdin is not None
        line = json.dumps({"workspace": str(desk.workspace), **job})
        self.process.stdin.write(line.encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
            assert ready, "the worker does not answer"
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            assert piece, "the worker is gone"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def answers_within(self, seconds: float) -> bool:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return bool(ready)

    def ask(self, desk: Desk, tool: str, action: str, **arguments: Any) -> dict[str, Any]:
        self.send(desk, call=[tool, {"action": action, **arguments}])
        answer: dict[str, Any] = self.receive()["answer"]
        return answer

    def apart(self, desk: Desk, call: tuple[str, dict[str, Any]], **fault: Any) -> dict[str, Any]:
        """Make a call in a process that may be killed at a step of it."""
        self.send(desk, call=call, apart=True, **({"kill": fault} if fault else {}))
        return self.receive()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture(scope="module")
def eight() -> Iterator[list[Worker]]:
    """Eight processes that stay, as eight agents have eight servers."""
    workers = [Worker() for _ in range(8)]
    yield workers
    for worker in workers:
        worker.kill()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.kill()


@pytest.fixture
def start_worker() -> Iterator[Callable[[], Worker]]:
    """Start processes that end with the test."""
    started: list[Worker] = []

    def start() -> Worker:
        started.append(Worker())
        return started[-1]

    yield start
    for made in started:
        made.kill()


class Clock:
    """The time that the code under test sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = dt.datetime(2030, 1, 1, 12, tzinfo=dt.UTC)
        clock = self

        class Moment(dt.datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return clock.now

        monkeypatch.setattr(model, "datetime", Moment)
        monkeypatch.setattr(claims, "datetime", Moment)

    def pass_seconds(self, seconds: float) -> None:
        self.now += dt.timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def _node(kind: str, title: str, parent: str | None, children: list[str], **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "title": title,
        "status": "pending",
        "parent": parent,
        "children": children,
        "dependencies": {"blocks": [], "blocked_by": [], "depends": []},
        "total_tasks": 0,
        "completed_tasks": 0,
        "metadata": {},
        **more,
    }


def _edges(blocks: tuple[str, ...] = (), blocked_by: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"blocked_by": list(blocked_by), "blocks": list(blocks), "depends": [], "x-soft": ["hm"]}


@pytest.fixture
def legacy() -> dict[str, Any]:
    """A spec with everything that files of earlier versions hold and this one does not write itself."""
    tasks = {
        f"task-1-{number}": _node("task", f"src/{number}.py", "phase-1-files", [], x_mark=number)
        for number in (1, 2, 10)
    }
    for node in tasks.values():
        node["metadata"] = {"file_path": node["title"], "actual_hours": 0.25, "needs_journaling": False}
        node["total_tasks"] = 1
    tasks["task-1-2"] |= {"children": ["task-1-2-1", "task-1-2-2"], "total_tasks": 2}
    tasks["task-1-1"] |= {"status": "completed", "completed_tasks": 1}
    nodes = {
        "spec-root": _node("spec", "Café ☕", None, ["phase-1", "phase-2"], total_tasks=6),
        "phase-1": _node("phase", "Build", "spec-root", ["phase-1-files", "phase-1-verify"], total_tasks=5),
        "phase-1-files": _node("group", "Files", "phase-1", list(reversed(tasks)), total_tasks=4),
        **tasks,
        "task-1-2-1": _node("subtask", "first half", "task-1-2", [], total_tasks=1),
        "task-1-2-2": _node("subtask", "second half", "task-1-2", [], total_tasks=1),
        "phase-1-verify": _node("group", "Verification", "phase-1", ["verify-1-1"], total_tasks=1),
        "verify-1-1": _node("verify", "All tests pass", "phase-1-verify", [], total_tasks=1),
        "phase-2": _node("phase", "Ship", "spec-root", ["task-2-1"], total_tasks=1),
        "task-2-1": _node("task", "Release", "phase-2", [], total_tasks=1),
    }
    for node_id in ("spec-root", "phase-1", "phase-1-files"):
        nodes[node_id] |= {"completed_tasks": 1, "status": "in_progress"}
    nodes["phase-1-files"]["dependencies"] = _edges(blocks=("phase-1-verify",))
    nodes["phase-1-verify"]["dependencies"] = _edges(blocked_by=("phase-1-files",))
    nodes["phase-1"]["dependencies"] = _edges(blocks=("phase-2",))
    nodes["phase-2"]["dependencies"] = _edges(blocked_by=("phase-1",))
    return deepcopy(
        {
            "spec_id": "cafe-2025-01-25-001",
            "title": "Café ☕",
            "generated": "2025-01-25T12:00:00Z",
            "last_updated": "2025-01-26T12:00:00.123456Z",
            "metadata": {"status": "active", "tags": ["legacy"], "risks": [{"name": "late"}], "hours": 40.5},
            "progress_percentage": 17,
            "status": "active",
            "current_phase": "phase-1",
            "hierarchy": nodes,
            "journal": [
                {
                    "timestamp": "2025-01-26T12:00:00Z",
                    "task_id": "task-1-1",
                    "entry_type": "status_change",
                    "title": "Task Completed: src/1.py",
                    "content": "Naïve — but it works",
                    "author": "somebody",
                    "x_extra": [1, 2.5, None, {"deep": True}],
                }
            ],
            "x_unknown": {"order": ["z", "a"], "big": 12345678901234567890123},
        }
    )
