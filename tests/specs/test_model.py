"""Random sequences of operations against a small model of the plan that knows nothing of the code."""

import itertools
import json
import os
import re
from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

WORK = {"task", "subtask", "verify"}
PLACES = {
    "phase": {"spec"},
    "group": {"phase"},
    "task": {"phase", "group"},
    "verify": {"phase", "group"},
    "subtask": {"task", "subtask"},
}
EXAMPLES = 400 if os.environ.get("FOUNDRY_SOAK") == "1" else 40
OWNERS = st.sampled_from([None, "ann", "bob"])
SOMEBODY = st.sampled_from(["ann", "bob"])
PICK = st.integers(min_value=0, max_value=999)
KINDS = st.sampled_from(["task", "task", "task", "subtask", "subtask", "verify", "group", "phase"])
OUTLINE = "## One\n- [ ] a\n  - [ ] a1\n  - [ ] a2\n- [ ] b\n## Two\n- [ ] c\n- [ ] verify: d\n"


class Refused(Exception):  # noqa: N818 - it is what the model expects, not a mistake
    pass


def natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


class Plan:
    """Nodes with a parent, a state where they are leaves, and what they wait for. Everything else is derived."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}

    def put(self, name: str, kind: str, parent: str | None) -> None:
        self.nodes[name] = {"kind": kind, "parent": parent, "state": "pending", "waits": set(), "was": None}
        self.nodes[name] |= {"claim": None, "starter": None}

    def below(self, name: str) -> list[str]:
        found = [child for child, node in self.nodes.items() if node["parent"] == name]
        return found if name == "spec-root" else sorted(found, key=natural)

    def above(self, name: str) -> list[str]:
        found = []
        while (name := self.nodes[name]["parent"]) is not None:
            found.append(name)
        return found

    def inside(self, name: str) -> list[str]:
        return [name, *itertools.chain(*map(self.inside, self.below(name)))]

    def is_work(self, name: str) -> bool:
        return self.nodes[name]["kind"] in WORK

    def leaves(self, name: str = "spec-root") -> list[str]:
        return [node for node in self.inside(name) if self.is_work(node) and not self.below(node)]

    def state(self, name: str) -> str:
        states = {self.state(child) for child in self.below(name)}
        if not states:
            return self.nodes[name]["state"] if self.is_work(name) else "pending"
        if states == {"completed"}:
            return "completed"
        return "in_progress" if states & {"completed", "in_progress"} else "pending"

    def is_done(self, name: str) -> bool:
        return self.state(name) == "completed" or (not self.is_work(name) and not self.leaves(name))

    def open_waits(self, name: str) -> set[str]:
        waits = set.union(*(self.nodes[node]["waits"] for node in (name, *self.above(name))))
        return {blocker for blocker in waits if not self.is_done(blocker)}

    def built_on(self, name: str) -> list[str]:
        """Completed work that had to wait for this node, or for something it is part of."""
        above = {name, *self.above(name)}
        later = [other for other, node in self.nodes.items() if node["waits"] & above]
        return [leaf for other in later for leaf in self.leaves(other) if self.state(leaf) == "completed"]

    def ready(self) -> list[str]:
        return [name for name in self.leaves() if self.state(name) == "pending" and not self.open_waits(name)]

    def holder(self, name: str) -> str | None:
        return None if self.state(name) == "completed" else self.nodes[name]["claim"]

    def can_be_finished(self) -> bool:
        """Play it through from the start: whoever waits in a circle never begins."""
        begun: set[str] = set()
        ended: set[str] = set()
        while True:
            before = len(begun), len(ended)
            for name, node in self.nodes.items():
                if (node["parent"] is None or node["parent"] in begun) and node["waits"] <= ended:
                    begun.add(name)
                if name in begun and set(self.below(name)) <= ended:
                    ended.add(name)
            if before == (len(begun), len(ended)):
                return len(ended) == len(self.nodes)

    # What is expected of each operation: the change, or the code of the refusal.

    def turn(self, action: str, name: str, owner: str | None) -> str | None:
        node, state = self.nodes[name], self.state(name)
        if not self.is_work(name):
            raise Refused("VALIDATION_ERROR")
        legal = {
            "pending": {"start", "complete", "block"},
            "in_progress": {"complete", "block", "reset"},
            "blocked": {"unblock", "reset"},
            "completed": {"reset"},
        }
        if action not in legal[state]:
            raise Refused("INVALID_STATE")
        if self.below(name):
            raise Refused("DEPENDENCY_ERROR" if action == "complete" else "INVALID_STATE")
        if self.holder(name) not in {None, owner}:
            raise Refused("CONFLICT")
        if action in {"start", "complete"} and self.open_waits(name):
            if action == "complete":
                raise Refused("DEPENDENCY_ERROR")
            return None
        if action == "reset" and state == "completed" and self.built_on(name):
            raise Refused("INVALID_STATE")
        if action == "block":
            node["was"] = state
        if action == "start" and owner:
            node["starter"] = owner
        if action in {"complete", "reset"}:
            node["claim"] = None
        if action == "reset":
            node["starter"] = None
        back = node["was"] if action == "unblock" else "pending"
        after = {"start": "in_progress", "complete": "completed", "block": "blocked"}.get(action, back)
        node["state"] = after
        return str(after)

    def claim(self, name: str | None, owner: str) -> str | None:
        if name is None:
            name = next((free for free in self.ready() if self.holder(free) is None), None)
            if name is None:
                return None
        elif not self.is_work(name):
            raise Refused("VALIDATION_ERROR")
        elif self.state(name) in {"completed", "blocked"} or self.below(name):
            raise Refused("INVALID_STATE")
        elif self.holder(name) not in {None, owner} or self._is_begun_by_another(name, owner):
            raise Refused("CONFLICT")
        elif self.open_waits(name):
            return None
        self.nodes[name]["claim"] = owner
        return name

    def release(self, name: str, owner: str) -> None:
        node = self.nodes[name]
        if not self.is_work(name):
            raise Refused("VALIDATION_ERROR")
        if self.below(name):
            raise Refused("INVALID_STATE")
        if self.holder(name) not in {None, owner} or self._is_begun_by_another(name, owner):
            raise Refused("CONFLICT")
        if self.holder(name) is None and self.state(name) != "in_progress":
            raise Refused("INVALID_STATE")
        node["claim"] = node["starter"] = None
        if node["state"] == "in_progress":
            node["state"] = "pending"

    def _is_begun_by_another(self, name: str, owner: str) -> bool:
        starter = self.nodes[name]["starter"]
        return self.state(name) == "in_progress" and starter not in {None, owner}

    def check_place(self, kind: str, parent: str) -> None:
        if self.nodes[parent]["kind"] not in PLACES[kind]:
            raise Refused("VALIDATION_ERROR")
        if self.is_work(parent) and self.state(parent) == "completed":
            raise Refused("INVALID_STATE")

    def check_circles(self) -> None:
        if not self.can_be_finished():
            raise Refused("CONFLICT")

    def detach(self, name: str) -> None:
        """A task that loses its last subtask stays in the state they had given it."""
        parent = self.nodes[name]["parent"]
        last = self.state(parent)
        self.nodes[name]["parent"] = "nowhere"
        if not self.below(parent):
            self.nodes[parent]["state"] = last


class PlanMachine(RuleBasedStateMachine):
    def __init__(self, desk: Any) -> None:
        super().__init__()
        self.desks = [desk, desk.again()]
        self.turns = itertools.count()
        self.plan = Plan()
        self.kept: dict[int, Plan] = {}
        self.used: set[str] = set()
        self.journal: list[Any] = []

    @property
    def desk(self) -> Any:
        """Two processes by turns, each with a memory of its own."""
        return self.desks[next(self.turns) % 2]

    @initialize()
    def begin(self) -> None:
        self.desk.plan(OUTLINE)
        self.plan.put("spec-root", "spec", None)
        for name, kind, parent in (
            ("phase-1", "phase", "spec-root"),
            ("task-1-1", "task", "phase-1"),
            ("task-1-1-1", "subtask", "task-1-1"),
            ("task-1-1-2", "subtask", "task-1-1"),
            ("task-1-2", "task", "phase-1"),
            ("phase-2", "phase", "spec-root"),
            ("task-2-1", "task", "phase-2"),
            ("verify-2-1", "verify", "phase-2"),
        ):
            self.plan.put(name, kind, parent)
        self.revision = 1
        self.used = set(self.plan.nodes)

    def name(self, pick: int) -> str:
        names = list(self.plan.nodes)
        return names[pick % len(names)]

    def expect(self, change: Any, tool: str, action: str, **arguments: Any) -> dict[str, Any] | None:
        """Make a call; it must be refused as the model says, or do what the model did."""
        before, shown = deepcopy(self.plan), next(self.turns) % 7 == 0
        code = None
        try:
            changed = change()
        except Refused as refusal:
            self.plan, code, changed = before, str(refusal), False
        if shown:
            answer = self.desk.ask(tool, action, spec_id="plan", dry_run=True, **arguments)
            assert answer["data"].get("error_code") == code, (tool, action, arguments, answer)
            assert code or bool(answer["data"]["changes"]) == (changed is not False)
        answer = self.desk.ask(tool, action, spec_id="plan", **arguments)
        assert answer["data"].get("error_code") == code, (tool, action, arguments, answer)
        if code is not None:
            return None
        if changed is not False:
            self.kept[self.revision] = before
            self.revision += 1
        data: dict[str, Any] = answer["data"]
        assert data["revision"] == self.revision, (action, arguments)
        return data

    @rule(
        pick=PICK,
        owner=OWNERS,
        action=st.sampled_from(["start", "complete", "complete", "block", "unblock", "reset"]),
    )
    def turn(self, pick: int, owner: str | None, action: str) -> None:
        name, told = self.name(pick), []

        def change() -> Any:
            told.append(self.plan.turn(action, name, owner))
            return None if told[0] else False

        more = {"owner": owner} if owner else {}
        more |= {"reason": "because"} if action == "block" else {}
        data = self.expect(change, "task", action, task_id=name, **more)
        if data is not None:
            assert data["status"] == (told[0] or self.plan.state(name))
            assert told[0] or set(data["blocked_by"]) == self.plan.open_waits(name)

    @rule(pick=st.none() | PICK, owner=SOMEBODY)
    def claim(self, pick: int | None, owner: str) -> None:
        name, got = None if pick is None else self.name(pick), []

        def change() -> Any:
            got.append(self.plan.claim(name, owner))
            return None if got[0] else False

        data = self.expect(change, "task", "claim", owner=owner, **({"task_id": name} if name else {}))
        if data is not None:
            assert data["claimed"] is (got[0] is not None)
            assert not got[0] or data["task_id"] == got[0]

    @rule(pick=PICK, owner=SOMEBODY)
    def release(self, pick: int, owner: str) -> None:
        name = self.name(pick)
        self.expect(lambda: self.plan.release(name, owner), "task", "release", task_id=name, owner=owner)

    @rule(kind=KINDS, parent=PICK, waits=st.lists(PICK, max_size=2))
    def add(self, kind: str, parent: int, waits: list[int]) -> None:
        above, blockers = self.name(parent), sorted({self.name(pick) for pick in waits})

        def change() -> None:
            self.plan.check_place(kind, above)
            self.plan.put("new", kind, above)
            self.plan.nodes["new"]["waits"] = set(blockers)
            self.plan.check_circles()

        data = self.expect(change, "task", "add", title="new", type=kind, parent=above, blocked_by=blockers)
        if data is not None:
            name = data["task_id"]
            assert name not in self.used, "a number is used twice"
            self.used.add(name)
            self.plan.nodes = {(name if old == "new" else old): node for old, node in self.plan.nodes.items()}

    @rule(pick=PICK, parent=PICK)
    def move(self, pick: int, parent: int) -> None:
        name, above = self.name(pick), self.name(parent)

        def change() -> None:
            node = self.plan.nodes[name]
            if node["kind"] in {"spec", "phase"}:
                raise Refused("VALIDATION_ERROR")
            if above in self.plan.inside(name):
                raise Refused("CONFLICT")
            kind = node["kind"]
            if self.plan.is_work(above) and kind in WORK:
                kind = "subtask"
            elif kind == "subtask":
                kind = "task"
            self.plan.check_place(kind, above)
            self.plan.detach(name)
            node["parent"], node["kind"] = above, kind
            self.plan.check_circles()

        self.expect(change, "task", "move", task_id=name, parent=above)

    @rule(pick=PICK)
    def remove(self, pick: int) -> None:
        name = self.name(pick)
        if len(self.plan.nodes) - len(self.plan.inside(name)) < 4:
            return

        def change() -> None:
            if any(self.plan.holder(gone) for gone in self.plan.inside(name)):
                raise Refused("CONFLICT")
            gone = set(self.plan.inside(name))
            self.plan.detach(name)
            self.plan.nodes = {left: node for left, node in self.plan.nodes.items() if left not in gone}
            for node in self.plan.nodes.values():
                node["waits"] -= gone

        if name != "spec-root":
            self.expect(change, "task", "remove", task_id=name)

    @rule(pick=PICK, blocker=PICK, remove=st.sampled_from([False, False, False, True]))
    def depend(self, pick: int, blocker: int, remove: bool) -> None:
        name, waits_for = self.name(pick), self.name(blocker)

        def change() -> None:
            waits = self.plan.nodes[name]["waits"]
            if remove:
                if waits_for not in waits:
                    raise Refused("NOT_FOUND")
                waits.discard(waits_for)
                return
            if waits_for in waits:
                raise Refused("DUPLICATE_ENTRY")
            waits.add(waits_for)
            self.plan.check_circles()

        self.expect(change, "task", "depend", task_id=name, waits_for=waits_for, remove=remove)

    @rule(pick=PICK, title=st.sampled_from(["x", "y"]))
    def retitle(self, pick: int, title: str) -> None:
        name = self.name(pick)
        same = self.desk.document()["hierarchy"][name]["title"] == title
        self.expect(lambda: False if same else None, "task", "update", task_id=name, title=title)

    @rule(picks=st.lists(PICK, min_size=1, max_size=4), partial=st.booleans())
    def complete_many(self, picks: list[int], partial: bool) -> None:
        names, done = [self.name(pick) for pick in picks], []

        def change() -> Any:
            for name in names:
                try:
                    done.append(self.plan.turn("complete", name, None))
                except Refused:
                    if not partial:
                        raise
            return None if done else False

        changes = [{"action": "complete", "task_id": name} for name in names]
        data = self.expect(change, "task", "batch", changes=changes, partial=partial)
        if data is not None:
            assert (data["processed"], data["failed"]) == (len(done), len(names) - len(done))

    @rule(pick=PICK)
    def roll_back(self, pick: int) -> None:
        if self.kept:
            number = list(self.kept)[pick % len(self.kept)]

            def change() -> None:
                self.plan = deepcopy(self.kept[number])

            self.expect(change, "spec", "rollback", revision=number)

    @rule(behind=st.integers(min_value=1, max_value=3))
    def write_from_an_old_revision(self, behind: int) -> None:
        answer = self.desk.ask(
            "journal", "add", spec_id="plan", content="x", expected_revision=max(0, self.revision - behind)
        )
        assert answer["data"]["error_code"] == "VERSION_CONFLICT"

    @invariant()
    def the_file_the_answers_and_the_model_agree(self) -> None:
        if not self.plan.nodes:
            return
        plan, document = self.plan, self.desks[0].document()
        nodes = document["hierarchy"]
        assert document["revision"] == self.revision
        assert set(nodes) == set(plan.nodes)
        for name, node in nodes.items():
            assert node["parent"] == plan.nodes[name]["parent"], name
            assert sorted(node["children"]) == sorted(plan.below(name)), name
            assert node["type"] == plan.nodes[name]["kind"], name
            assert node["status"] == plan.state(name), name
            leaves = plan.leaves(name)
            done = sum(plan.state(leaf) == "completed" for leaf in leaves)
            assert (node["completed_tasks"], node["total_tasks"]) == (done, len(leaves)), name
            edges = node["dependencies"]
            assert sorted(edges["blocked_by"]) == sorted(plan.nodes[name]["waits"]), name
            waiting = [other for other in plan.nodes if name in plan.nodes[other]["waits"]]
            assert sorted(edges["blocks"]) == sorted(waiting), name
        for desk in self.desks:
            told = desk.do("spec", "get", spec_id="plan")
            assert told["hierarchy"] == nodes
            assert told["spec"]["revision"] == self.revision
            ready = desk.do("task", "ready", spec_id="plan", limit=500)["tasks"]
            assert [row["task_id"] for row in ready] == plan.ready()
        done = sum(plan.state(leaf) == "completed" for leaf in plan.leaves())
        progress = told["spec"]["progress"]
        assert (progress["completed"], progress["total"]) == (done, len(plan.leaves()))
        findings = desk.do("spec", "validate", spec_id="plan")["findings"]
        assert not [found for found in findings if found["fixable"] or found["severity"] == "error"]
        assert plan.can_be_finished()
        assert document["journal"][: len(self.journal)] == self.journal
        self.journal = document["journal"]
        times = [entry["timestamp"] for entry in self.journal]
        assert times == sorted(times)
        assert json.loads(self.desks[0].file().read_bytes()) == document


def test_whatever_is_done_in_whatever_order_the_plan_stays_sound(make_desk):
    numbers = itertools.count()

    class Machine(PlanMachine):
        def __init__(self) -> None:
            super().__init__(make_desk(f"run-{next(numbers)}"))

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

    assert next(numbers) > 20  # it was really run
