"""Raw lines against the real server: whatever comes, it is answered by name, and the next call is served."""

import json
import os
import subprocess
import sys

import pytest

from foundry_mcp.stdio import MAX_LINE_BYTES

shows = pytest.mark.requirement

KEY = "foundry-mcp/response_contract"
HEALTH = {"action": "health"}
MEGABYTE = 1024 * 1024


def health(server):
    result = server.call("server", HEALTH)
    assert result["structuredContent"]["success"] is True
    return result["structuredContent"]


def refusal(result):
    """The details of a tool result that is a validation answer."""
    assert len(json.dumps(result)) < 4096
    assert result["isError"] is True
    wire = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == wire
    assert wire["success"] is False
    assert wire["data"]["error_type"] == "validation"
    assert wire["meta"]["request_id"]
    assert {"field", "constraint", "received"} <= wire["data"]["details"].keys()
    return wire["data"]["details"]


def tool_call(number, arguments):
    """A line that calls `server` with arguments that need not be JSON."""
    head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"server","arguments":' % number
    return head + arguments + b"}}"


# mistakes in a well-formed call


@pytest.mark.parametrize(
    ("tool", "arguments", "field", "constraint", "received"),
    [
        ("sevrer", HEALTH, "name", "enum", "sevrer"),
        ("", {}, "name", "enum", ""),
        ("s" * 100_000, {}, "name", "enum", None),
        ("server", {"action": "helth"}, "action", "enum", "helth"),
        ("server", {"action": 5}, "action", "enum", 5),
        ("server", {"action": {"a": 1}}, "action", "enum", "object with 1 keys"),
        ("server", {"action": ["health"]}, "action", "enum", "array of 1 items"),
        ("server", {}, "action", "required", None),
        ("server", {"action": None}, "action", "required", None),
        ("server", {"action": "schema", "form": 5}, "form", "type", 5),
        ("server", {"action": "schema", "form": "v9"}, "form", "enum", "v9"),
        ("server", {"action": "tools", "limit": 0}, "limit", "minimum", 0),
        ("server", {"action": "tools", "limit": "5"}, "limit", "type", "5"),
        ("server", {"action": "tools", "limit": 2**200}, "limit", None, 2**200),
        ("server", {"action": "flags", "nmae": "x"}, "nmae", "known_parameter", "x"),
        ("server", {"action": "health", "k" * 100_000: 1}, None, "known_parameter", 1),
        ("server", {"action": "flags", "name": "nonsense"}, None, "enum", "nonsense"),
        ("server", {"action": "tools", "cursor": "bm9uc2Vuc2U="}, "cursor", "cursor", "bm9uc2Vuc2U="),
        (
            "server",
            {"action": "capability-negotiate", "client_capabilities": 5},
            "client_capabilities",
            "type",
            5,
        ),
        (
            "server",
            {"action": "capability-negotiate", "client_capabilities": {"response_contract": "v9"}},
            "response_contract",
            "enum",
            "v9",
        ),
        (
            "server",
            {"action": "capability-negotiate", "client_capabilities": {"response_contract": ["v9"] * 10_000}},
            "response_contract",
            "enum",
            None,
        ),
        (
            "server",
            {"action": "capability-negotiate", "client_capabilities": {"z" * 100_000: 1}},
            None,
            "enum",
            None,
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_mistake_is_answered_by_name_and_the_next_call_is_served(
    server, tool, arguments, field, constraint, received
):
    details = refusal(server.call(tool, arguments))

    assert field in {None, details["field"]}
    assert constraint in {None, details["constraint"]}
    if received is not None:
        assert details["received"] == received
    health(server)


@pytest.mark.parametrize(
    ("asked", "received"),
    [
        ("v9", "v9"),
        (7, 7),
        (True, True),
        ({"a": [1]}, "object with 1 keys"),
        (["v1"], "array of 1 items"),
        ("v" * 100_000, None),
    ],
    ids=["unknown", "number", "boolean", "object", "list", "long"],
)
def test_an_unknown_contract_in_the_meta_of_a_request_is_refused(server, asked, received):
    details = refusal(server.call("server", HEALTH, _meta={KEY: asked}))

    assert details["field"] == "response_contract"
    assert details["allowed"] == ["v2", "v1", "knowledge"]
    if received is not None:
        assert details["received"] == received
    health(server)


def test_a_cursor_of_another_query_is_refused(server):
    page = server.call("server", {"action": "tools", "limit": 1})["structuredContent"]
    cursor = page["meta"]["pagination"]["cursor"]

    details = refusal(server.call("server", {"action": "tools", "tool": "server", "cursor": cursor}))

    assert (details["field"], details["constraint"]) == ("cursor", "cursor")
    health(server)


def test_an_argument_of_50_megabytes_is_refused_with_its_length(server):
    details = refusal(server.call("server", {"action": "flags", "name": "x" * 50 * MEGABYTE}))

    assert details["constraint"] == "max_length"
    assert details["received"].endswith(f"({50 * MEGABYTE} characters)")
    health(server)


@pytest.mark.parametrize("arguments", [[1], "text", 5, True])
def test_arguments_that_are_no_object_are_refused(server, arguments):
    details = refusal(server.call("server", arguments))

    assert details["field"].endswith("arguments")
    health(server)


@pytest.mark.parametrize(
    "params", [{}, {"arguments": {}}, {"name": 5}, {"name": None}, {"name": "server", "_meta": 5}]
)
def test_a_call_without_a_name_or_with_odd_parts_is_refused(server, params):
    details = refusal(server.request("tools/call", params)["result"])

    assert details["field"].split(".")[0] == "params"
    health(server)


# lines that are no message


@pytest.mark.parametrize(
    ("arguments", "constraint"),
    [
        (b'{"action":"flags","name":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "max_depth"),
        (b'{"action":"flags","name":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}", "max_depth"),
        (b'{"action":"flags","name":"\xff\xfe"}', "utf-8"),
        (b'{"action":"flags","name":"\xed\xa0\x80"}', "utf-8"),
        (b'{"action":"flags","name":"\\ud800"}', "json"),
        (b'{"action":"flags",}', "json"),
        (b'{"action":"flags","name":' + b"9" * 5000 + b"}", "json"),
        (b"{" + b"\x00" * 10 + b"}", "json"),
    ],
    ids=["deep list", "deep object", "no utf-8", "utf-16 half", "lone escape", "comma", "long number", "nul"],
)
def test_a_call_that_no_parser_takes_is_still_answered_under_its_id(server, arguments, constraint):
    number = server.next_id()

    answer = server.ask(tool_call(number, arguments))

    assert answer["id"] == number
    details = refusal(answer["result"])
    assert (details["field"], details["constraint"]) == ("message", constraint)
    assert details["received"].endswith("bytes")
    health(server)


@pytest.mark.parametrize("name", ['"plain"', '"with \\"quotes\\""', '"tab\\t and \\u00e9"'])
def test_an_id_that_is_text_is_found_in_a_broken_call_as_it_was_written(server, name):
    line = b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"\\ud800"}}'

    answer = server.ask(line % name.encode())

    assert answer["id"] == json.loads(name)
    refusal(answer["result"])


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("filling", ["text", "lists"])
def test_a_line_over_the_limit_is_answered_under_its_id_wherever_that_stands(server, place, filling):
    number = server.next_id()
    value = b"[" * MAX_LINE_BYTES if filling == "lists" else b'"%s"' % (b"x" * MAX_LINE_BYTES)
    body = b'"method":"tools/call","params":{"name":"server","arguments":{"action":' + value + b"}}"
    line = (
        b'{"jsonrpc":"2.0","id":%d,' % number + body + b"}"
        if place == "before"
        else b'{"jsonrpc":"2.0",' + body + b',"id":%d}' % number
    )

    answer = server.ask(line)

    assert answer["id"] == number
    details = refusal(answer["result"])
    assert details["constraint"] == "max_length"
    assert details["received"] == f"{len(line) + 1} bytes"
    health(server)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not JSON", -32700),
        (b"\xff\xfe\x00", -32700),
        (b"[" * 100_000, -32700),
        (b"{", -32700),
        (b'"text"', -32600),
        (b"5", -32600),
        (b"null", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","method":"x"}', -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"server"}}]', -32600),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_line_whose_id_nobody_can_know_is_answered_without_one(server, line, code):
    answer = server.ask(line)

    assert answer["id"] is None
    assert answer["error"]["code"] == code
    wire = answer["error"]["data"]
    assert wire["success"] is False
    assert wire["data"]["details"]["field"] == "message"
    assert len(json.dumps(answer)) < 4096
    health(server)


@pytest.mark.parametrize("identifier", [b"1.5", b"true", b"null", b"[]", b"{}"])
def test_a_call_whose_id_is_none_that_json_rpc_knows_is_answered_all_the_same(server, identifier):
    """A request that is taken for a notification is a client that waits for ever."""
    number = server.next_id()
    line = b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"server","arguments":{}}}'

    server.send(line % identifier)
    server.send(tool_call(number, b'{"action":"health"}'))

    answer = server.receive()
    assert answer["id"] != number, "only the next call was answered"
    assert answer["id"] is None
    assert answer["error"]["code"] == -32600
    assert server.receive()["id"] == number


@pytest.mark.parametrize("line", [b"", b"   ", b"\r", b"\n\n\n"])
def test_empty_lines_are_passed_over(server, line):
    server.send(line)

    health(server)


def test_an_unknown_method_is_an_error_of_the_protocol(server):
    assert server.request("no/such/method", {})["error"]["code"] == -32601
    health(server)


def test_a_message_that_comes_in_pieces_is_one_message(server):
    number = server.next_id()
    line = tool_call(number, b'{"action":"health"}')

    server.process.stdin.write(line[:30])
    server.process.stdin.flush()
    server.send(line[30:])

    assert server.receive()["id"] == number


# the process


def test_a_closed_input_ends_the_server_with_0(start_server):
    server = start_server().shake_hands()

    assert server.close() == 0


def test_an_input_that_ends_in_the_middle_of_a_line_ends_the_server_with_0(start_server):
    server = start_server().shake_hands()
    server.process.stdin.write(b'{"jsonrpc":"2.0","id":5,"meth')

    assert server.close() == 0


def test_calls_sent_together_are_each_answered_under_their_own_id(server):
    numbers = [server.next_id() for _ in range(50)]

    server.send(b"\n".join(tool_call(number, b'{"action":"health"}') for number in numbers))

    answers = [server.receive() for _ in numbers]
    assert sorted(answer["id"] for answer in answers) == numbers
    ids = {answer["result"]["structuredContent"]["meta"]["request_id"] for answer in answers}
    assert len(ids) == 50


@shows("000.meta-key.request_id-in-logs")
@shows("003.best-practice.request-id")
def test_the_log_is_json_lines_on_stderr_with_the_request_id_of_each_answer(start_server):
    server = start_server().shake_hands("the client")
    good = health(server)
    bad = server.call("server", {"action": "helth"})["structuredContent"]
    unreadable = server.ask(b"not JSON")["error"]["data"]
    assert server.close() == 0

    calls = {line["request_id"]: line for line in server.logs() if line["message"] == "call"}

    assert [calls[answer["meta"]["request_id"]]["outcome"] for answer in (good, bad, unreadable)] == [
        "success",
        "VALIDATION_ERROR",
        "INVALID_FORMAT",
    ]
    logged = calls[good["meta"]["request_id"]]
    assert (logged["operation"], logged["client"], logged["level"]) == ("server.health", "the client", "info")
    assert {"time", "logger", "duration_ms"} <= logged.keys()


def test_a_log_level_keeps_calls_out_of_the_log(start_server):
    server = start_server("--log-level", "error").shake_hands()
    health(server)
    assert server.close() == 0

    assert server.logs() == []


def test_a_client_that_never_reads_the_log_does_not_stop_the_server(start_server):
    """Far more than a pipe holds: whoever waits for the log to be read would stop here for ever."""
    server = start_server(stderr=subprocess.PIPE).shake_hands("a client with a long name" * 8)
    batch = b"\n".join(tool_call(number, b'{"action":"health"}') for number in range(1, 101))

    for _ in range(30):
        server.send(batch)
        for _ in range(100):
            assert server.receive()["result"]["isError"] is False

    assert server.close() == 0


STRAY = """
import os, sys
from foundry_mcp.operations import server as operations
from foundry_mcp import server

real = os.access

def noisy(*arguments):
    print("a stray print", flush=True)
    os.write(1, b"a stray write\\n")
    os.system("echo a stray child")
    assert sys.stdin.read() == "", "the operation read the protocol"
    return real(*arguments)

operations.os.access = noisy
server.main([])
"""


def test_what_an_operation_prints_never_reaches_the_protocol(start_server):
    server = start_server(command=("-c", STRAY)).shake_hands()

    health(server)  # every line of stdout is read as a message, so a stray one would fail here
    health(server)
    assert server.close() == 0

    said = server.stderr_file.read_text(encoding="utf-8")
    for stray in ("a stray print", "a stray write", "a stray child"):
        assert stray in said


BROKEN = """
from foundry_mcp.operations import server as operations
from foundry_mcp import server

def broken(*_):
    raise RuntimeError("the secret of the inside")

operations.os.access = broken
server.main([])
"""


@shows("000.error-cause.INTERNAL_ERROR")
def test_an_unexpected_error_is_an_answer_and_its_trace_is_in_the_log(start_server):
    server = start_server(command=("-c", BROKEN)).shake_hands()

    result = server.call("server", HEALTH)
    server.call("server", {"action": "flags"})
    assert server.close() == 0

    wire = result["structuredContent"]
    assert result["isError"] is True
    assert wire["data"]["error_code"] == "INTERNAL_ERROR"
    assert "secret" not in json.dumps(result)
    (trace,) = [line for line in server.logs() if "trace" in line]
    assert trace["request_id"] == wire["meta"]["request_id"]
    assert "the secret of the inside" in trace["trace"]


SLOW = """
from foundry_mcp.operations import server as operations
from foundry_mcp import server

real = operations.os.access

def stuck(*arguments):
    operations.os.access = real
    with open("gate", encoding="utf-8") as gate:  # opens when somebody writes to it
        gate.read()
    return real(*arguments)

operations.os.access = stuck
server.main([])
"""


@pytest.fixture
def stuck_server(start_server, workspace):
    """A server whose health check stands at a gate, with a deadline that is soon over."""
    os.mkfifo(workspace / "gate")
    (workspace / "foundry-mcp.toml").write_text("deadline_seconds = 0.5\n", encoding="utf-8")
    return start_server(command=("-c", SLOW)).shake_hands()


def test_a_call_past_its_deadline_is_answered_and_the_next_one_is_served(stuck_server, workspace):
    result = stuck_server.call("server", HEALTH)

    assert result["isError"] is True
    assert result["structuredContent"]["data"]["error_code"] == "DEADLINE_EXCEEDED"
    assert stuck_server.call("server", {"action": "flags"})["isError"] is False
    (workspace / "gate").write_text("go on", encoding="utf-8")
    assert stuck_server.close() == 0


def test_a_call_that_never_ends_does_not_keep_the_server_alive_when_its_client_has_gone(stuck_server):
    stuck_server.call("server", HEALTH)

    assert stuck_server.close(patience=10) == 0


@shows("000.meta-key.rate_limit-when-throttled")
def test_the_limits_of_the_settings_file_hold_for_the_server(start_server, workspace):
    (workspace / "foundry-mcp.toml").write_text('[rate_limits]\nserver = "2/hour"\n', encoding="utf-8")
    server = start_server().shake_hands()

    answers = [server.call("server", HEALTH)["structuredContent"] for _ in range(3)]

    assert [answer["meta"]["rate_limit"]["remaining"] for answer in answers] == [1, 0, 0]
    assert answers[2]["data"]["error_code"] == "RATE_LIMIT_EXCEEDED"
    assert answers[2]["data"]["retry_after_seconds"] > 0


@shows("003.flag.disabled")
def test_the_contract_flag_switches_the_form_of_the_whole_server(start_server):
    server = start_server("--flag", "response_contract_v2=off").shake_hands()

    wire = server.call("server", HEALTH)["structuredContent"]

    assert wire["_meta"]["version"] == "response-v1"
    assert wire["status"] == "ok"


def test_an_unknown_flag_in_the_environment_is_a_warning_in_the_log(start_server):
    server = start_server(environment={"FOUNDRY_FLAG_RESPONSE_CONTRACT_V3": "on"}).shake_hands()
    health(server)
    assert server.close() == 0

    (warning,) = [line for line in server.logs() if line["level"] == "warning"]
    assert "did you mean 'response_contract_v2'?" in warning["message"]


@pytest.mark.parametrize(
    ("options", "settings", "said"),
    [
        (["--flag", "response_contract_v3"], "", "Did you mean 'response_contract_v2'?"),
        (["--flag", "response_contract_v2=perhaps"], "", "must be on or off"),
        (["--log-level", "loud"], "", "unknown log level 'loud'"),
        (["--workspace", "/nonexistent"], "", "Workspace not found"),
        (["--workspace", "x" * 5000], "", "Workspace not found"),
        ([], "nonsense", "foundry-mcp.toml is not understood"),
        ([], '[rate_limits]\nserver = "often"\n', "rate limit 'often' is not understood"),
        ([], 'rate_limit_storage = "nowhere://"\n[rate_limits]\nserver = "1/hour"\n', "rate_limit_storage"),
        ([], 'log_level = "loud"\n', "unknown log level 'loud'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_server_that_cannot_start_says_why_and_nothing_else(
    workspace, environment, options, settings, said
):
    (workspace / "foundry-mcp.toml").write_text(settings, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "foundry_mcp", *options],
        cwd=workspace,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )

    text = done.stderr.decode()
    assert done.returncode not in {0, -9}
    assert done.stdout == b""
    assert said in text[:1000]
    assert "Traceback" not in text[:1000]
    assert os.linesep * 3 not in text
