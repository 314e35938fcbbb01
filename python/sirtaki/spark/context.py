"""The driver's side of Spark: its context, its settings, and the ranks' output."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from sirtaki import shipped
from sirtaki.rendezvous.world.placement import Placement
from sirtaki.spark.failures import unpicklable
from sirtaki.spark.messages import Call

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger("horovod.spark")
_DEFAULT_START_SECONDS = 600.0


def active_context() -> SparkContext:
    """Return the driver's context. Without one, raises Exception with the remedy."""
    try:
        from pyspark import SparkContext
        from pyspark.sql.utils import is_remote
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"horovod.spark needs Spark, and there is no {error.name}: "
            "pip install 'sirtaki[spark]'",
            name=error.name,
        ) from None
    context = SparkContext._active_spark_context
    if context is not None:
        return context
    if is_remote():
        raise Exception(
            "Could not find an active SparkContext: this is a session of Spark Connect, whose "
            "client cannot start ranks. Run this in the driver itself (spark-submit, or a notebook "
            "on the cluster with SparkSession.builder.master(...))"
        )
    raise Exception("Could not find an active SparkContext, are you running in a PySpark session?")


def process_count(context: SparkContext, given: int | None, verbose: int) -> int:
    """Return the number of ranks to start. Raises ValueError."""
    if given is None:
        given = int(context.defaultParallelism)
        if verbose:
            _log.info("Running %d processes (inferred from spark.default.parallelism)...", given)
    if given < 1:
        raise ValueError(f"num_proc={given} must be >= 1")
    return given


def start_seconds(given: float | None) -> float:
    """Return the seconds that tasks may take to start."""
    if given is not None:
        return given
    text = os.environ.get("HOROVOD_SPARK_START_TIMEOUT", "")
    return float(text) if text else _DEFAULT_START_SECONDS


def make_call(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    places: list[Placement],
    executable: str | None,
    env: Mapping[str, str] | None,
) -> Call:
    """Describe the work of each rank. Raises TypeError if it cannot be sent."""
    try:
        function = shipped.dumps((fn, tuple(args), dict(kwargs or {})))
    except Exception as error:
        raise unpicklable(fn, error) from error
    return Call(
        function,
        places,
        sys.version_info[:2],
        [os.path.abspath(entry) for entry in sys.path],  # noqa: PTH100
        executable or "",
        None if env is None else dict(env),
    )


class Output:
    """Prints the ranks' output, each line with its rank."""

    def __init__(self, stdout: IO[str] | None, stderr: IO[str] | None, timestamps: bool) -> None:
        self._streams = {"stdout": stdout or sys.stdout, "stderr": stderr or sys.stderr}
        self._timestamps = timestamps

    def show(self, key: str, lines: bytes) -> None:
        """Print lines stored under a key of `messages.OUTPUT`."""
        _, _, rank, name, _ = key.split("/")
        now = time.strftime("%a %b %d %H:%M:%S %Y") if self._timestamps else ""
        stream = self._streams[name]
        for line in lines.decode(errors="replace").splitlines():
            stream.write(f"{now}[{rank}]<{name}>:{line}\n")
        stream.flush()
