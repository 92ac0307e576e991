"""What validate finds, what fix mends, and what analyze sees."""

from copy import deepcopy

import pytest

from foundry_mcp.core.specs import graph, rules
from foundry_mcp.core.specs.model import Spec


def nodes_of(document):
    return document["hierarchy"]


FAULTS = {
    "MISSING_FIELD": lambda d: d.update(title=""),
    "UNKNOWN_TYPE": lambda d: nodes_of(d)["task-1-1"].update(type="chore"),
    "UNKNOWN_STATUS": lambda d: nodes_of(d)["task-1-1"].update(status="done"),
    "MISSING_TITLE": lambda d: nodes_of(d)["task-1-1"].update(title="  "),
    "UNKNOWN_CHILD": lambda d: nodes_of(d)["phase-1"]["children"].append("ghost"),
    "PARENT_MISMATCH": lambda d: nodes_of(d)["task-1-1"].update(parent="phase-2"),
    "DUPLICATE_CHILD": lambda d: nodes_of(d)["phase-1"]["children"].append("task-1-1"),
    "ORPHAN_NODE": lambda d: nodes_of(d)["phase-1"]["children"].remove("task-1-1"),
    "EMPTY_PHASE": lambda d: [
        nodes_of(d)["phase-1"].update(children=[]),
        nodes_of(d).pop("task-1-1"),
        nodes_of(d).pop("task-1-2"),
    ],
    "DANGLING_DEPENDENCY": lambda d: nodes_of(d)["task-1-1"]["dependencies"]["blocked_by"].append("ghost"),
    "SELF_DEPENDENCY": lambda d: nodes_of(d)["task-1-1"]["dependencies"]["blocked_by"].append("task-1-1"),
    "ONE_WAY_DEPENDENCY": lambda d: nodes_of(d)["task-1-2"]["dependencies"]["blocked_by"].append("task-1-1"),
    "DEPENDENCY_CYCLE": lambda d: [
        nodes_of(d)["task-1-1"]["dependencies"].update(blocked_by=["task-1-2"], blocks=["task-1-2"]),
        nodes_of(d)["task-1-2"]["dependencies"].update(blocked_by=["task-1-1"], blocks=["task-1-1"]),
    ],
    "WRONG_COUNTS": lambda d: nodes_of(d)["phase-1"].update(total_tasks=9),
    "WRONG_STATUS": lambda d: nodes_of(d)["phase-1"].update(status="completed"),
    "NO_TASKS": lambda d: d.update(
        hierarchy={"spec-root": {**nodes_of(d)["spec-root"], "children": [], "total_tasks": 0}}
    ),
    "COMPLETED_TOO_EARLY": lambda d: [
        nodes_of(d)["task-1-1"]["dependencies"].update(blocked_by=["task-1-2"]),
        nodes_of(d)["task-1-2"]["dependencies"].update(blocks=["task-1-1"]),
        nodes_of(d)["task-1-1"].update(status="completed", completed_tasks=1),
        nodes_of(d)["phase-1"].update(status="in_progress", completed_tasks=1),
        nodes_of(d)["spec-root"].update(status="in_progress", completed_tasks=1),
    ],
}
ERRORS = {
    "UNKNOWN_TYPE",
    "UNKNOWN_STATUS",
    "UNKNOWN_CHILD",
    "PARENT_MISMATCH",
    "DUPLICATE_CHILD",
    "ORPHAN_NODE",
    "DANGLING_DEPENDENCY",
    "SELF_DEPENDENCY",
    "DEPENDENCY_CYCLE",
}
UNFIXABLE = {
    "MISSING_FIELD",
    "UNKNOWN_TYPE",
    "EMPTY_PHASE",
    "DEPENDENCY_CYCLE",
    "NO_TASKS",
    "COMPLETED_TOO_EARLY",
}


def codes(findings):
    return [finding["code"] for finding in findings]


def test_a_fresh_plan_has_no_findings(desk):
    desk.plan()

    assert desk.do("spec", "validate", spec_id="plan") == {
        "spec_id": "plan",
        "valid": True,
        "errors": 0,
        "warnings": 0,
        "findings": [],
    }


@pytest.mark.parametrize("code", FAULTS)
def test_each_fault_is_found_with_place_severity_and_remedy(code, desk):
    desk.plan()
    desk.edit(FAULTS[code])

    data = desk.do("spec", "validate", spec_id="plan")

    found = [finding for finding in data["findings"] if finding["code"] == code]
    assert found
    assert all(finding["place"] and finding["message"] and finding["remedy"] for finding in found)
    assert {finding["severity"] == "error" for finding in found} == {code in ERRORS}
    assert data["valid"] is (not data["errors"])
    assert data["valid"] is (code not in ERRORS)
    severities = [("error", "warning", "info").index(finding["severity"]) for finding in data["findings"]]
    assert severities == sorted(severities)


