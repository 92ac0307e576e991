"""A plan from Markdown: headings, checkboxes, indentation, and whatever else people write."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foundry_mcp.core.errors import ValidationError
from foundry_mcp.core.specs import rules
from foundry_mcp.core.specs.model import Spec
from foundry_mcp.core.specs.outline import MAX_DEPTH, new_document, read_outline, slug


def read(text):
    spec = Spec(new_document("T", spec_id="t"), "pending")
    title = read_outline(spec, text)
    return spec, title


def tree(text):
    """Each node below the root as "id type title", indented as deep as it lies."""
    spec, _ = read(text)
    return [
        f"{'  ' * (sum(1 for _ in spec.ancestors(name)) - 1)}{name} {spec.nodes[name]['type']} {spec.nodes[name]['title']}"
        for name in spec.order[1:]
    ]


def test_headings_are_phases_checkboxes_tasks_and_indented_ones_subtasks():
    assert tree(
        """
# The title
Some words.
## First
- [ ] one
  - [ ] one a
    - [ ] one a i
  - [ ] one b
* [ ] two
## Second
1. [ ] three
2) [ ] verify: it holds
+ [ ] four
"""
    ) == [
        "phase-1 phase First",
        "  task-1-1 task one",
        "    task-1-1-1 subtask one a",
        "      task-1-1-1-1 subtask one a i",
        "    task-1-1-2 subtask one b",
        "  task-1-2 task two",
        "phase-2 phase Second",
        "  task-2-1 task three",
        "  task-2-2 task four",
        "  verify-2-1 verify it holds",
    ]


@pytest.mark.parametrize(
    ("text", "title", "phases"),
    [
        ("# Title\n## A\n## B\n", "Title", ["A", "B"]),
        ("# A\n# B\n", None, ["A", "B"]),
        ("# Only\n- [ ] x\n", None, ["Only"]),
        ("## A\n### B\n## C\n", None, ["A", "B", "C"]),
        ("# T\n### A\n### B\n", "T", ["A", "B"]),
        ("## A ##\n", None, ["A"]),
        ("- [ ] x\n", None, ["Tasks"]),
        ("# Café ☕\n## 日本\n", "Café ☕", ["日本"]),
    ],
)
def test_a_single_top_heading_is_the_title_and_the_others_are_phases(text, title, phases):
    spec, found = read(text)

    assert found == title
    assert [spec.nodes[name]["title"] for name in spec.children("spec-root")] == phases


def test_checked_boxes_are_done_and_their_parents_follow():
    spec, _ = read("## A\n- [x] a\n- [X] b\n  - [x] b1\n  - [ ] b2\n- [x] c\n  - [x] c1\n## B\n- [x] d\n")

    states = {name: node["status"] for name, node in spec.nodes.items()}

    assert states["task-1-1"] == "completed"
    assert (states["task-1-2"], states["task-1-2-1"], states["task-1-2-2"]) == (
        "in_progress",
        "completed",
        "pending",
    )
    assert states["task-1-3"] == "completed"
    assert (states["phase-1"], states["phase-2"], states["spec-root"]) == (
        "in_progress",
        "completed",
        "in_progress",
    )
    assert rules.findings(spec) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("indent", ["  ", "    ", "\t"])
def test_line_ends_and_tabs_make_no_difference(end, indent):
    text = end.join(["## A", "- [ ] a", f"{indent}- [ ] a1", f"{indent}{indent}- [ ] a2", "- [ ] b", ""])

    assert tree(text) == [
        "phase-1 phase A",
        "  task-1-1 task a",
        "    task-1-1-1 subtask a1",
        "      task-1-1-1-1 subtask a2",
        "  task-1-2 task b",
    ]


@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_what_stands_in_a_code_block_is_no_plan(fence):
    other = "~~~" if fence == "```" else "```"
    text = f"# Phase\n- [ ] a\n{fence}bash\n# a comment\n## another\n- [ ] no\n{other}\n- [ ] no\n{fence}\n- [ ] b\n"

    assert tree(text) == ["phase-1 phase Phase", "  task-1-1 task a", "  task-1-2 task b"]


def test_bullets_below_a_task_are_its_criteria_and_text_below_a_heading_describes_it():
    spec, _ = read("## A\nFirst line.\nSecond line.\n\n- [ ] a\n  - it works\n  - it is fast\n- [ ] b\n")

    assert spec.nodes["phase-1"]["metadata"]["description"] == "First line. Second line."
    assert spec.nodes["task-1-1"]["metadata"]["acceptance_criteria"] == ["it works", "it is fast"]
    assert spec.nodes["task-1-2"]["metadata"] == {}


@pytest.mark.parametrize("text", ["", "\n\n", "just words", "- bullet\n* bullet", "```\n- [ ] x\n", "---"])
def test_an_outline_without_a_plan_is_an_empty_plan(text):
    spec, title = read(text)

    assert list(spec.nodes) == ["spec-root"]
    assert title is None


def test_nesting_without_an_end_is_refused_with_the_place(desk):
    text = "## A\n" + "".join(f"{'  ' * depth}- [ ] {depth}\n" for depth in range(MAX_DEPTH + 3))

    answer = desk.refused("VALIDATION_ERROR", "spec", "create", title="x", outline=text)

    assert answer["data"]["details"]["field"] == "outline"
    assert answer["data"]["details"]["received"] == str(MAX_DEPTH)


def test_a_long_outline_costs_what_its_length_says():
    """Ten times the tasks, about ten times the steps: counted, because a clock would lie."""

    def steps(count):
        counted = 0

        class Counting(dict[str, object]):
            def __getitem__(self, key):
                nonlocal counted
                counted += 1
                return super().__getitem__(key)

        document = new_document("T", spec_id="t")
        document["hierarchy"] = Counting(document["hierarchy"])
        read_outline(Spec(document, "pending"), "## A\n" + "- [ ] a\n" * count)
        return counted

    assert steps(1000) < 15 * steps(100)


LINES = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.builds(
            lambda indent, mark, box, text: f"{indent}{mark} {box} {text}",
            st.sampled_from(["", " ", "  ", "    ", "\t", "\t\t", "      "]),
            st.sampled_from(["-", "*", "+", "1.", "23)", "#", "##", "######", "#######", ">"]),
            st.sampled_from(["[ ]", "[x]", "[X]", "[]", "[-]", "", "verify:", "[ ] verify:"]),
            st.text(max_size=8),
        ),
        st.sampled_from(["```", "~~~", "````", "---", "", "  ```py"]),
    ),
    max_size=25,
)


@given(lines=LINES, end=st.sampled_from(["\n", "\r\n", "\u2028", "\x0b"]))
@settings(max_examples=150, deadline=None)
def test_whatever_is_written_gives_a_sound_plan_or_a_clear_refusal(lines, end):
    try:
        spec, _ = read(end.join(lines))
    except ValidationError:
        return  # nested too deep; the test above looks at what it says
    assume(all(node["title"].strip() for node in spec.nodes.values()))  # the test below looks at those
    serious = [found for found in rules.findings(spec) if found.severity != "info"]
    assert serious == []
    assert set(spec.order) == set(spec.nodes)
    assert spec.journal == []


@pytest.mark.parametrize("text", ["- [ ]  \n", "##  \n", "## A\n- [ ] \t \n"])
def test_a_box_or_heading_with_nothing_in_it_is_nothing(text):
    spec, _ = read(text)

    assert all(node["title"].strip() for node in spec.nodes.values())


@given(title=st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_title_gives_the_stem_of_a_legal_id(title):
    stem = slug(title)

    assert 1 <= len(stem) <= 80
    assert stem[0] != "-"
    assert stem[-1] != "-"
    assert set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
