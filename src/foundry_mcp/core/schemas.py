"""JSON Schema 2020-12 and TypeScript for each wire form, made from the types in `wire` and the knowledge models."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["SCHEMA_NAMES", "json_schema", "typescript"]

SCHEMA_NAMES = ("response-v2", "response-v1", "knowledge")
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TITLES = {
    "response-v2": "An answer in response-v2",
    "response-v1": "An answer in the legacy flat form",
    "knowledge": "An answer in knowledge 1.0.0",
}
_UNIONS = {"response-v2": "ResponseV2", "response-v1": "ResponseV1", "knowledge": "KnowledgeResponse"}


def json_schema(name: str) -> dict[str, Any]:
    """The schema of one wire form: success and failure as a discriminated union."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - 100 ms that only who asks for a schema pays

    definitions: dict[str, Any] = {}
    alternatives = []
    for member in _members(name):
        schema = TypeAdapter[Any](member).json_schema(ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs", {})
        alternatives.append({"$ref": f"#/$defs/{schema['title']}"})
        definitions[schema["title"]] = schema
    for definition in definitions.values():
        _drop_titles(definition)
    return {
        "$schema": DIALECT,
        "$id": f"urn:foundry-mcp:schema:{name}",
        "title": _TITLES[name],
        "oneOf": alternatives,
        "$defs": dict(sorted(definitions.items())),
    }


def typescript() -> str:
    """All wire forms as TypeScript declarations; `success` (or `status`) tells a success from a failure."""
    parts = ["// Generated from src/foundry_mcp/core/wire.py by `make generate`. Do not edit.\n"]
    seen: set[str] = set()
    for name in SCHEMA_NAMES:
        schema = json_schema(name)
        for title, definition in schema["$defs"].items():
            if title not in seen:
                parts.append("\n".join(_interface(title, definition)) + "\n")
            seen.add(title)
        union = " | ".join(_reference(member) for member in schema["oneOf"])
        parts.append(f"/** {schema['title']}. */\nexport type {_UNIONS[name]} = {union};\n")
    return "\n".join(parts)


def _members(name: str) -> tuple[Any, Any]:
    from foundry_mcp.core import wire  # noqa: PLC0415 - it needs pydantic, see above
    from foundry_mcp.core.knowledge import models  # noqa: PLC0415 - likewise

    return {
        "response-v2": (wire.Success, wire.Failure),
        "response-v1": (wire.LegacySuccess, wire.LegacyFailure),
        "knowledge": (models.KnowledgeSuccess, models.KnowledgeFailure),
    }[name]


def _drop_titles(schema: Any) -> None:
    """A title that repeats the key it stands under tells nobody anything."""
    if isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for value in schema.values():
            _drop_titles(value)
    elif isinstance(schema, list):
        for value in schema:
            _drop_titles(value)


def _interface(title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if description := schema.get("description"):
        yield f"/** {description} */"
    yield f"export interface {title} {{"
    required = set(schema.get("required", ()))
    for key, value in schema["properties"].items():
        if description := value.get("description"):
            yield f"  /** {description}. */"
        yield f"  {key}{'' if key in required else '?'}: {_type(value)};"
    if schema.get("additionalProperties", True) is not False:
        yield "  [key: string]: unknown;"
    yield "}"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _reference(schema)
    if "const" in schema:
        return _literal(schema["const"])
    if "enum" in schema:
        return " | ".join(_literal(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(_type(option) for option in schema["anyOf"])
    match schema.get("type"):
        case "string" | "boolean" | "null" as plain:
            return str(plain)
        case "integer" | "number":
            return "number"
        case "array":
            return f"Array<{_type(schema.get('items', {}))}>"
        case "object":
            return (
                f"Record<string, {_type(schema.get('additionalProperties') or {})}>"
                if schema.get("additionalProperties") is not True
                else "Record<string, unknown>"
            )
        case _:
            return "unknown"


def _reference(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[-1]


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
