"""Feature flags with a life: experimental, beta, stable, deprecated.

A flag's value comes from its default, then `foundry-mcp.toml`, then the environment (`FOUNDRY_FLAG_NAME`),
then the command line (`--flag name=off`); the last one that speaks wins, and the listing says which it was.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from foundry_mcp.core.errors import feature_disabled, nearest, unknown_name, validation

__all__ = ["FLAGS", "Flag", "Flags", "parse_flag"]

Stage = Literal["experimental", "beta", "stable", "deprecated"]
ENVIRONMENT_PREFIX = "FOUNDRY_FLAG_"

_WORDS = {
    "on": True,
    "true": True,
    "1": True,
    "yes": True,
    "off": False,
    "false": False,
    "0": False,
    "no": False,
}


class Flag(NamedTuple):
    name: str
    stage: Stage
    default: bool
    description: str


FLAGS: Mapping[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag("response_contract_v2", "stable", True, "Answer in response-v2; off means the legacy flat form"),
    )
}


class Flags:
    """The flags of this process, and where each got its value."""

    def __init__(self, known: Mapping[str, Flag] = FLAGS) -> None:
        self.known = known
        self._values: dict[str, tuple[bool, str]] = {
            name: (flag.default, "default") for name, flag in known.items()
        }
        self.unknown: dict[str, str] = {}
        """Names that a file or the environment sets and nobody knows: reported, never a reason not to start."""

    def set(self, values: Mapping[str, bool], source: str) -> None:
        for name, value in values.items():
            if name in self.known:
                self._values[name] = (value, source)
            else:
                self.unknown[name] = source

    def enabled(self, name: str) -> bool:
        if name not in self._values:
            raise unknown_name("feature flag", name, self.known, field="flag")
        return self._values[name][0]

    def require(self, name: str) -> None:
        if not self.enabled(name):
            raise feature_disabled(name)

    def describe(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "enabled": self._values[name][0],
                "stage": flag.stage,
                "default": flag.default,
                "source": self._values[name][1],
                "description": flag.description,
            }
            for name, flag in self.known.items()
        ]

    def complaints(self) -> Iterable[str]:
        for name, source in self.unknown.items():
            guess = nearest(name, self.known)
            yield f"Unknown feature flag '{name}' from {source}" + (
                f"; did you mean '{guess[0]}'?" if guess else ""
            )
        for name, (enabled, source) in self._values.items():
            if self.known[name].stage == "deprecated" and enabled and source != "default":
                yield f"Feature flag '{name}' from {source} is deprecated"


def parse_flag(text: str) -> tuple[str, bool]:
    """`name`, `name=on` or `name=off`, as the command line has it."""
    name, _, word = text.partition("=")
    return name.strip(), parse_switch(name, word or "on")


def parse_switch(name: str, word: str) -> bool:
    value = _WORDS.get(word.strip().lower())
    if value is None:
        raise validation(name, "switch", f"{name} must be on or off", received=word, code="INVALID_FORMAT")
    return value


def flags_of_environment(environment: Mapping[str, str]) -> dict[str, bool]:
    return {
        key.removeprefix(ENVIRONMENT_PREFIX).lower(): parse_switch(key, value)
        for key, value in environment.items()
        if key.startswith(ENVIRONMENT_PREFIX)
    }
