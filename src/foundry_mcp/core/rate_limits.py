"""How often a client may call a tool: a moving window, in memory or shared through Redis."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from foundry_mcp.core.errors import validation

__all__ = ["Quota", "RateLimits"]

APPROACHING = 0.1
"""The share of a quota that is left when the warning begins."""


class Quota(NamedTuple):
    """What a client has left after this call; `retry_after` is set when this call was one too many."""

    rule: str
    limit: int
    remaining: int
    reset_at: str
    retry_after: int | None

    @property
    def approaching(self) -> bool:
        return self.remaining <= self.limit * APPROACHING

    @property
    def meta(self) -> dict[str, int | str]:
        return {"limit": self.limit, "remaining": self.remaining, "reset_at": self.reset_at}


class RateLimits:
    def __init__(self, rules: Mapping[str, str], storage: str = "memory://") -> None:
        """`rules` by tool, `default` for the rest; a rule that cannot be understood is refused here."""
        from limits import parse  # noqa: PLC0415 - 150 ms that only who sets a limit pays
        from limits.errors import ConfigurationError  # noqa: PLC0415 - as above
        from limits.storage import storage_from_string  # noqa: PLC0415 - as above
        from limits.strategies import MovingWindowRateLimiter  # noqa: PLC0415 - as above

        self._rules = {}
        for tool, text in rules.items():
            try:
                self._rules[tool] = (text, parse(text))
            except ValueError as error:
                raise validation(
                    f"rate_limits.{tool}",
                    "rate",
                    f"rate limit {text!r} is not understood",
                    received=text,
                    remediation='Write a rate limit as "100/minute" in foundry-mcp.toml',
                ) from error
        try:
            self._limiter = MovingWindowRateLimiter(storage_from_string(storage))
        except (ConfigurationError, ValueError, NotImplementedError) as error:
            raise validation(
                "rate_limit_storage",
                "storage",
                f"rate_limit_storage {storage!r} is not understood",
                received=storage,
                remediation='Use "memory://", or a redis:// address.',
            ) from error

    def count(self, client: str, tool: str) -> Quota | None:
        """Count one call of `tool` by `client`; None where no rule applies."""
        rule = self._rules.get(tool) or self._rules.get("default")
        if rule is None:
            return None
        text, item = rule
        allowed = self._limiter.hit(item, client, tool)
        resets, remaining = self._limiter.get_window_stats(item, client, tool)
        return Quota(
            rule=text,
            limit=item.amount,
            remaining=max(int(remaining), 0),
            reset_at=datetime.fromtimestamp(resets, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            retry_after=None if allowed else max(1, int(resets - time.time()) + 1),
        )
