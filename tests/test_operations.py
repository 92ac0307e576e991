"""An operation is declared once: its signature is its parameters, its limits and its answers to bad input."""

import json
import shlex
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from foundry_mcp.cli.commands import run
from foundry_mcp.core.errors import ValidationError
from foundry_mcp.operations import REGISTRY
from foundry_mcp.operations.declaration import Call, Registry
from foundry_mcp.runtime import Request
from foundry_mcp.server import Door

Slug = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]*$", max_length=20, description="A short name")]
Title = Annotated[str, Meta(min_length=3, max_length=10)]
Count = Annotated[int, Meta(ge=1, le=500)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Tag = Annotated[str, Meta(max_length=5)]
Tags = Annotated[list[Tag], Meta(min_length=1, max_length=3)]


def declare(registry: Registry, **settings: Any) -> Any:
    @registry.operation("thing", "make", cli="things make", **settings)
    def make(
        call: Call,
        name: Slug,
        title: Title = "untitled",
        *,
        count: Count = 50,
        share: Share | None = None,
        kind: Literal["plain", "fancy"] = "plain",
        tags: Tags | None = None,
        extra: dict[str, Any] | None = None,
        loud: bool = False,
    ) -> dict[str, Any]:
        """Make a thing.

        More words that are nobody's summary.
        """
        return {}

    return registry.tools["thing"]["make"]


@pytest.fixture
def make():
    return declare(Registry())


def refusal(operation, arguments, **settings):
    with pytest.raises(ValidationError) as refused:
        operation.parse(arguments, **settings)
    return refused.value


# what is derived from the signature


def test_the_parameters_are_those_of_the_signature(make):
    assert list(make.schema["properties"]) == [
        "name",
        "title",
        "count",
        "share",
        "kind",
        "tags",
        "extra",
        "loud",
        "max_tokens",
    ]
    assert make.schema["required"] == ["name"]
    assert make.schema["properties"]["name"] == {
        "type": "string",
        "description": "A short name",
        "maxLength": 20,
        "pattern": "^[a-z][a-z0-9-]*$",
    }
    assert make.schema["properties"]["count"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 500,
        "default": 50,
    }
    assert make.positional == ("name", "title")


def test_the_summary_is_the_first_line_of_the_docstring(make):
    assert make.summary == "Make a thing."
    assert make.name == "thing.make"


def test_parameters_left_out_have_their_defaults(make):
    parsed = make.parse({"name": "a"})

    assert (parsed.title, parsed.count, parsed.share, parsed.kind, parsed.loud) == (
        "untitled",
        50,
        None,
        "plain",
        False,
    )


@pytest.mark.parametrize("name", ["title", "count", "share", "kind", "tags", "extra", "loud"])
def test_a_null_is_an_absent_parameter(make, name):
    assert make.parse({"name": "a", name: None}) == make.parse({"name": "a"})


def test_a_null_in_place_of_a_required_parameter_is_a_missing_one(make):
    assert refusal(make, {"name": None}).code == "MISSING_REQUIRED"


@pytest.mark.parametrize("writes", [True, False])
def test_every_write_takes_an_idempotency_key_and_no_read_does(writes):
    operation = declare(Registry(), writes=writes)

    assert ("idempotency_key" in operation.schema["properties"]) is writes


# what is refused


def test_an_unknown_parameter_is_refused_with_the_nearest_known_name(make):
    refused = refusal(make, {"name": "a", "cuont": 5})

    assert refused.details["field"] == "cuont"
    assert refused.details["constraint"] == "known_parameter"
    assert refused.details["nearest"] == "count"
    assert refused.details["received"] == 5
    assert "Did you mean 'count'?" in refused.remediation


def test_a_missing_parameter_is_refused_by_name(make):
    refused = refusal(make, {})

    assert refused.code == "MISSING_REQUIRED"
    assert refused.details == {"field": "name", "constraint": "required", "received": None}


def test_an_operation_without_parameters_of_its_own_takes_only_what_every_call_takes():
    registry = Registry()

    @registry.operation("bare", cli="bare")
    def bare(call: Call) -> dict[str, Any]:
        """Take nothing."""
        return {}

    assert refusal(registry.tools["bare"][None], {"x": 1}).remediation == "bare takes: max_tokens"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 5),
        ("name", ["a"]),
        ("count", "50"),
        ("count", 1.5),
        ("count", True),
        ("share", "half"),
        ("kind", 7),
        ("tags", "a"),
        ("extra", []),
        ("extra", "{}"),
        ("loud", "yes"),
        ("loud", 1),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(make, field, value):
    refused = refusal(make, {"name": "a", field: value})

    assert refused.code == "INVALID_FORMAT"
    assert refused.details["field"] == field
    assert refused.details["constraint"] == "type"
    assert "received" in refused.details
    assert refused.message.startswith(f"Validation failed: {field}: expected")


