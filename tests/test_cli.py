"""The terminal door: one envelope for programs, tables for people, and an exit code for both."""

import json
import os
import pty
import re
import select
import subprocess
import sys

import click
import pytest

from foundry_mcp import __version__
from foundry_mcp.cli.commands import Branch, run
from foundry_mcp.operations import REGISTRY

shows = pytest.mark.requirement

MAIN = "from foundry_mcp.cli import main; main()"
PATIENCE = 30


@pytest.fixture
def call(workspace, monkeypatch, capfdbinary):
    """Run a command line in this process; the exit code and the one envelope it wrote."""
    monkeypatch.chdir(workspace)
    for name in list(os.environ):
        if name.startswith("FOUNDRY_"):
            monkeypatch.delenv(name)

    def call(*arguments):
        code = run(arguments)
        out, err = capfdbinary.readouterr()
        assert err == b""
        return code, one_envelope(out)

    return call


def one_envelope(out):
    assert out.endswith(b"\n")
    assert out.count(b"\n") == 1
    return json.loads(out)


def screen(workspace, *arguments, program=MAIN):
    """What a person at a terminal of 120 columns sees, colours taken off, and the exit code."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FOUNDRY_") and k != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=workspace,
        env={**environment, "TERM": "xterm", "COLUMNS": "120"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while select.select([ours], [], [], PATIENCE)[0]:
            try:
                more = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            seen += more
        code = process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).replace("\r\n", "\n"), code


# one envelope


@shows("001.rule.all-doors")
def test_a_piped_command_writes_one_envelope_and_nothing_else(cli):
    done = cli("server", "health")

    answer = one_envelope(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(answer) == ["success", "data", "error", "meta"]
    assert answer["meta"]["version"] == "response-v2"
    assert answer["data"]["status"] == "ok"


@pytest.mark.parametrize("declared", list(REGISTRY), ids=lambda declared: declared.name)
def test_every_operation_is_a_command(call, declared):
    """Without arguments it does its work, or says which one it needs."""
    code, answer = call(*declared.cli.split())

    needed = declared.schema.get("required", [])
    if declared.name == "content.get":  # a hash or an id: which of them is up to the caller
        assert (code, answer["data"]["error_code"]) == (1, "MISSING_REQUIRED")
    elif needed:
        assert (code, answer["data"]["error_code"]) == (2, "MISSING_REQUIRED")
        assert answer["data"]["details"]["field"] == needed[0]
    else:
        assert (code, answer["success"]) == (0, True)


def test_a_command_that_fails_exits_with_1_and_an_envelope(call):
    code, answer = call("server", "flags", "--name", "nonsense")

    assert code == 1
    assert answer["data"]["details"]["received"] == "nonsense"


USAGE = [
    (["sevrer"], "command", "enum", "sevrer"),
    (["server", "helth"], "command", "enum", "server helth"),
    (["server"], "command", "required", None),
    ([], "command", "required", None),
    (["server", "flags", "--nmae", "x"], "--nmae", "known_parameter", "--nmae"),
    (["server", "tools", "--limit", "many"], "limit", "type", "many"),
    (["server", "tools", "--limit", "0"], "limit", "minimum", "0"),
    (["server", "schema", "response-v3"], "form", "enum", "response-v3"),
    (["server", "capability-negotiate", "--client-capabilities", "{"], "client_capabilities", "json", "{"),
    (
        ["server", "capability-negotiate", "--client-capabilities", "[1]"],
        "client_capabilities",
        "type",
        "array of 1 items",
    ),
    (["server", "health", "--contract", "v9"], "response_contract", "enum", "v9"),
    (["server", "health", "--flag", "nonsense"], "flag", "enum", "nonsense"),
    (
        ["server", "health", "--flag", "response_contract_v2=perhaps"],
        "response_contract_v2",
        "switch",
        "perhaps",
    ),
]


@pytest.mark.parametrize(("arguments", "field", "constraint", "received"), USAGE)
def test_wrong_usage_exits_with_2_and_an_envelope_that_names_the_mistake(
    call, arguments, field, constraint, received
):
    code, answer = call(*arguments)

    assert code == 2
    assert answer["success"] is False
    assert answer["data"]["error_type"] == "validation"
    assert answer["data"]["details"]["field"] == field
    assert answer["data"]["details"]["constraint"] == constraint
    assert answer["data"]["details"]["received"] == received
    assert answer["meta"]["request_id"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["completion"],
        ["completion", "tcsh"],
        ["server", "flags", "--name"],
        ["server", "health", "extra"],
        ["server", "health", "--json=5"],
        ["server", "health", "--timeout", "soon"],
        ["--timeout", "-1", "server", "health"],
        ["--nonsense", "server", "health"],
        ["server", "health", "--workspace", "/nonexistent"],
    ],
    ids=" ".join,
)
def test_whatever_is_typed_wrong_exits_with_2_and_an_envelope(call, arguments):
    code, answer = call(*arguments)

    assert (code, answer["success"]) == (2, False)
    assert answer["data"]["remediation"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(["sevrer"], "server"), (["server", "helth"], "health"), (["server", "flags", "--nmae", "x"], "--name")],
)
def test_a_slip_is_answered_with_what_was_probably_meant(call, typed, meant):
    _, answer = call(*typed)

    assert meant in answer["data"]["remediation"]


@pytest.mark.parametrize(
    "arguments",
    [
        [b"server", b"flags", b"--name", b"a\xff"],
        [b"server", b"tools", b"--cursor", b"\xff\xfe"],
        [b"server", b"capability-negotiate", b"--client-capabilities", b'{"a\xff": 1}'],
        [b"server", b"health", b"--contract", b"\xff"],
        [b"server", b"health", b"--flag", b"\xff"],
        [b"server", b"health", b"--workspace", b"\xff"],
        [b"server", b"schema", b"\xff"],
        [b"serv\xff"],
        [b"server", b"hea\xff"],
        [b"server", b"flags", b"--n\xff", b"x"],
    ],
    ids=repr,
)
def test_arguments_that_are_no_utf_8_get_an_envelope_too(cli, arguments):
    done = cli(*arguments)

    assert one_envelope(done.stdout)["success"] is False
    assert (done.returncode, done.stderr) == (2, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ["server", "flags", "--name", "x" * 100_000],
        ["x" * 100_000],
        ["server", "flags", "--" + "x" * 100_000],
        ["server", "health", "--contract", "x" * 100_000],
        ["server", "health", "--flag", "x" * 100_000],
        ["server", "health", "--workspace", "x" * 100_000],
        ["server", "capability-negotiate", "--client-capabilities", "[" * 100_000],
        ["server", "capability-negotiate", "--client-capabilities", '{"' + "x" * 100_000 + '": 1}'],
    ],
    ids=["value", "command", "option", "contract", "flag", "workspace", "json", "json key"],
)
def test_an_argument_that_is_far_too_long_gets_a_short_envelope(call, arguments):
    code, answer = call(*arguments)

    assert code in {1, 2}
    assert answer["success"] is False
    size = len(json.dumps(answer))
    assert size < 4096


# options


@pytest.mark.parametrize("contract", ["v1", "v2", "knowledge"])
@pytest.mark.parametrize("place", ["before", "after"])
def test_the_contract_can_be_chosen_before_and_after_the_command(call, contract, place):
    option = ("--contract", contract)
    command = ("server", "health")

    code, answer = call(*((*option, *command) if place == "before" else (*command, *option)))

    assert code == 0
    assert form_of(answer) == contract


@pytest.mark.parametrize("contract", ["v1", "knowledge"])
@pytest.mark.parametrize(
    "mistake",
    [
        ["server", "tools", "--limit", "0"],
        ["server", "flags", "--name", "nonsense"],
        ["server", "helth"],
        ["server", "health", "--nonsense"],
    ],
    ids=" ".join,
)
def test_a_failure_comes_in_the_chosen_contract_too(call, contract, mistake):
    code, answer = call("--contract", contract, *mistake)

    assert code in {1, 2}
    assert form_of(answer) == contract


def form_of(answer):
    if "_metadata" in answer:
        return "knowledge"
    return (answer.get("meta") or answer["_meta"])["version"].removeprefix("response-")


def test_an_option_after_the_command_wins_over_the_same_before_it(call):
    _, answer = call("--contract", "v1", "server", "health", "--contract", "v2")

    assert form_of(answer) == "v2"


@shows("000.rollout.flag")
def test_the_contract_flag_switches_the_form_from_the_command_line(call):
    _, answer = call("server", "health", "--flag", "response_contract_v2=off")

    assert form_of(answer) == "v1"


def test_the_settings_of_the_chosen_workspace_hold(call, workspace):
    other = workspace / "other"
    other.mkdir()
    (other / "foundry-mcp.toml").write_text("[flags]\nresponse_contract_v2 = false\n", encoding="utf-8")

    assert form_of(call("server", "health")[1]) == "v2"
    assert form_of(call("server", "health", "--workspace", str(other))[1]) == "v1"


def test_settings_that_cannot_be_understood_are_wrong_usage(call, workspace):
    (workspace / "foundry-mcp.toml").write_text("nonsense", encoding="utf-8")

    code, answer = call("server", "health")

    assert code == 2
    assert answer["data"]["details"]["field"] == "foundry-mcp.toml"


def test_a_call_that_ends_within_its_timeout_is_answered(call):
    code, answer = call("server", "health", "--timeout", "30")

    assert (code, answer["success"]) == (0, True)


# help


def leaves(group=None, path=()):
    """Every command there is, found as click finds it."""
    group = group or Branch(name="foundry-cli", path=())
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name)


def test_every_operation_is_found_in_the_tree_of_commands():
    assert {declared.cli for declared in REGISTRY} < {" ".join(path) for path in leaves()}


@pytest.mark.parametrize("path", list(leaves()), ids=" ".join)
def test_the_help_of_every_command_says_what_it_does_and_shows_an_example(path, capfdbinary):
    code = run([*path, "--help"])

    text = " ".join(capfdbinary.readouterr().out.decode().split())
    assert code == 0
    assert f"Usage: foundry-cli {' '.join(path)}" in text
    assert re.search(rf"Example: .*foundry-cli {' '.join(path)}", text)
    for declared in REGISTRY:
        if tuple(declared.cli.split()) == path:
            assert declared.summary in text
            assert declared.example in text
            for name in declared.schema["properties"]:
                shown = name.upper() if name in declared.positional else f"--{name.replace('_', '-')}"
                assert shown in text


def test_the_version_is_told(capfdbinary):
    assert run(["--version"]) == 0
    assert capfdbinary.readouterr().out.decode() == f"foundry-cli {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion_script(shell, capfdbinary):
    assert run(["completion", shell]) == 0

    script = capfdbinary.readouterr().out.decode()
    assert "foundry-cli" in script
    assert f"_FOUNDRY_CLI_COMPLETE={shell}_complete" in script


@pytest.mark.parametrize(
    ("words", "place", "offered"),
    [
        ("foundry-cli ser", 1, "server"),
        ("foundry-cli server he", 2, "health"),
        ("foundry-cli server schema resp", 3, "response-v2"),
        ("foundry-cli server metrics --format pro", 4, "prometheus"),
    ],
)
def test_completion_offers_commands_and_the_values_of_parameters(cli, words, place, offered):
    done = cli(
        environment={
            "_FOUNDRY_CLI_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(place),
        }
    )

    assert f"plain,{offered}" in done.stdout.decode().splitlines()


# people


def test_on_a_terminal_a_person_sees_a_table_and_no_json(workspace):
    text, code = screen(workspace, "server", "flags")

    assert code == 0
    assert '{"' not in text
    header = next(line for line in text.splitlines() if "stage" in line)
    assert header.split() == ["name", "enabled", "stage", "default", "source", "description"]
    assert re.search(r"response_contract_v2 +yes +stable", text)


def test_on_a_terminal_an_error_shows_the_way_out_and_no_json(workspace):
    text, code = screen(workspace, "server", "helth")

    assert code == 2
    assert "VALIDATION_ERROR" in text
    assert "Did you mean 'health'?" in text
    assert '{"' not in text


@pytest.mark.parametrize("option", [["--json"], ["--contract", "v2"]], ids=" ".join)
def test_on_a_terminal_one_envelope_can_be_asked_for(workspace, option):
    text, code = screen(workspace, "server", "health", *option)

    assert code == 0
    assert json.loads(text)["success"] is True
    assert text.count("\n") == 1


def test_on_a_terminal_the_bare_command_shows_the_help(workspace):
    text, code = screen(workspace)

    assert code == 0
    assert "Usage: foundry-cli" in text


# a good citizen


def test_a_reader_who_has_seen_enough_hears_no_complaint(workspace):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "server", "schema", "typescript"],
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_call_loads_nothing_it_does_not_need(workspace):
    """Start-up time is what a person at a prompt feels, and the MCP SDK alone costs more than the rest."""
    heavy = (
        "mcp",
        "mcp_types",
        "anyio",
        "starlette",
        "pydantic",
        "rich",
        "limits",
        "prometheus_client",
        "logging",
    )
    program = (
        "import sys\nfrom foundry_mcp.cli.commands import run\ncode = run(['server', 'health'])\n"
        f"print(*[name for name in {heavy} if name in sys.modules], file=sys.stderr)\nsys.exit(code)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=workspace, capture_output=True, timeout=PATIENCE, check=False
    )

    assert (done.returncode, done.stderr.decode().strip()) == (0, "")


def test_an_unexpected_error_is_an_envelope_on_stdout_and_a_trace_on_stderr(workspace):
    program = (
        "import sys\nfrom foundry_mcp.operations import server\nfrom foundry_mcp.cli.commands import run\n"
        "def broken(*_): raise RuntimeError('a secret of the inside')\n"
        "server.os.access = broken\nsys.exit(run(['server', 'health']))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=workspace, capture_output=True, timeout=PATIENCE, check=False
    )

    answer = one_envelope(done.stdout)
    logged = json.loads(done.stderr)
    assert done.returncode == 1
    assert answer["data"]["error_code"] == "INTERNAL_ERROR"
    assert b"secret" not in done.stdout
    assert "a secret of the inside" in logged["trace"]
    assert logged["request_id"] == answer["meta"]["request_id"]
