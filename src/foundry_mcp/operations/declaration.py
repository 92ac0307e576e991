"""An operation is written once: a function whose signature is its parameters.

    @operation("task", "complete", cli="tasks complete", writes=True, example="my-spec task-1-2")
    def complete(call: Call, spec_id: SpecId, task_id: TaskId, *, note: Note = "") -> Answer:
        "Mark a task as done."

The MCP tool and its input schema, the CLI command and its help, the reference page and the TypeScript types
are all derived from that. Positional parameters are positional on the command line, the others are options.
"""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from foundry_mcp.core.archive import Archive
from foundry_mcp.core.contracts import Contract
from foundry_mcp.core.errors import (
    FoundryError,
    ValidationError,
    missing,
    nearest,
    shorten,
    unknown_name,
    validation,
)
from foundry_mcp.core.flags import Flags
from foundry_mcp.core.metrics import Metrics
from foundry_mcp.core.responses import warning
from foundry_mcp.core.settings import Settings
from foundry_mcp.core.specs.store import SpecStore
from foundry_mcp.operations.parameters import DryRun, IdempotencyKey, MaxTokens, Revision

__all__ = [
    "REGISTRY",
    "Answer",
    "Call",
    "Operation",
    "Registry",
    "Session",
    "Surroundings",
    "operation",
]

IDEMPOTENCY = "idempotency_key"
DRY_RUN = "dry_run"
EXPECTED_REVISION = "expected_revision"
MAX_TOKENS = "max_tokens"
"""What every call or every write takes, so no operation declares it: it reaches the operation through its call."""


@dataclass(slots=True)
class Session:
    """What lasts longer than a call: a connection, or a single request where there is no connection."""

    client: str = "local"
    contract: Contract | None = None
    lasting: bool = True
    """False on transports without a connection, where a client states its contract with each request."""


@dataclass
class Surroundings:
    """What every call of a process shares."""

    workspace: Path
    settings: Settings
    flags: Flags
    registry: "Registry"
    metrics: Metrics = field(default_factory=Metrics)
    started: float = field(default_factory=time.monotonic)

    @cached_property
    def specs(self) -> SpecStore:
        return SpecStore(self.workspace)

    @cached_property
    def archive(self) -> Archive:
        return Archive(self.workspace)

    @property
    def default_contract(self) -> Contract:
        return Contract.V2 if self.flags.enabled("response_contract_v2") else Contract.V1


@dataclass(slots=True)
class Call:
    """One call, as an operation sees it."""

    request_id: str
    session: Session
    surroundings: Surroundings
    dry_run: bool = False
    """Show what a write would change, and write nothing."""
    max_tokens: int | None = None
    """How long the answer may be; none says no limit."""
    expected_revision: int | None = None
    """Write only if what is there is still at this revision."""
    warnings: list[dict[str, Any]] = field(default_factory=list)

    def warn(self, code: str, message: str, **context: Any) -> None:
        self.warnings.append(warning(code, message, **context))


@dataclass(slots=True)
class Answer:
    """A payload with the metadata that only the operation knows. A bare dict is an Answer without any."""

    data: dict[str, Any]
    pagination: dict[str, Any] | None = None
    telemetry: dict[str, Any] | None = None


Run = Callable[..., Answer | dict[str, Any]]


@dataclass(frozen=True)
class Operation:
    tool: str
    action: str | None
    run: Run
    cli: str
    example: str
    writes: bool
    revises: bool
    destructive: bool
    flag: str | None
    contract: Contract

    @property
    def name(self) -> str:
        return f"{self.tool}.{self.action}" if self.action else self.tool

    @property
    def summary(self) -> str:
        return (self.run.__doc__ or "").strip().split("\n")[0]

    @cached_property
    def parameters(self) -> type[msgspec.Struct]:
        """The parameters as a struct; built on first use, because a CLI call uses one operation of many."""
        hints = get_type_hints(self.run, include_extras=True)
        fields: list[Any] = []
        for name, parameter in self._signature.items():
            default = () if parameter.default is parameter.empty else (parameter.default,)
            fields.append((name, hints[name], *default))
        if self.revises:
            fields.append((EXPECTED_REVISION, Revision | None, None))
        if self.writes:
            fields += [(DRY_RUN, DryRun, False), (IDEMPOTENCY, IdempotencyKey | None, None)]
        fields.append((MAX_TOKENS, MaxTokens | None, None))
        return msgspec.defstruct(
            f"{self.run.__name__}_parameters", fields, kw_only=True, forbid_unknown_fields=True
        )

    @cached_property
    def positional(self) -> tuple[str, ...]:
        """The parameters that stand without a name on the command line."""
        return tuple(n for n, p in self._signature.items() if p.kind is p.POSITIONAL_OR_KEYWORD)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the parameters, each with its limits and description."""
        (_,), definitions = msgspec.json.schema_components([self.parameters], ref_template="#/$defs/{name}")
        schema: dict[str, Any] = definitions[self.parameters.__name__]
        del schema["title"]
        schema["properties"] = {name: _present(entry) for name, entry in schema["properties"].items()}
        return schema

    @cached_property
    def _signature(self) -> Mapping[str, inspect.Parameter]:
        signature = dict(inspect.signature(self.run).parameters)
        del signature[next(iter(signature))]  # the call itself
        return signature

    def parse(self, arguments: Mapping[str, Any], *, from_text: bool = False) -> msgspec.Struct:
        """The parameters, or a ValidationError that names the field, the rule and what came.

        A null is an absent parameter: clients in loops send `cursor: null` the first time. From a command
        line everything is text, so `from_text` lets "50" be a number.
        """
        given = {key: value for key, value in arguments.items() if value is not None}
        for key, value in given.items():
            _require_text(key, value)
        try:
            return msgspec.convert(given, self.parameters, strict=not from_text)
        except msgspec.ValidationError as error:
            raise self._explain(given, from_text=from_text) from error

    def _explain(self, given: Mapping[str, Any], *, from_text: bool) -> FoundryError:
        fields = {info.name: info for info in msgspec.structs.fields(self.parameters)}
        for key in given:
            if key not in fields:
                return self._unknown(key, given[key], fields)
        for name, info in fields.items():
            if info.required and name not in given:
                return missing(name)
        for name, value in given.items():
            try:
                msgspec.convert(value, fields[name].type, strict=not from_text)
            except msgspec.ValidationError as error:
                return _explain_value(name, value, str(error), self.schema["properties"].get(name, {}))
        raise AssertionError("parameters that fail together pass one by one")

    def _unknown(self, key: str, value: Any, fields: Mapping[str, Any]) -> ValidationError:
        guess = nearest(key, fields)
        hint = f"Did you mean '{guess[0]}'? " if guess else ""
        allowed = list(fields)
        return validation(
            shorten(key),
            "known_parameter",
            f"unknown parameter '{shorten(key)}' for {self.name}",
            received=value,
            remediation=f"{hint}{self.name} takes: {', '.join(allowed)}",
            allowed=allowed,
            **({"nearest": guess[0]} if guess else {}),
        )


def _present(entry: dict[str, Any]) -> dict[str, Any]:
    """A parameter's schema when it is there: that it may be left out needs no null beside it."""
    options = [option for option in entry.get("anyOf", ()) if option != {"type": "null"}]
    rest = {
        key: value for key, value in entry.items() if key != "anyOf" and (key, value) != ("default", None)
    }
    return (
        {**options[0], **rest} if len(options) == 1 else {**rest, **({"anyOf": options} if options else {})}
    )


