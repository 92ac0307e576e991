"""What a user decides: the file, the environment, the command line, and the folder it all holds for."""

import os
import subprocess

import pytest

from foundry_mcp.core.disk import open_state
from foundry_mcp.core.errors import NotFoundError, ValidationError
from foundry_mcp.core.flags import FLAGS, Flag, Flags
from foundry_mcp.core.settings import SETTINGS_FILE, Settings, find_workspace, load_settings
from foundry_mcp.logs import configure_logs
from foundry_mcp.runtime import Request

shows = pytest.mark.requirement
FLAG = "response_contract_v2"


def write(workspace, text):
    (workspace / SETTINGS_FILE).write_text(text, encoding="utf-8")


def row(flags, name=FLAG):
    return next(row for row in flags.describe() if row["name"] == name)


# settings


def test_without_a_file_everything_has_its_default(workspace):
    settings, flags = load_settings(workspace, {})

    assert settings == Settings()
    assert (settings.deadline_seconds, settings.log_level, settings.rate_limits) == (120.0, "info", {})
    assert row(flags)["source"] == "default"


def test_the_file_sets_every_key(workspace):
    write(
        workspace,
        'deadline_seconds = 5\nlog_level = "error"\nrate_limit_storage = "memory://"\n'
        f'[flags]\n{FLAG} = false\n[rate_limits]\nserver = "10/minute"\n',
    )

    settings, flags = load_settings(workspace, {})

    assert settings.deadline_seconds == 5
    assert settings.log_level == "error"
    assert settings.rate_limits == {"server": "10/minute"}
    assert not flags.enabled(FLAG)
    assert row(flags)["source"] == SETTINGS_FILE


def test_the_environment_wins_over_the_file_for_the_log_level(workspace):
    write(workspace, 'log_level = "error"\n')

    settings, _ = load_settings(workspace, {"FOUNDRY_LOG_LEVEL": "debug"})

    assert settings.log_level == "debug"


@pytest.mark.parametrize(
    ("file", "environment", "line", "enabled", "source"),
    [
        ("false", None, [], False, SETTINGS_FILE),
        ("false", "on", [], True, "the environment"),
        ("true", "off", [], False, "the environment"),
        ("true", "on", [f"{FLAG}=off"], False, "the command line"),
        ("false", "off", [FLAG], True, "the command line"),
        ("false", "off", [f"{FLAG}=off", f"{FLAG}=on"], True, "the command line"),
    ],
)
def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    workspace, file, environment, line, enabled, source
):
    write(workspace, f"[flags]\n{FLAG} = {file}\n")
    variables = {} if environment is None else {f"FOUNDRY_FLAG_{FLAG.upper()}": environment}

    _, flags = load_settings(workspace, variables, flags=line)

    assert (row(flags)["enabled"], row(flags)["source"]) == (enabled, source)


@pytest.mark.parametrize("word", ["on", "true", "1", "yes", "ON", " Yes "])
def test_a_switch_can_be_said_in_several_words(workspace, word):
    _, flags = load_settings(workspace, {f"FOUNDRY_FLAG_{FLAG.upper()}": word})

    assert flags.enabled(FLAG)


def test_a_word_that_is_no_switch_is_refused(workspace):
    with pytest.raises(ValidationError) as refused:
        load_settings(workspace, {f"FOUNDRY_FLAG_{FLAG.upper()}": "perhaps"})

    assert refused.value.details["received"] == "perhaps"
    assert refused.value.details["field"] == f"FOUNDRY_FLAG_{FLAG.upper()}"


@pytest.mark.parametrize("place", ["file", "environment"])
def test_an_unknown_flag_of_the_file_or_the_environment_is_a_warning_with_the_nearest_name(workspace, place):
    if place == "file":
        write(workspace, "[flags]\nresponse_contract_v3 = true\n")
    variables = {"FOUNDRY_FLAG_RESPONSE_CONTRACT_V3": "on"} if place == "environment" else {}

    _, flags = load_settings(workspace, variables)

    (complaint,) = flags.complaints()
    assert "'response_contract_v3'" in complaint
    assert f"did you mean '{FLAG}'?" in complaint
    assert (SETTINGS_FILE if place == "file" else "the environment") in complaint
    assert flags.enabled(FLAG)


def test_an_unknown_flag_on_the_command_line_is_an_error_with_the_nearest_name(workspace):
    with pytest.raises(ValidationError) as refused:
        load_settings(workspace, {}, flags=["response_contract_v3=on"])

    assert refused.value.details["nearest"] == FLAG
    assert refused.value.details["received"] == "response_contract_v3"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("deadline_seconds = ", "foundry-mcp.toml"),
        ("[flags", "foundry-mcp.toml"),
        ("deadline = 5", "deadline"),
        ('deadline_seconds = "soon"', "deadline_seconds"),
        ("deadline_seconds = 0", "deadline_seconds"),
        (f'[flags]\n{FLAG} = "on"', "flags"),
        ("rate_limits = 5", "rate_limits"),
        ("log_level = 5", "log_level"),
        ("x = " + "[" * 5000 + "]" * 5000, "foundry-mcp.toml"),
    ],
)
def test_a_file_that_is_not_understood_is_a_clear_error(workspace, text, named):
    write(workspace, text)

    with pytest.raises(ValidationError) as refused:
        load_settings(workspace, {})

    assert refused.value.message.startswith("Validation failed: foundry-mcp.toml is not understood")
    assert named in refused.value.message
    assert "deadline_seconds" in refused.value.remediation
    assert str(workspace) not in refused.value.message


