"""Counts of calls by operation, outcome and code, for `server(action="metrics")` and Prometheus."""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

__all__ = ["Metrics"]

BUCKETS_MS = (1, 5, 25, 100, 500, 2500, 10_000)


class _Series:
    """The calls that ended one way."""

    __slots__ = ("buckets", "count", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.buckets = [0] * len(BUCKETS_MS)


class Metrics:
    def __init__(self) -> None:
        self._series: dict[tuple[str, str, str], _Series] = {}
        self._lock = Lock()

    def record(self, operation: str, code: str, duration_ms: float) -> None:
        """Count one call; `code` is its error code, or empty for a success."""
        key = (operation, "error" if code else "success", code)
        with self._lock:
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = _Series()
            series.count += 1
            series.total_ms += duration_ms
            for index, bound in enumerate(BUCKETS_MS):
                if duration_ms <= bound:
                    series.buckets[index] += 1
                    break

    def describe(self) -> list[dict[str, Any]]:
        with self._lock:
            return [
                {
                    "operation": operation,
                    "outcome": outcome,
                    **({"code": code} if code else {}),
                    "count": series.count,
                    "mean_ms": round(series.total_ms / series.count, 3),
                }
                for (operation, outcome, code), series in sorted(self._series.items())
            ]

    def prometheus(self) -> str:
        """The text that a Prometheus server scrapes."""
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - 100 ms that only who scrapes pays

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(self._families))
        return generate_latest(registry).decode("utf-8")

    def _families(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily  # noqa: PLC0415 - as above

        labels = ["operation", "outcome", "code"]
        calls = CounterMetricFamily(
            "foundry_calls", "Calls by operation, outcome and error code", labels=labels
        )
        durations = HistogramMetricFamily("foundry_call_duration_seconds", "Duration of calls", labels=labels)
        with self._lock:
            for key, series in sorted(self._series.items()):
                calls.add_metric(key, series.count)
                running, buckets = 0, []
                for bound, count in zip(BUCKETS_MS, series.buckets, strict=True):
                    running += count
                    buckets.append((str(bound / 1000), running))
                durations.add_metric(
                    key, [*buckets, ("+Inf", series.count)], sum_value=series.total_ms / 1000
                )
        yield calls
        yield durations


class _Collector:
    """What prometheus_client asks of a collector, and no method more: it would call a `describe` of ours."""

    def __init__(self, collect: Callable[[], Iterator[Any]]) -> None:
        self.collect = collect