# How msgspec words a broken limit, what JSON Schema calls that limit, and what our answers call it.
_LIMITS = (
    ("matching regex", "pattern", "pattern"),
    ("of length >=", "minLength", "min_length"),
    ("of length <=", "maxLength", "max_length"),
    ("of length >=", "minItems", "min_items"),
    ("of length <=", "maxItems", "max_items"),
    ("` >=", "minimum", "minimum"),
    ("` >", "exclusiveMinimum", "minimum"),
    ("` <=", "maximum", "maximum"),
    ("` <", "exclusiveMaximum", "maximum"),
)


def _explain_value(name: str, value: Any, said: str, schema: Mapping[str, Any]) -> ValidationError:
    """Msgspec says what it expected; the schema says which limit of ours that was."""
    expected, _, path = said.partition(" - at `$")
    place = name + path.rstrip("`")
    limits = schema.get("items", {}) if path.startswith("[") else schema
    if expected.startswith("Invalid enum value") and "enum" in limits:
        return unknown_name(name, value, map(str, limits["enum"]), field=place)
    message = f"{place}: {expected[0].lower()}{shorten(expected[1:], 120)}"
    for wording, keyword, constraint in _LIMITS:
        if wording in expected and keyword in limits:
            bound = limits[keyword]
            return validation(
                place,
                constraint,
                message,
                received=value,
                remediation=f"{place} must satisfy {constraint} {bound}",
                **{constraint: bound},
            )
    return validation(place, "type", message, received=value, code="INVALID_FORMAT")


def _require_text(name: str, value: Any) -> None:
    """A shell hands over bytes that are no UTF-8 as half characters, which no answer could send back."""
    for text in (name, *(value if isinstance(value, (list, tuple)) else (value,))):
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                shown = shorten(name)
                raise validation(
                    shown, "utf-8", f"{shown} is not valid UTF-8 text", received=text, code="INVALID_FORMAT"
                ) from None


class Registry:
    """All operations, in the order they were declared."""

    def __init__(self) -> None:
        self.tools: dict[str, dict[str | None, Operation]] = {}

    def add(self, declared: Operation) -> None:
        actions = self.tools.setdefault(declared.tool, {})
        if declared.action in actions:
            raise ValueError(f"{declared.name} is declared twice")
        actions[declared.action] = declared

    def __iter__(self) -> Iterator[Operation]:
        return (declared for actions in self.tools.values() for declared in actions.values())

    def find(self, tool: str, action: Any = None) -> Operation:
        """The operation a client means, or an answer that says which there are."""
        actions = self.tools.get(tool)
        if actions is None:
            raise unknown_name("tool", tool, self.tools, field="name")
        if None in actions:
            return actions[None]
        names = [str(name) for name in actions]
        if action is None:
            raise missing("action", remediation=f"Say which action of {tool}: {', '.join(names)}")
        if action not in names:
            raise unknown_name(f"action of {tool}", action, names, field="action")
        return actions[action]

    def operation(
        self,
        tool: str,
        action: str | None = None,
        *,
        cli: str,
        example: str = "",
        writes: bool = False,
        revises: bool = False,
        destructive: bool = False,
        flag: str | None = None,
        contract: Contract = Contract.V2,
    ) -> Callable[[Run], Run]:
        """Declare the decorated function as an operation.

        One that `writes` takes a dry run and an idempotency key; one that `revises` something that has
        revisions takes the expected one too.
        """

        def declare(run: Run) -> Run:
            self.add(
                Operation(
                    tool, action, run, cli, example, writes or revises, revises, destructive, flag, contract
                )
            )
            return run

        return declare


REGISTRY = Registry()
operation = REGISTRY.operation