def test_a_file_that_is_no_text_is_a_clear_error(workspace):
    (workspace / SETTINGS_FILE).write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ValidationError, match="not understood"):
        load_settings(workspace, {})


def test_a_file_that_cannot_be_read_is_a_clear_error(workspace):
    (workspace / SETTINGS_FILE).mkdir()

    with pytest.raises(ValidationError, match="cannot be read: Is a directory"):
        load_settings(workspace, {})


def test_an_unknown_log_level_is_an_error_that_names_the_known_ones():
    with pytest.raises(ValidationError) as refused:
        configure_logs("warn")

    assert refused.value.details["field"] == "log_level"
    assert refused.value.details["nearest"] == "warning"


# flags


@shows("000.rollout.flag-lifecycle")
@pytest.mark.parametrize("stage", ["experimental", "beta", "stable", "deprecated"])
def test_each_flag_has_a_stage_of_its_life_and_says_which(make_bench, stage):
    flags = Flags({**FLAGS, "shiny": Flag("shiny", stage, False, "Something new")})

    assert row(flags, "shiny") == {
        "name": "shiny",
        "enabled": False,
        "stage": stage,
        "default": False,
        "source": "default",
        "description": "Something new",
    }


@pytest.mark.parametrize(("stage", "count"), [("deprecated", 1), ("stable", 0)])
def test_setting_a_deprecated_flag_is_a_warning(stage, count):
    flags = Flags({"old": Flag("old", stage, False, "On its way out")})
    flags.set({"old": True}, SETTINGS_FILE)

    complaints = list(flags.complaints())

    assert len(complaints) == count
    assert all("'old' from foundry-mcp.toml is deprecated" in text for text in complaints)


def test_the_flags_operation_lists_the_unknown_ones_as_warnings(make_bench):
    from foundry_mcp.operations import REGISTRY  # noqa: PLC0415 - only here is the real registry wanted

    bench = make_bench(registry=REGISTRY, switches={"shinny": True})

    response = bench.runtime.call(Request("server", {"action": "flags"})).response

    assert [detail["code"] for detail in response.meta["warning_details"]] == ["UNKNOWN_FLAG"]
    assert "'shinny' from a test" in response.meta["warnings"][0]
    assert [flag["name"] for flag in response.data["flags"]] == [FLAG]


# the workspace


@pytest.fixture
def tree(workspace):
    """A repository with a project inside that has specs, and folders below both."""
    (workspace / "repo" / ".git").mkdir(parents=True)
    (workspace / "repo" / "project" / "specs" / "active").mkdir(parents=True)
    (workspace / "repo" / "project" / "src" / "deep").mkdir(parents=True)
    (workspace / "repo" / "docs").mkdir()
    (workspace / "elsewhere").mkdir()
    return workspace.resolve()


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("repo/project/src/deep", "repo/project"),
        ("repo/project", "repo/project"),
        ("repo/project/specs/active", "repo/project"),
        ("repo/docs", "repo"),
        ("repo", "repo"),
        ("elsewhere", "elsewhere"),
    ],
)
def test_the_workspace_is_the_nearest_folder_with_specs_else_the_git_root_else_here(tree, start, found):
    assert find_workspace(None, {}, tree / start) == tree / found


def test_inside_a_worktree_the_workspace_is_the_worktree(tree):
    def git(*arguments, folder):
        environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(tree)}
        author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(
            ["git", *author, *arguments],
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
            timeout=30,
        )

    clone = tree / "clone"
    clone.mkdir()
    git("init", "-q", folder=clone)
    git("commit", "-q", "--allow-empty", "-m", "first", folder=clone)
    git("worktree", "add", "-q", "inside/tree", folder=clone)
    (clone / "inside" / "tree" / "src").mkdir()

    assert (clone / "inside" / "tree" / ".git").is_file()
    assert find_workspace(None, {}, clone / "inside" / "tree" / "src") == clone / "inside" / "tree"


def test_the_chosen_folder_wins_over_the_environment_and_both_over_the_search(tree):
    environment = {"FOUNDRY_WORKSPACE": str(tree / "repo")}
    start = tree / "repo" / "project"

    assert find_workspace(str(tree / "elsewhere"), environment, start) == tree / "elsewhere"
    assert find_workspace(None, environment, start) == tree / "repo"


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_chosen_folder_that_is_not_there_is_an_error(tree, how):
    missing = str(tree / "gone")

    with pytest.raises(NotFoundError) as refused:
        find_workspace(
            missing if how == "option" else None,
            {"FOUNDRY_WORKSPACE": missing} if how == "environment" else {},
            tree,
        )

    assert refused.value.details["resource_type"] == "workspace"


def test_a_specs_folder_in_the_home_folder_makes_no_workspace(tree, monkeypatch):
    monkeypatch.setenv("HOME", str(tree))
    (tree / "specs").mkdir()

    assert find_workspace(None, {}, tree / "elsewhere") == tree / "elsewhere"


def test_private_state_is_closed_to_others_and_never_committed(workspace):
    for _ in range(2):
        with open_state(workspace, "locks"):
            pass

    folder = workspace / ".foundry"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_private_state_is_not_kept_behind_a_link(workspace, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (workspace / ".foundry").symlink_to(outside)

    with pytest.raises(OSError), open_state(workspace, "locks"):  # noqa: PT011 - a link or no folder, as the system says
        pass

    assert list(outside.iterdir()) == []