@pytest.mark.parametrize("code", FAULTS)
def test_fix_shows_first_applies_on_request_and_finds_nothing_the_second_time(code, desk):
    desk.plan()
    desk.edit(FAULTS[code])
    before = desk.tree()

    shown = desk.do("spec", "fix", spec_id="plan")

    assert desk.tree() == before
    assert shown["applied"] is False
    assert (code in codes(shown["would_fix"])) is (code not in UNFIXABLE)
    still_shown = desk.do("spec", "fix", spec_id="plan", apply=True, dry_run=True)
    assert codes(still_shown["would_fix"]) == codes(shown["would_fix"])
    assert desk.tree() == before
    applied = desk.do("spec", "fix", spec_id="plan", apply=True)
    assert codes(applied["fixed"]) == codes(shown["would_fix"])
    assert applied["applied"] is bool(shown["would_fix"])
    again = desk.do("spec", "fix", spec_id="plan", apply=True)
    assert again["fixed"] == []
    assert again["applied"] is False
    left = desk.do("spec", "validate", spec_id="plan")["findings"]
    assert not [finding for finding in left if finding["fixable"]]
    if code not in UNFIXABLE:
        assert code not in codes(left)


def test_all_faults_at_once_are_mended_in_one_go(desk):
    desk.plan()
    for code in ("UNKNOWN_STATUS", "MISSING_TITLE", "UNKNOWN_CHILD", "DUPLICATE_CHILD", "WRONG_COUNTS"):
        desk.edit(FAULTS[code])
    desk.edit(
        lambda d: nodes_of(d)["task-2-1"]["dependencies"].update(blocked_by=[f"x{n}" for n in range(60)])
    )
    desk.edit(lambda d: nodes_of(d)["phase-2"]["children"].append("task-1-1"))  # listed by two

    desk.do("spec", "fix", spec_id="plan", apply=True)

    assert desk.do("spec", "fix", spec_id="plan", apply=True)["fixed"] == []
    assert desk.do("spec", "validate", spec_id="plan")["findings"] == []
    parents = [name for name, node in nodes_of(desk.document()).items() if "task-1-1" in node["children"]]
    assert parents == ["phase-1"]


def test_a_mended_spec_loses_no_node(desk):
    desk.plan()
    before = set(nodes_of(desk.document()))
    for code in ("ORPHAN_NODE", "UNKNOWN_STATUS", "ONE_WAY_DEPENDENCY"):
        desk.edit(FAULTS[code])

    desk.do("spec", "fix", spec_id="plan", apply=True)

    assert set(nodes_of(desk.document())) == before


@pytest.mark.parametrize("code", FAULTS)
def test_looking_for_faults_changes_nothing(code, desk):
    desk.plan()
    document = desk.document()
    FAULTS[code](document)
    spec, before = Spec(document, "pending"), deepcopy(document)

    rules.findings(spec)
    graph.find_cycles(spec)
    graph.critical_path(spec)
    graph.waves(spec)

    assert spec.document == before


# analyze


def test_analyze_sees_path_width_waves_and_what_is_ready(desk):
    desk.plan("## One\n- [ ] a\n- [ ] b\n- [ ] c\n## Two\n- [ ] d\n")
    for task_id, waits_for in (("task-1-3", "task-1-1"), ("phase-2", "phase-1")):
        desk.do("task", "depend", spec_id="plan", task_id=task_id, waits_for=waits_for)
    desk.do("task", "update", spec_id="plan", task_id="task-1-2", metadata={"estimated_hours": 5})
    desk.do("task", "update", spec_id="plan", task_id="task-2-1", metadata={"estimated_hours": 2.5})

    data = desk.do("spec", "analyze", spec_id="plan")

    assert data["cycles"] == []
    assert data["orphans"] == []
    assert data["waves"] == [["task-1-1", "task-1-2"], ["task-1-3"], ["task-2-1"]]
    assert data["parallel_width"] == 2
    assert data["critical_path"] == ["task-1-2", "task-2-1"]
    assert data["critical_path_hours"] == 7.5
    assert data["ready"] == ["task-1-1", "task-1-2"]
    desk.do("task", "complete", spec_id="plan", task_id="task-1-2")
    assert desk.do("spec", "analyze", spec_id="plan")["critical_path"] == ["task-1-1", "task-1-3", "task-2-1"]


@pytest.mark.parametrize("code", ["DEPENDENCY_CYCLE"])
def test_analyze_names_circles_that_hands_have_made(code, desk):
    desk.plan()
    desk.edit(FAULTS[code])

    data = desk.do("spec", "analyze", spec_id="plan")

    assert [sorted(cycle) for cycle in data["cycles"]] == [["task-1-1", "task-1-2"]]
    assert (data["critical_path"], data["waves"]) == ([], [])


def test_analyze_names_orphans(desk):
    desk.plan()
    desk.edit(FAULTS["ORPHAN_NODE"])

    assert desk.do("spec", "analyze", spec_id="plan")["orphans"] == ["task-1-1"]


def test_analyze_names_files_that_two_open_specs_mean_to_change(desk):
    for name, files in (
        ("one", ["a.py", "b.py"]),
        ("two", ["b.py"]),
        ("three", ["b.py", "a.py"]),
        ("old", ["a.py"]),
    ):
        desk.plan("## P\n- [ ] x\n", spec_id=name)
        desk.do("task", "update", spec_id=name, task_id="task-1-1", metadata={"files": files})
    desk.do("task", "update", spec_id="two", task_id="task-1-1", metadata={"file_path": "c.py"})
    desk.do("spec", "archive", spec_id="old")

    assert desk.do("spec", "analyze", spec_id="one")["shared_files"] == [
        {"file": "a.py", "specs": ["three"]},
        {"file": "b.py", "specs": ["three", "two"]},
    ]
    desk.do("task", "complete", spec_id="three", task_id="task-1-1")
    assert desk.do("spec", "analyze", spec_id="one")["shared_files"] == [{"file": "b.py", "specs": ["two"]}]
