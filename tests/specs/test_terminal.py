"""Specs at the command line: as the documents type it, as scripts read it, and as a person sees it."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

shows = pytest.mark.requirement
PATIENCE = 30.0
JQ = """
import json, sys
query, value = sys.argv[-1], json.load(sys.stdin)
rows = [value]
for step in query.strip(".").split("."):
    name, each, _ = step.partition("[]")
    rows = [row[name] for row in rows]
    if each:
        rows = [inner for row in rows for inner in row]
for row in rows:
    print(row if isinstance(row, str) and "-r" in sys.argv else json.dumps(row))
"""


@pytest.fixture
def environment(tmp_path):
    """A path on which `foundry-cli` and `jq` are found, and nothing that reaches into the settings."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "foundry-cli").write_text(
        f"#!{sys.executable}\nfrom foundry_mcp.cli import main\nmain()\n", encoding="utf-8"
    )
    (tools / "foundry-cli").chmod(0o755)
    if shutil.which("jq") is None:
        (tools / "jq").write_text(f"#!{sys.executable}\n{JQ}", encoding="utf-8")
        (tools / "jq").chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FOUNDRY_", "PYTEST", "COV_"))}
    return {**kept, "PATH": f"{tools}{os.pathsep}{kept['PATH']}"}


@pytest.fixture
def run(desk, environment):
    """Run a command line; its exit code and the one envelope it wrote."""

    def run(*arguments, workspace=None, **more):
        done = subprocess.run(
            ["foundry-cli", *arguments],
            cwd=workspace or desk.workspace,
            env={**environment, **more},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )
        assert done.stderr == b"", done.stderr
        assert done.stdout.count(b"\n") == 1
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def shell(desk, environment):
    def shell(script):
        return subprocess.run(
            ["bash", "-c", script],
            cwd=desk.workspace,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )

    return shell


# as document 001 types it


@shows("001.cli.limit", "001.cli.cursor", "001.jq.data", "001.jq.has_more")
def test_specs_are_found_page_by_page_as_the_document_types_it(desk, run):
    for number in range(53):
        desk.plan("", spec_id=f"s-{number}")

    code, first = run("specs", "find", "--limit", "50")
    assert code == 0
    assert len(first["data"]["specs"]) == 50
    assert first["meta"]["pagination"]["has_more"] is True
    code, second = run("specs", "find", "--limit", "50", "--cursor", first["meta"]["pagination"]["cursor"])
    assert code == 0
    assert [row["id"] for row in second["data"]["specs"]] == ["s-50", "s-51", "s-52"]
    assert second["meta"]["pagination"]["has_more"] is False
    code, refused = run("specs", "find", "--limit", "50", "--cursor", "eyJvZmZzZXQiOjUwfQ==")
    assert (code, refused["data"]["error_code"]) == (1, "INVALID_CURSOR")


@shows("001.cli.status")
def test_specs_are_found_by_status(desk, run):
    desk.plan(spec_id="one")
    desk.plan(spec_id="two")
    desk.do("spec", "activate", spec_id="two")

    assert [row["id"] for row in run("specs", "find", "--status", "active")[1]["data"]["specs"]] == ["two"]
    code, refused = run("specs", "find", "--status", "nonsense")
    assert (code, refused["data"]["error_code"]) == (2, "VALIDATION_ERROR")


@shows("001.jq.success")
def test_a_spec_is_checked_by_its_name(desk, run):
    desk.plan(spec_id="my-spec")

    code, answer = run("validate", "check", "my-spec")

    assert (code, answer["success"], answer["data"]["valid"]) == (0, True, True)


@shows("001.jq.error")
def test_completing_a_task_of_an_unknown_spec_says_the_error(desk, run):
    code, answer = run("tasks", "complete", "bad-spec", "bad-task")

    assert (code, answer["success"]) == (1, False)
    assert answer["error"] == "Spec not found: bad-spec"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("foundry-cli specs find | jq '.data.specs'", "my-spec"),
        ("foundry-cli validate check my-spec | jq '.success'", "true"),
        ("foundry-cli tasks complete bad-spec bad-task | jq '.error'", "bad-spec"),
        ("foundry-cli specs find | jq '.meta.pagination.has_more'", "false"),
    ],
)
def test_the_lines_of_the_document_run_through_jq(line, said, desk, shell):
    desk.plan(spec_id="my-spec")

    done = shell(line)

    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout


SCRIPT = """
result=$(foundry-cli specs find --status active)
success=$(echo "$result" | jq -r '.success')
if [ "$success" = "true" ]; then
  specs=$(echo "$result" | jq -r '.data.specs[].id')
  for spec in $specs; do
    echo "Processing: $spec"
  done
else
  error=$(echo "$result" | jq -r '.error')
  echo "Error: $error"
  exit 1
fi
"""


@shows("001.script.loop")
def test_the_shell_script_of_the_document_prints_every_active_spec(desk, shell):
    for name in ("one", "two", "three"):
        desk.plan(spec_id=name)
    for name in ("one", "three"):
        desk.do("spec", "activate", spec_id=name)

    done = shell(SCRIPT)

    assert done.stdout.splitlines() == ["Processing: one", "Processing: three"]
    assert done.returncode == 0


@shows("001.script.failure")
def test_the_shell_script_of_the_document_prints_the_error_and_fails(desk, shell):
    (desk.workspace / "foundry-mcp.toml").write_text("nonsense = 1\n", encoding="utf-8")

    done = shell(SCRIPT)

    assert done.returncode == 1
    assert done.stdout.startswith("Error: ")
    assert "foundry-mcp.toml" in done.stdout


PYTHON = """
import subprocess
import json


def call_foundry(command: list[str]) -> dict:
    result = subprocess.run(
        ["foundry-cli"] + command,
        capture_output=True,
        text=True
    )
    return json.loads(result.stdout)


response = call_foundry(["specs", "find", "--status", "active"])
if response["success"]:
    for spec in response["data"]["specs"]:
        print(f"Spec: {spec['id']} - {spec['title']}")
    if response["meta"].get("pagination", {}).get("has_more"):
        cursor = response["meta"]["pagination"]["cursor"]
        # Fetch next page...
else:
    error = response["error"]
    remediation = response["data"].get("remediation", "")
    print(f"Error: {error}")
    print(f"Fix: {remediation}")
"""


@shows("001.python.subprocess")
def test_the_python_example_of_the_document_reads_every_spec(desk, environment):
    desk.plan(spec_id="one")
    desk.do("spec", "activate", spec_id="one")

    done = subprocess.run(
        [sys.executable, "-c", PYTHON],
        cwd=desk.workspace,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (done.stdout, done.stderr, done.returncode) == ("Spec: one - One\n", "", 0)


# a whole plan by hand


def test_a_plan_is_made_worked_through_and_closed_from_the_command_line(desk, run):
    def data(*arguments):
        code, answer = run(*arguments)
        assert code == 0, answer
        return answer["data"]

    outline = textwrap.dedent("""\
        ## One
        - [ ] a
        - [ ] b
        """)
    assert (
        data("specs", "create", "My feature", "--spec-id", "mine", "--outline", outline)["spec_id"] == "mine"
    )
    data("lifecycle", "activate", "mine")
    data("tasks", "depend", "mine", "task-1-2", "task-1-1")
    added = data(
        "tasks",
        "add",
        "mine",
        "c",
        "--parent",
        "phase-1",
        "--blocked-by",
        "task-1-1",
        "--blocked-by",
        "task-1-2",
    )
    assert added["task_id"] == "task-1-3"
    assert data("tasks", "claim", "mine", "--owner", "me")["task_id"] == "task-1-1"
    done = data("tasks", "complete", "mine", "task-1-1", "--owner", "me", "--evidence", '{"commit": "abc"}')
    assert done["status"] == "completed"
    changes = '[{"action": "complete", "task_id": "task-1-2"}, {"action": "complete", "task_id": "task-1-3"}]'
    assert data("tasks", "batch", "mine", "--changes", changes)["processed"] == 2
    data(
        "specs",
        "update",
        "mine",
        "--assumptions",
        "one, and",
        "--assumptions",
        "two",
        "--metadata",
        '{"x": 1}',
    )
    data("journal", "add", "mine", "Chose it", "--kind", "decision")
    assert len(data("journal", "list", "mine", "--kind", "decision")["entries"]) == 1
    assert data("tasks", "progress", "mine")["progress"]["percentage"] == 100
    assert data("lifecycle", "complete", "mine", "--dry-run")["dry_run"] is True
    assert (
        data("lifecycle", "complete", "mine", "--expected-revision", str(done["revision"] + 3))["status"]
        == "completed"
    )
    assert data("specs", "rollback", "mine", "1")["restored_revision"] == 1
    assert desk.document("mine")["metadata"].get("x") is None


# init and the workspace


def test_init_makes_a_workspace_with_an_example_once(desk, run):
    code, first = run("init")

    assert code == 0
    assert first["data"]["created"] == ["specs/pending", "specs/active", "specs/completed", "specs/archived"]
    assert first["data"]["example"] == "example"
    assert desk.do("spec", "validate", spec_id="example")["findings"] == []
    desk.do("task", "complete", spec_id="example", task_id="task-1-1")
    before = desk.tree()

    code, again = run("init")

    assert (code, again["data"]["created"]) == (0, [])
    assert "example" not in again["data"]
    assert desk.tree() == before
    desk.file("example").unlink()
    run("init")
    assert desk.tree() == {}


def test_init_writes_through_no_link(desk, run, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    desk.specs.symlink_to(outside, target_is_directory=True)

    code, answer = run("init")

    assert (code, answer["data"]["error_code"]) == (1, "FORBIDDEN")
    assert list(outside.iterdir()) == []


def test_a_workspace_is_found_upwards_by_option_or_by_environment(desk, run, tmp_path):
    desk.plan()
    deep = desk.workspace / "a" / "b"
    deep.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    assert run("specs", "find", workspace=deep)[1]["data"]["total_count"] == 1
    assert run("specs", "find", workspace=elsewhere)[1]["data"]["total_count"] == 0
    chosen = ("specs", "find", "--workspace", str(desk.workspace))
    assert run(*chosen, workspace=elsewhere)[1]["data"]["total_count"] == 1
    named = run("specs", "find", workspace=elsewhere, FOUNDRY_WORKSPACE=str(desk.workspace))
    assert named[1]["data"]["total_count"] == 1


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_worktree_has_specs_of_its_own(desk, run, environment):
    def git(*arguments, folder=desk.workspace):
        who = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@x", "GIT_COMMITTER_NAME": "x"}
        subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**environment, **who, "GIT_COMMITTER_EMAIL": "x@x", "GIT_CONFIG_GLOBAL": os.devnull},
            check=True,
            capture_output=True,
            timeout=PATIENCE,
        )

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    desk.plan()
    tree = desk.workspace / "tree"
    git("worktree", "add", "-q", str(tree))
    (tree / "src").mkdir()

    assert run("specs", "create", "Here", workspace=tree / "src")[0] == 0
    assert len(list((tree / "specs" / "pending").glob("*.json"))) == 1
    assert len(list((desk.specs / "pending").glob("*.json"))) == 1