@pytest.mark.parametrize(
    ("field", "value", "constraint", "bound"),
    [
        ("name", "No Slug", "pattern", "^[a-z][a-z0-9-]*$"),
        ("name", "a" * 21, "max_length", 20),
        ("title", "ab", "min_length", 3),
        ("title", "a" * 11, "max_length", 10),
        ("count", 0, "minimum", 1),
        ("count", 501, "maximum", 500),
        ("share", 0.0, "minimum", 0),
        ("share", 1.0, "maximum", 1),
        ("tags", [], "min_items", 1),
        ("tags", ["a"] * 4, "max_items", 3),
    ],
)
def test_a_broken_limit_is_named_with_its_bound(make, field, value, constraint, bound):
    refused = refusal(make, {"name": "a", field: value})

    assert refused.details["field"] == field
    assert refused.details["constraint"] == constraint
    assert refused.details[constraint] == bound
    assert refused.remediation == f"{field} must satisfy {constraint} {bound}"
    assert refused.details["received"] == (
        f"array of {len(value)} items" if isinstance(value, list) else value
    )


def test_an_item_of_a_list_is_named_by_its_place(make):
    refused = refusal(make, {"name": "a", "tags": ["a", "toolong"]})

    assert refused.details["field"] == "tags[1]"
    assert refused.details["constraint"] == "max_length"
    assert refused.details["max_length"] == 5


def test_a_value_outside_a_closed_set_is_refused_with_the_nearest_one(make):
    refused = refusal(make, {"name": "a", "kind": "fancey"})

    assert refused.details["field"] == "kind"
    assert refused.details["constraint"] == "enum"
    assert refused.details["allowed"] == ["fancy", "plain"]
    assert refused.details["nearest"] == "fancy"
    assert refused.details["received"] == "fancey"


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "A" * 1_000_000},
        {"name": "a", "title": "t" * 1_000_000},
        {"name": "a", "kind": "k" * 1_000_000},
        {"name": "a", "tags": ["t" * 1_000_000]},
        {"name": "a", "u" * 1_000_000: 1},
        {"name": "a", "unknown": "u" * 1_000_000},
        {"name": "a", "count": 10**2_000},
        {"name": "a", "extra": ["x"] * 100_000},
        {"name": "\ud800" * 1_000_000},
        {"name": "a", "\ud800" * 1_000_000: 1},
    ],
    ids=["name", "title", "kind", "tags", "key", "unknown", "number", "list", "surrogates", "surrogate key"],
)
def test_what_was_received_is_shortened_before_it_goes_back(make_bench, arguments):
    registry = Registry()
    declare(registry)

    outcome = make_bench(registry=registry).runtime.call(Request("thing", {"action": "make", **arguments}))

    assert outcome.response.data["error_type"] == "validation"
    assert len(outcome.body) < 2_000


# text of a command line


def test_from_a_command_line_text_becomes_what_the_parameter_is(make):
    parsed = make.parse(
        {"name": "a", "count": "7", "share": "0.5", "loud": "true", "tags": ["x", "1"]}, from_text=True
    )

    assert (parsed.count, parsed.share, parsed.loud, parsed.tags) == (7, 0.5, True, ["x", "1"])


def test_from_a_command_line_text_stays_text_where_text_is_wanted(make):
    assert make.parse({"name": "a", "title": "123"}, from_text=True).title == "123"


@pytest.mark.parametrize(
    ("field", "value", "constraint"),
    [("count", "many", "type"), ("count", "501", "maximum"), ("share", "", "type")],
)
def test_from_a_command_line_the_limits_hold_as_well(make, field, value, constraint):
    refused = refusal(make, {"name": "a", field: value}, from_text=True)

    assert refused.details["field"] == field
    assert refused.details["constraint"] == constraint
    assert refused.details["received"] == value


