"""The metrics of a job as Prometheus reads them, in its own format or as OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sirtaki.inspect.live.totals import Count, Counts, JobTotals, RankLabels

# Prometheus gives the label `job` to all that it scrapes.
_JOB = "sirtaki_job"
_RANK = (_JOB, "rank", "host")
# Counters by kind of operation, each with its field of `Totals`.
_BY_KIND = (
    ("sirtaki_operations", "operations", "Operations that the rank has called."),
    ("sirtaki_bytes", "bytes", "Bytes of the operations that the rank has called."),
    ("sirtaki_errors", "errors", "Operations that have failed."),
)
_ALONE = (
    ("sirtaki_exposed_seconds", Count("seconds", "exposed"), "Time blocked in calls of ours."),
    (
        "sirtaki_waiting_seconds",
        Count("seconds", "waiting"),
        "Time with an operation that other ranks had not called.",
    ),
    ("sirtaki_cpu_seconds", Count("processor", ""), "Processor time of the process."),
    ("sirtaki_worlds", Count("worlds", ""), "Worlds that the rank has been in."),
)
# The name of each gauge, its field in `view`, and its description.
_GAUGES = (
    ("sirtaki_communicating_ratio", "communicating", "Share of the time with an operation open."),
    ("sirtaki_resident_memory_bytes", "memory", "Memory of the process."),
    ("sirtaki_slowest", "slowest", "1 for the rank that the others wait for."),
    ("sirtaki_waits_for_ranks", "waits_for", "How many ranks it waits for now."),
)


class _Samples(Protocol):
    job: str

    def look(self) -> dict[str, Any] | None: ...


class Written(Collector):
    """The metrics of a job, when it is called with a client's header `Accept`.

    Args:
        looks: Samples the job.
        counted: Gets these samples too.
    """

    def __init__(self, looks: _Samples, counted: JobTotals) -> None:
        self._looks = looks
        self._counted = counted

    def __call__(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics and their content type."""
        write, kind = choose_encoder(accept)
        return write(self), kind

    def collect(self) -> Iterable[Metric]:
        """Return the metrics; `prometheus_client` calls it."""
        job = self._looks.job
        seen = self._looks.look()
        told = self._counted.told()
        yield from _gauges(job, [] if seen is None else seen["ranks"])
        yield from _counters(job, told)
        yield from _steps(job, told)


def _gauges(job: str, ranks: list[Mapping[str, Any]]) -> Iterable[Metric]:
    begun = GaugeMetricFamily("sirtaki_ranks", "Ranks of the job that have begun.", labels=[_JOB])
    begun.add_metric([job], len(ranks))
    yield begun
    for name, field, what in _GAUGES:
        family = GaugeMetricFamily(name, what, labels=_RANK)
        for one in ranks:
            if (value := one[field]) is not None:
                number = len(value) if isinstance(value, list) else float(value)
                family.add_metric([job, str(one["rank"]), one["host"]], number)
        yield family


def _counters(job: str, told: Mapping[RankLabels, Counts]) -> Iterable[Metric]:
    for name, field, what in _BY_KIND:
        family = CounterMetricFamily(name, what, labels=(*_RANK, "kind"))
        for place, sums in told.items():
            for count, value in sums.items():
                if count.what == field:
                    family.add_metric([*_labels(job, place), count.of], value)
        yield family
    for name, wanted, what in _ALONE:
        family = CounterMetricFamily(name, what, labels=_RANK)
        for place, sums in told.items():
            if wanted in sums:
                family.add_metric(_labels(job, place), sums[wanted])
        yield family


def _steps(job: str, told: Mapping[RankLabels, Counts]) -> Iterable[Metric]:
    count = CounterMetricFamily("sirtaki_steps", "Steps that have ended.", labels=_RANK)
    times = HistogramMetricFamily(
        "sirtaki_step_seconds", "Time from an operation to the next of its name.", labels=_RANK
    )
    for place, sums in told.items():
        steps = {float(one.of): one.of for one in sums if one.what == "steps"}
        if steps:
            bounds = [steps[bound] for bound in sorted(steps)]
            ended = list(accumulate(sums[Count("steps", bound)] for bound in bounds))
            labels = _labels(job, place)
            count.add_metric(labels, ended[-1])
            seconds = sums[Count("seconds", "steps")]
            times.add_metric(labels, list(zip(bounds, ended, strict=True)), seconds)
    yield count
    yield times


def _labels(job: str, place: RankLabels) -> list[str]:
    return [job, str(place.rank), place.host]
