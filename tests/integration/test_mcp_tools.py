"""Every tool through the official client, in both eras of the protocol: the envelope is what arrives."""

import json
import sys
from functools import cache
from typing import Any

import anyio
import jsonschema
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from foundry_mcp.core.schemas import json_schema
from foundry_mcp.operations import REGISTRY

shows = pytest.mark.requirement

both_eras = pytest.mark.parametrize("mode", ["legacy", "auto"])
KEY = "foundry-mcp/response_contract"
FORMS = {"v2": "response-v2", "v1": "response-v1", "knowledge": "knowledge"}

# Each operation without arguments, a few with some, and each with a mistake in them.
BARE: list[tuple[Any, tuple[str, dict[str, Any]]]] = [
    (declared, (declared.tool, {"action": declared.action} if declared.action else {}))
    for declared in REGISTRY
]
CALLS = [call for _, call in BARE]
MORE_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("server", {"action": "capability-negotiate", "client_capabilities": {"response_contract": "v2"}}),
    ("server", {"action": "tools", "tool": "server", "limit": 2}),
    ("server", {"action": "schema", "form": "typescript"}),
    ("server", {"action": "flags", "name": "response_contract_v2"}),
    ("server", {"action": "metrics", "format": "prometheus"}),
]
MISTAKES = [(tool, {**arguments, "no_such_parameter": 1}) for tool, arguments in CALLS]


@cache
def validator(form: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema(form))