@pytest.mark.parametrize(
    "arguments",
    [{"name": "a\udcff"}, {"name": "a", "tags": ["\ud800"]}],
    ids=["text", "list"],
)
def test_half_characters_are_refused_by_name(make, arguments):
    field = list(arguments)[-1]

    refused = refusal(make, arguments)

    assert refused.code == "INVALID_FORMAT"
    assert refused.details["constraint"] == "utf-8"
    assert refused.details["field"].startswith(field)
    json.dumps(refused.details).encode("utf-8")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["name", "title", "count", "share", "kind", "tags", "loud"]) | st.text(max_size=5)


@settings(deadline=None)
@given(st.dictionaries(names, json_values, max_size=5), st.booleans())
def test_whatever_comes_is_either_taken_or_refused_by_name(arguments, from_text):
    registry = Registry()
    declare(registry)
    details: dict[str, Any] = {"field": "", "constraint": "", "received": ""}
    try:
        registry.find("thing", "make").parse(arguments, from_text=from_text)
    except ValidationError as refused:
        details = refused.details

    assert {"field", "constraint", "received"} <= details.keys()
    json.dumps(details).encode("utf-8")


# the registry


def test_an_operation_declared_twice_is_a_bug_of_its_author():
    registry = Registry()
    declare(registry)

    with pytest.raises(ValueError, match=r"thing\.make is declared twice"):
        declare(registry)


@pytest.mark.parametrize(
    ("tool", "action", "field", "nearest"),
    [
        ("thign", "make", "name", "thing"),
        ("thing", "mkae", "action", "make"),
        ("thing", 5, "action", None),
        ("thing", {}, "action", None),
        ("thing", True, "action", None),
    ],
)
def test_an_unknown_tool_or_action_is_refused_with_the_nearest_name(tool, action, field, nearest):
    registry = Registry()
    declare(registry)

    with pytest.raises(ValidationError) as refused:
        registry.find(tool, action)

    assert refused.value.details["field"] == field
    assert refused.value.details.get("nearest") == nearest


def test_a_tool_with_actions_needs_to_be_told_which():
    registry = Registry()
    declare(registry)

    with pytest.raises(ValidationError) as refused:
        registry.find("thing")

    assert refused.value.code == "MISSING_REQUIRED"
    assert refused.value.remediation == "Say which action of thing: make"


def test_operations_come_in_the_order_they_were_declared():
    registry = Registry()
    wanted = [("b", "two"), ("b", "one"), ("a", None)]
    for tool, action in wanted:
        registry.operation(tool, action, cli=f"{tool} {action}")(lambda call: {})

    assert [(operation.tool, operation.action) for operation in registry] == wanted


def test_a_tool_whose_actions_disagree_about_a_parameter_is_a_bug_of_its_author(make_bench):
    registry = Registry()
    declare(registry)

    @registry.operation("thing", "count", cli="things count")
    def count(call: Call, *, count: str = "") -> dict[str, Any]:
        """Mean something else by `count`."""
        return {}

    with pytest.raises(ValueError, match=r"thing\.count declares 'count' otherwise"):
        Door(make_bench(registry=registry).runtime).tools  # noqa: B018 - a property that is built on first use


# the operations there are


@pytest.mark.parametrize("declared", list(REGISTRY), ids=lambda declared: declared.name)
def test_every_operation_has_a_summary_and_describes_its_parameters(declared):
    assert declared.summary.endswith(".")
    assert len(declared.summary) <= 120
    for name, entry in declared.schema["properties"].items():
        described = [entry, *entry.get("anyOf", ())]
        assert any(option.get("description") for option in described), name


def test_every_operation_has_a_spelling_of_its_own_on_the_command_line():
    spellings = [declared.cli for declared in REGISTRY]

    assert len(set(spellings)) == len(spellings)
    for one in spellings:
        assert not any(other.startswith(f"{one} ") for other in spellings), f"{one} hides a longer command"


@pytest.mark.parametrize("declared", list(REGISTRY), ids=lambda declared: declared.name)
def test_the_example_of_every_operation_works(declared, workspace, monkeypatch, capfdbinary):
    """In an empty folder: an example about something that is not there yet is understood and answered."""
    monkeypatch.chdir(workspace)

    code = run([*declared.cli.split(), *shlex.split(declared.example), "--json"])

    answer = json.loads(capfdbinary.readouterr().out)
    assert code in {0, 1}, answer
    assert answer["success"] or answer["data"]["error_type"] == "not_found", answer
    assert answer["success"] or declared.tool != "server"