# people


class Screen:
    """A terminal of 100 columns and what a program shows on it, colours taken off."""

    def __init__(self, desk, environment, *arguments):
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            ["foundry-cli", *arguments],
            cwd=desk.workspace,
            env={**environment, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self._seen = b""

    def _more(self):
        if not select.select([self._ours], [], [], PATIENCE)[0]:
            raise AssertionError(f"nothing more is shown after {self._seen!r}")
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            piece = b""
        self._seen += piece
        return bool(piece)

    @property
    def text(self):
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._seen.decode(errors="replace"))
        return plain.replace("\r\n", "\n")

    def wait_for(self, words):
        """Read until these words are shown; what was shown before is forgotten."""
        while words not in self.text:
            assert self._more(), f"it ended without {words!r}: {self.text}"
        self._seen = b""

    def finish(self):
        while self._more():
            pass
        return self.text, self.process.wait(PATIENCE)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def screen(desk, environment):
    opened = []

    def show(*arguments):
        opened.append(Screen(desk, environment, *arguments))
        return opened[-1]

    yield show
    for made in opened:
        made.close()


@pytest.fixture
def seen(screen):
    def seen(*arguments):
        text, code = screen(*arguments).finish()
        assert code == 0, text
        assert '{"' not in text
        return text

    return seen


def test_a_spec_is_shown_as_a_tree_with_bars(desk, seen):
    desk.plan("## One\n- [x] done\n- [ ] open\n  - [ ] inner\n## Two\n- [ ] other\n")
    desk.do("task", "block", spec_id="plan", task_id="task-2-1", reason="x")

    for view in ((), ("--view", "outline")):
        lines = seen("specs", "get", "plan", *view).splitlines()
        assert "Plan  pending  ━━━━╌╌╌╌╌╌╌╌ 1/3" in lines[0]
        assert lines[1].startswith("├── One  ━━━━━━╌╌╌╌╌╌ 1/2")
        assert lines[2] == "│   ├── ✓ done  task-1-1"
        assert lines[3] == "│   └── ○ open  task-1-2"
        assert lines[4] == "│       └── ○ inner  task-1-2-1"
        assert lines[6] == "    └── ■ other  task-2-1"


