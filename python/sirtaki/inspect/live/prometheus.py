"""The numbers of `sirtaki top` in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# The name of each metric, its field in `view`, and its description.
_METRICS = (
    ("sirtaki_step_seconds", "step", "Time from an operation to the next of its name."),
    ("sirtaki_operations_per_second", "operations", "Operations that have ended."),
    ("sirtaki_bytes_per_second", "bytes", "Bytes that operations have reduced or moved."),
    ("sirtaki_computing_ratio", "computing", "Share of the time not blocked in calls of ours."),
    ("sirtaki_exposed_ratio", "exposed", "Share of the time blocked in calls of ours."),
    ("sirtaki_communicating_ratio", "communicating", "Share with an operation open."),
    ("sirtaki_waiting_ratio", "waiting", "Share with one that others have not asked for."),
    ("sirtaki_cpu_cores", "cpu", "Processor time, in cores."),
    ("sirtaki_resident_memory_bytes", "memory", "Memory of the process."),
    ("sirtaki_slowest", "slowest", "1 for the rank that the others wait for."),
    ("sirtaki_waits_for_ranks", "waits_for", "How many ranks it waits for now."),
)
KIND = "text/plain; version=0.0.4"


def text(job: str, seen: Mapping[str, Any] | None) -> str:
    """Return the metrics of a job.

    Args:
        job: Its name.
        seen: The result of `view`; None if no rank has begun, or none is left.
    """
    return "".join(f"{line}\n" for line in _lines(job, seen))


def _lines(job: str, seen: Mapping[str, Any] | None) -> Iterator[str]:
    ranks = [] if seen is None else seen["ranks"]
    yield "# HELP sirtaki_ranks Ranks of the job that have begun."
    yield "# TYPE sirtaki_ranks gauge"
    yield f"sirtaki_ranks{{job={_quoted(job)}}} {len(ranks)}"
    for name, field, what in _METRICS:
        known = [(one, one[field]) for one in ranks if one[field] is not None]
        if known:
            yield f"# HELP {name} {what}"
            yield f"# TYPE {name} gauge"
        for one, value in known:
            number = len(value) if isinstance(value, list) else float(value)
            labels = f"job={_quoted(job)},rank={_quoted(one['rank'])},host={_quoted(one['host'])}"
            yield f"{name}{{{labels}}} {number:.9g}"


def _quoted(value: object) -> str:
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