@pytest.fixture
def converse(workspace, environment):
    """Connect, talk, and hang up; what `talk` returns is what the test looks at."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "foundry_mcp", "--log-level", "error"],
        cwd=workspace,
        env=environment,
    )

    def converse(mode, talk):
        async def main():
            with anyio.fail_after(60):
                async with Client(stdio_client(parameters), mode=mode) as client:
                    return await talk(client)

        return anyio.run(main)

    return converse


def check(result, form="response-v2"):
    """One answer, as every client must be able to read it."""
    wire = result.structured_content
    errors = [error.message for error in validator(form).iter_errors(wire)]
    assert not errors
    (content,) = result.content
    assert content.type == "text"
    assert content.text == json.dumps(wire, separators=(",", ":"), ensure_ascii=False)
    return wire


@shows("000.testing.integration")
@shows("002.testing.integration")
@shows("001.rule.all-doors")
@both_eras
def test_every_tool_and_action_answers_in_the_envelope(converse, mode):
    async def talk(client):
        return [(needed, call, await client.call_tool(*call)) for needed, call in calls]

    # content get needs a hash or an id: which of them is up to the caller, so no schema requires either.
    either = {"content.get": ["hash"]}
    calls = [(either.get(declared.name) or declared.schema.get("required"), call) for declared, call in BARE]
    calls += [(None, call) for call in MORE_CALLS]
    for needed, call, result in converse(mode, talk):
        wire = check(result)
        assert list(wire) == ["success", "data", "error", "meta"], call
        if needed:
            assert wire["data"]["details"]["field"] == needed[0]
        assert wire["success"] is not bool(needed), (call, wire["error"])
        assert wire["meta"]["version"] == "response-v2"
        assert wire["meta"]["request_id"].startswith("req_")
        assert wire["meta"]["telemetry"]["duration_ms"] > 0
        assert result.is_error is not wire["success"]


@both_eras
def test_every_tool_and_action_answers_a_mistake_in_the_envelope(converse, mode):
    async def talk(client):
        return [(call, await client.call_tool(*call)) for call in MISTAKES]

    for call, result in converse(mode, talk):
        wire = check(result)
        assert wire["success"] is False, call
        assert wire["data"]["error_code"] == "VALIDATION_ERROR"
        assert wire["data"]["details"]["field"] == "no_such_parameter"
        assert wire["meta"]["version"] == "response-v2"
        assert result.is_error is True


@both_eras
def test_the_output_schema_takes_every_answer_of_every_contract(converse, mode):
    """A client that validates must see an error as the error it is, whatever form it asked for."""

    async def talk(client):
        tools = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        answers = [
            (tools[tool], form, await client.call_tool(tool, arguments, meta={KEY: name}))
            for name, form in FORMS.items()
            for tool, arguments in (MORE_CALLS[0], MISTAKES[0])
        ]
        return answers, tools

    answers, tools = converse(mode, talk)
    for schema, form, result in answers:
        jsonschema.validate(result.structured_content, schema, jsonschema.Draft202012Validator)
        check(result, form)
    for schema in tools.values():
        assert schema["type"] == "object"
        for nonsense in ("{}", '{"success": true}', '{"results": []}'):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(json.loads(nonsense), schema, jsonschema.Draft202012Validator)


@shows("002.rollout.flag")
@shows("003.negotiation.server-tool")
def test_a_contract_agreed_on_lasts_as_long_as_the_connection(converse):
    async def talk(client):
        async def negotiate(wanted):
            arguments = {
                "action": "capability-negotiate",
                "client_capabilities": {"response_contract": wanted},
            }
            return await client.call_tool("server", arguments)

        health = {"action": "health"}
        before = await client.call_tool("server", health)
        agreed = await negotiate("v1")
        after = await client.call_tool("server", health)
        mistaken = await client.call_tool(*MISTAKES[0])
        once = await client.call_tool("server", health, meta={KEY: "v2"})
        still = await client.call_tool("server", health)
        first_known = await negotiate(["v9", "knowledge", "v2"])
        refused = await negotiate("v9")
        back = await negotiate("v2")
        return before, agreed, after, mistaken, once, still, first_known, refused, back

    answers = converse("legacy", talk)

    before, agreed, after, mistaken, once, still, first_known, refused, back = answers
    check(before)
    agreement = check(agreed, "response-v1")
    assert agreement["scope"] == "connection"
    assert agreement["response_contract"] == "response-v1"
    check(after, "response-v1")
    assert check(mistaken, "response-v1")["success"] is False
    check(once)
    check(still, "response-v1")
    assert check(first_known, "knowledge")["results"]["response_contract"] == "knowledge"
    assert check(refused, "knowledge")["_metadata"]["status"] == "error"
    check(back)


def test_a_new_connection_knows_nothing_of_what_an_earlier_one_agreed_on(converse):
    async def agree(client):
        wanted = {"action": "capability-negotiate", "client_capabilities": {"response_contract": "v1"}}
        return await client.call_tool("server", wanted)

    async def ask(client):
        return await client.call_tool("server", {"action": "health"})

    check(converse("legacy", agree), "response-v1")
    check(converse("legacy", ask))


def test_without_a_connection_an_agreement_holds_for_its_own_request_only(converse):
    async def talk(client):
        wanted = {"action": "capability-negotiate", "client_capabilities": {"response_contract": "v1"}}
        agreed = await client.call_tool("server", wanted)
        return agreed, await client.call_tool("server", {"action": "health"})

    agreed, after = converse("auto", talk)

    agreement = check(agreed, "response-v1")
    assert agreement["scope"] == "request"
    assert agreement["contract_meta_key"] == KEY
    check(after)


@shows("002.rollout.flag")
@both_eras
def test_a_request_can_name_its_contract_in_its_own_meta(converse, mode):
    async def talk(client):
        health = {"action": "health"}
        asked = [
            (form, await client.call_tool("server", health, meta={KEY: name})) for name, form in FORMS.items()
        ]
        return asked, await client.call_tool("server", health)

    asked, after = converse(mode, talk)

    for form, result in asked:
        check(result, form)
    check(after)


@both_eras
def test_the_list_of_tools_is_the_same_every_time_and_tells_the_truth(converse, mode):
    async def talk(client):
        return [tool.model_dump_json() for tool in (await client.list_tools()).tools]

    first, second = converse(mode, talk), converse(mode, talk)

    assert first == second
    tools = [json.loads(tool) for tool in first]
    assert [tool["name"] for tool in tools] == list(REGISTRY.tools)
    for tool in tools:
        operations = list(REGISTRY.tools[tool["name"]].values())
        schema = tool["input_schema"]
        assert schema["additionalProperties"] is False
        assert schema["properties"]["action"]["enum"] == [declared.action for declared in operations]
        for declared in operations:
            for name, entry in declared.schema["properties"].items():
                meant = {key: value for key, value in entry.items() if key != "default"}
                assert {k: v for k, v in schema["properties"][name].items() if k != "default"} == meant
            assert declared.summary in tool["description"]
        assert tool["annotations"]["read_only_hint"] is not any(declared.writes for declared in operations)


def test_the_pages_of_a_list_are_walked_to_the_end_without_a_gap(converse):
    async def talk(client):
        names, cursor = [], None
        while True:
            arguments = {"action": "tools", "limit": 5, "cursor": cursor}
            wire = check(await client.call_tool("server", arguments))
            names += [(row["tool"], row["action"]) for row in wire["data"]["operations"]]
            pagination = wire["meta"]["pagination"]
            if not pagination["has_more"]:
                return names, wire["data"]["total_count"]
            cursor = pagination["cursor"]

    names, total = converse("auto", talk)

    assert sorted(names) == sorted((declared.tool, declared.action) for declared in REGISTRY)
    assert total == len(names) == len(set(names))
