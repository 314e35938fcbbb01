"""Failures on Spark, in terms of `run` and its callers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

PYTHON_HINT = "set PYSPARK_PYTHON to a Python that has sirtaki, or give run(executable=…)"
_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
# For an ordinary task, and for one of a barrier stage, where the host is missing.
_LOST_TASK = re.compile(
    r"(?:Lost task (\d+)\.\d+ in stage \S+ \(TID \d+\) \(([^)]+)\): "
    r"|barrier task \w+\(\d+, (\d+)\) finished unsuccessfully\.\s*)ExecutorLostFailure (.+)"
)
_VERSIONS = re.compile(r"version mismatch: host [^\n]*install the same version on all hosts")
_OWN = ("sirtaki", "horovod")


class SparkRunError(RuntimeError):
    """A rank failed, or its task did."""


def unpicklable(function: Callable[..., Any], error: BaseException) -> TypeError:
    """Return the error for a call that cannot be sent to the ranks."""
    name = getattr(function, "__qualname__", repr(function))
    return TypeError(
        f"{name} or its arguments cannot be sent to the ranks: {error}. Open files, locks, "
        "connections, SparkContext and DataFrame stay on the driver: make what the function needs "
        "inside of it, and leave data where ranks can read them, as in Parquet"
    )


def too_few(started: int, wanted: int, seconds: float) -> str:
    """Return the message about tasks that have not started in time."""
    return (
        f"Timed out waiting for Spark tasks to start: {started} of {wanted} "
        f"have started after {seconds:g} s. Please check that you have enough resources to run "
        "all Horovod processes. Each Horovod process runs in a Spark task. You may need to "
        "increase the start_timeout parameter to a larger value if your Spark resources are "
        "allocated on-demand."
    )


def explained(error: BaseException, wanted: int, places: Mapping[int, tuple[int, str]]) -> str:
    """Return the reason why Spark ended a stage without a failed rank.

    Args:
        error: The error from Spark.
        wanted: The number of ranks.
        places: The rank and host of each known task.
    """
    text = str(error)
    if "SPARK-24819" in text:
        return (
            f"Spark has fewer free slots than the {wanted} tasks that must start together. Give "
            "num_proc= that many or fewer (executors x their cores / spark.task.cpus), or more "
            "executors"
        )
    if "SPARK-24942" in text:
        return (
            "Spark starts no tasks together while it allocates executors by itself: set "
            "spark.dynamicAllocation.enabled=false, or call horovod.spark.run_elastic"
        )
    if (lost := _LOST_TASK.search(text)) is not None:
        number = lost[1] or lost[3]
        rank, host = places.get(int(number), (None, lost[2]))
        who = f"task {number}" if rank is None else f"rank {rank}"
        return f"{who} ({host}) was lost with its executor: {lost[4]}"
    if (differ := _VERSIONS.search(text)) is not None:
        return differ[0]
    if "PYTHON_VERSION_MISMATCH" in text:
        found = re.search(r"\[PYTHON_VERSION_MISMATCH\][^\n]*", text)
        return f"Spark's workers run another Python: {found[0] if found else ''}; {PYTHON_HINT}"
    if (missing := _MODULE.search(text)) is not None:
        name = missing[1]
        hint = PYTHON_HINT if name.partition(".")[0] in _OWN else missing_module_hint(name)
        return f"the Python of Spark's workers has no module {name!r}: {hint}"
    return f"Spark job has failed, see the error above.\n{text}"


def missing_module_hint(name: str) -> str:
    """Return advice about a module that ranks lack."""
    return (
        f"install what provides {name!r} where the executors run, or send your own file there with "
        "sc.addPyFile"
    )