def test_specs_tasks_and_phases_are_shown_as_tables(desk, seen):
    desk.plan()
    desk.do("task", "start", spec_id="plan", task_id="task-1-1", owner="ann")

    listed = seen("specs", "list")
    assert re.search(r"plan +Plan +pending +╌+ 0/4", listed)
    tasks = seen("tasks", "query", "plan")
    assert re.search(r"▶ +task-1-1 +a +phase-1 +ann", tasks)
    assert re.search(r"○ +task-2-2 +d +phase-2", tasks)
    phase = seen("specs", "get", "plan", "--phase", "phase-1")
    assert re.search(r"▶ +task-1-1 +a +ann", phase)
    assert "task-2-1" not in phase
    progress = seen("tasks", "progress", "plan")
    assert re.search(r"One +╌+ 0/2 +0 %", progress)
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")
    assert re.search(r"all +━+╌+ 1/4 +25 %", seen("tasks", "progress", "plan"))


def test_more_rows_are_announced_with_the_command_that_shows_them(desk, seen):
    for name in ("one", "two"):
        desk.plan(spec_id=name)

    text = seen("specs", "list", "--limit", "1")

    assert "more: foundry-cli specs list" in text
    assert "--cursor" in text


def test_the_next_task_is_shown_as_a_card(desk, seen):
    desk.plan("## One\n- [ ] Write the tests\n  - all green\n  - no warnings\n")
    desk.do(
        "task",
        "update",
        spec_id="plan",
        task_id="task-1-1",
        description="Why",
        metadata={"file_path": "t.py"},
    )

    card = seen("tasks", "next", "plan")

    assert card.lstrip().startswith("╭")
    for words in ("task-1-1", "Write the tests", "Why", "all green", "no warnings", "t.py", "phase-1"):
        assert words in card
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")
    assert "Nothing to start: completed" in seen("tasks", "next", "plan")


def test_findings_are_shown_with_their_remedy(desk, seen):
    desk.plan()
    assert "✓ plan is valid" in seen("validate", "check", "plan")
    desk.edit(lambda d: d["hierarchy"]["phase-1"].update(total_tasks=9))

    assert re.search(
        r"warning +phase-1 +it counts 0/9 tasks, there are 0/2 +Count again\.",
        seen("validate", "check", "plan"),
    )


def test_an_empty_workspace_says_how_to_begin(desk, seen):
    assert "No specs here. Make one: foundry-cli specs create TITLE" in seen("specs", "list")
    desk.plan("")
    assert "No tasks match." in seen("tasks", "query", "plan")


def test_markup_in_a_title_is_shown_and_not_obeyed(desk, seen):
    desk.plan("## [bold]One[/bold]\n- [ ] [red]x[/nonsense]\n")
    desk.do("spec", "update", spec_id="plan", title="[blink]T[/]", description="[link]")

    assert "[red]x[/nonsense]" in seen("tasks", "query", "plan")
    assert "[bold]One[/bold]" in seen("specs", "get", "plan")
    assert "[blink]T[/]" in seen("specs", "list")
    assert "[red]x[/nonsense]" in seen("tasks", "next", "plan")
    assert "[bold]One[/bold]" in seen("tasks", "progress", "plan")


def test_a_damaged_spec_is_shown_beside_the_others(desk, seen):
    desk.plan()
    desk.plan(spec_id="bad")
    desk.file("bad").write_text("{", encoding="utf-8")

    text = seen("specs", "list")

    assert re.search(r"plan +Plan", text)
    assert "specs/pending/bad.json" in text


@pytest.mark.parametrize("chosen", [(), ("plan",)], ids=["all", "one"])
def test_watch_redraws_as_files_change_until_it_is_interrupted(chosen, desk, screen):
    desk.plan()
    watching = screen("specs", "watch", *chosen)

    watching.wait_for("0/4")
    desk.do("task", "complete", spec_id="plan", task_id="task-1-1")
    watching.wait_for("1/4")
    desk.edit(lambda d: [d["hierarchy"]["task-1-2"].update(status="completed"), d.update(revision=99)])
    watching.wait_for("2/4")
    os.kill(watching.process.pid, signal.SIGINT)

    assert watching.finish()[1] == 130
    assert not Path(f"/proc/{watching.process.pid}").exists()


def test_watch_needs_a_terminal(desk, run):
    assert run("specs", "watch")[0] == 2
