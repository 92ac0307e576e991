"""How often a client may call: a window that moves with the clock, for each client and tool."""

import time

import pytest

from foundry_mcp.core.errors import ValidationError
from foundry_mcp.core.rate_limits import RateLimits
from foundry_mcp.operations.declaration import Session
from foundry_mcp.runtime import Request

shows = pytest.mark.requirement

START = 1_800_000_000.0  # 2027-01-15T08:00:00Z


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""

    class Clock:
        now = START

        def advance(self, seconds: float) -> None:
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(time, "time", lambda: clock.now)
    return clock


def read(bench, client="a"):
    return bench.runtime.call(Request("counter", {"action": "read"}, Session(client=client))).response


def test_without_a_rule_there_is_no_quota_and_no_key(make_bench):
    response = read(make_bench(limits={"another": "1/minute"}))

    assert response.success
    assert "rate_limit" not in response.meta


def test_an_answer_says_what_is_left_of_the_quota(make_bench, clock):
    bench = make_bench(limits={"counter": "3/minute"})

    first, second = read(bench), read(bench)

    assert first.meta["rate_limit"] == {"limit": 3, "remaining": 2, "reset_at": "2027-01-15T08:01:00Z"}
    assert second.meta["rate_limit"]["remaining"] == 1


@shows("000.error-cause.RATE_LIMIT_EXCEEDED")
@shows("000.meta-key.rate_limit-when-throttled")
def test_a_client_past_its_quota_is_told_when_to_come_back(make_bench, clock):
    bench = make_bench(limits={"counter": "2/minute"})
    read(bench)
    clock.advance(20)
    read(bench)
    clock.advance(10)

    refused = read(bench)

    assert refused.data["error_code"] == "RATE_LIMIT_EXCEEDED"
    assert refused.data["error_type"] == "rate_limit"
    assert refused.data["retryable"] is True
    assert refused.data["retry_after_seconds"] == 31  # a moment past the window, not on its edge
    assert refused.data["details"] == {"limit": "2/minute"}
    assert refused.data["effect"] == "none"
    assert refused.meta["rate_limit"] == {"limit": 2, "remaining": 0, "reset_at": "2027-01-15T08:01:00Z"}


def test_who_waits_as_long_as_told_is_served(make_bench, clock):
    bench = make_bench(limits={"counter": "1/minute"})
    read(bench)
    clock.advance(0.25)
    refused = read(bench)

    assert refused.data["retry_after_seconds"] == 60
    clock.advance(refused.data["retry_after_seconds"])

    assert read(bench).success


def test_the_window_moves_instead_of_starting_anew_each_minute(make_bench, clock):
    bench = make_bench(limits={"counter": "2/minute"})
    clock.advance(50)
    read(bench)
    clock.advance(5)
    read(bench)
    clock.advance(10)  # the next minute has begun, but both calls are less than a minute old

    assert not read(bench).success
    clock.advance(46)  # the first of them has left the window, the second not yet
    assert read(bench).success
    assert not read(bench).success


def test_a_refused_write_did_not_happen(make_bench, clock, workspace):
    bench = make_bench(limits={"counter": "1/minute"})
    write = {"action": "add"}

    bench.runtime.call(Request("counter", write))
    refused = bench.runtime.call(Request("counter", write)).response

    assert refused.data["effect"] == "none"
    assert (workspace / "count").read_text(encoding="utf-8") == "1"


@shows("000.warning-cause.RATE_LIMIT_APPROACHING")
def test_the_warning_comes_when_a_tenth_of_the_quota_is_left(make_bench, clock):
    bench = make_bench(limits={"counter": "20/minute"})
    answers = [read(bench) for _ in range(20)]

    warned = [answer for answer in answers if "warnings" in answer.meta]

    assert [answer.meta["rate_limit"]["remaining"] for answer in warned] == [2, 1, 0]
    (detail,) = warned[0].meta["warning_details"]
    assert detail["code"] == "RATE_LIMIT_APPROACHING"
    assert detail["severity"] == "warning"
    assert detail["context"] == {"reset_at": "2027-01-15T08:01:00Z"}
    assert warned[0].meta["warnings"] == [detail["message"]]


def test_clients_and_tools_have_quotas_of_their_own(clock):
    limits = RateLimits({"counter": "1/minute", "other": "1/minute"})

    def allowed(client, tool):
        quota = limits.count(client, tool)
        assert quota is not None
        return quota.retry_after is None

    assert [allowed("a", "counter"), allowed("b", "counter"), allowed("a", "other")] == [True] * 3
    assert [allowed("a", "counter"), allowed("b", "counter"), allowed("a", "other")] == [False] * 3


def test_the_default_rule_holds_for_tools_without_one_of_their_own(clock):
    limits = RateLimits({"default": "5/minute", "counter": "1/hour"})

    rules = [quota.rule for tool in ("counter", "anything") if (quota := limits.count("a", tool))]

    assert rules == ["1/hour", "5/minute"]


def test_a_call_that_was_never_understood_costs_nothing(make_bench, clock):
    bench = make_bench(limits={"default": "1/minute"})

    refused = bench.runtime.call(Request("counter", {"action": "add", "amount": "x"}))

    assert "rate_limit" not in refused.response.meta
    assert read(bench).success


@pytest.mark.parametrize("rule", ["often", "", "0x/minute", "10/fortnight", "-1/minute"])
def test_a_rule_that_is_not_understood_is_refused_by_name(rule):
    with pytest.raises(ValidationError) as refused:
        RateLimits({"counter": rule})

    assert refused.value.details["field"] == "rate_limits.counter"
    assert refused.value.details["received"] == rule
    assert "100/minute" in refused.value.remediation


def test_a_storage_that_does_not_exist_is_refused_by_name():
    with pytest.raises(ValidationError) as refused:
        RateLimits({"counter": "1/minute"}, "nowhere://")

    assert refused.value.details["field"] == "rate_limit_storage"
