"""`run`: ranks started by the tasks of a barrier stage, results by way of Spark."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar

from sirtaki.rendezvous.stores.store_server import StoreServer
from sirtaki.rendezvous.world.placement import served_placements
from sirtaki.spark.barrier import task
from sirtaki.spark.messages import FAILED, OUTPUT, STARTED, Call, Failed, pickled

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
_log = logging.getLogger("horovod.spark")
_DEFAULT_START_SECONDS = 600.0
_TURN_SECONDS = 0.1
# How long the failure of a rank may take to get here after Spark has said that its task failed.
_LAST_WORDS_SECONDS = 1.0
_numbers = itertools.count()


class SparkRunError(RuntimeError):
    """A rank failed, or its task did."""


def run(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: IO[str] | None = None,
    stderr: IO[str] | None = None,
    verbose: int = 1,
    nics: Sequence[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[T]:
    """Call `fn(*args, **kwargs)` on ranks that Spark's tasks start, and return their results.

    The interface is that of `horovod.spark.run`. The job's secret travels in the tasks' closure: on
    a network that others read, set `spark.network.crypto.enabled`.

    Args:
        fn: The function; it calls `hvd.init()`.
        args: Its arguments.
        kwargs: Its named arguments.
        num_proc: The number of ranks, each in a task; default: `spark.default.parallelism`.
        start_timeout: How many seconds the tasks may take to start; default:
            HOROVOD_SPARK_START_TIMEOUT, else 600.
        use_mpi: Refused: Spark starts the ranks.
        use_gloo: Accepted; nothing is to be chosen.
        extra_mpi_args: Refused.
        env: The whole environment of the ranks; default: that of Spark's workers.
        stdout: Where the ranks' output goes; default: this process's.
        stderr: The same for their errors.
        verbose: 0 keeps the number of ranks that was inferred to itself.
        nics: The network interfaces of the driver at which ranks reach it.
        prefix_output_with_timestamp: Whether each line begins with the time.
        executable: The Python of the ranks; default: that of Spark's workers.

    Returns:
        What each rank returned, by rank.

    Raises:
        SparkRunError: A rank failed; a RuntimeError that names the rank, its host, and shows its
            traceback. Its cause is the rank's exception.
        ValueError: MPI was asked for, or `num_proc` is below 1.
        Exception: There is no SparkContext, or the tasks have not started in time.
    """
    if use_mpi or extra_mpi_args:
        raise ValueError(
            "horovod.spark.run: Spark's tasks start the ranks, which need no MPI; leave out "
            "use_mpi and extra_mpi_args"
        )
    context = _context()
    if num_proc is None:
        num_proc = context.defaultParallelism
        if verbose:
            _log.info("Running %d processes (inferred from spark.default.parallelism)...", num_proc)
    if num_proc < 1:
        raise ValueError(f"num_proc={num_proc} must be >= 1")
    output = _Output(stdout or sys.stdout, stderr or sys.stderr, prefix_output_with_timestamp)
    with served_placements(num_proc, anywhere=True, interfaces=nics or ()) as (places, server):
        call = Call(
            pickled((fn, tuple(args), dict(kwargs or {}))),
            places,
            sys.version_info[:2],
            [os.path.abspath(entry) for entry in sys.path],  # noqa: PTH100
            executable or "",
            None if env is None else dict(env),
        )
        job = _Job(context, call, server, output)
        return job.results(_start_seconds(start_timeout))


def _context() -> SparkContext:
    try:
        from pyspark import SparkContext
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "horovod.spark needs Spark, and there is no pyspark: pip install 'sirtaki[spark]'"
        ) from None
    context = SparkContext._active_spark_context
    if context is None:
        raise Exception(
            "Could not find an active SparkContext, are you running in a PySpark session? (A "
            "session of Spark Connect has none; run this where the driver is.)"
        )
    return context


def _start_seconds(given: float | None) -> float:
    if given is not None:
        return given
    text = os.environ.get("HOROVOD_SPARK_START_TIMEOUT", "")
    return float(text) if text else _DEFAULT_START_SECONDS


class _Output:
    """Shows what ranks print, each line with the rank it comes from."""

    def __init__(self, stdout: IO[str], stderr: IO[str], timestamps: bool) -> None:
        self._streams = {"stdout": stdout, "stderr": stderr}
        self._timestamps = timestamps

    def show(self, key: str, lines: bytes) -> None:
        _, _, rank, name, _ = key.split("/")
        now = time.strftime("%a %b %d %H:%M:%S %Y") if self._timestamps else ""
        stream = self._streams[name]
        for line in lines.decode(errors="replace").splitlines():
            stream.write(f"{now}[{rank}]<{name}>:{line}\n")
        stream.flush()


class _Job:
    """A barrier stage whose tasks start ranks."""

    def __init__(
        self, context: SparkContext, call: Call, server: StoreServer, output: _Output
    ) -> None:
        self._context = context
        self._call = call
        self._server = server
        self._output = output
        self._size = len(call.places)
        self._started: set[str] = set()
        self._failed: list[Failed] = []
        self._rows: list[tuple[int, bytes]] = []
        self._error: BaseException | None = None
        server.on_set = self._note

    def _note(self, key: str, value: bytes) -> None:
        """Take what tasks say, in the thread of the store."""
        if key.startswith(f"{OUTPUT}/"):
            self._output.show(key, value)
            self._server.discard(key)
        elif key.startswith(f"{STARTED}/"):
            self._started.add(key)
        elif key.startswith(f"{FAILED}/"):
            self._failed.append(pickle.loads(value))

    def results(self, start_seconds: float) -> list[Any]:
        """Run the stage; return the results by rank."""
        from pyspark import InheritableThread

        group = f"horovod.spark.run.{next(_numbers)}"
        thread = InheritableThread(target=lambda: self._collect(group))
        thread.daemon = True
        thread.start()
        deadline = time.monotonic() + start_seconds
        try:
            while thread.is_alive():
                thread.join(_TURN_SECONDS)
                if len(self._started) < self._size and time.monotonic() > deadline:
                    raise Exception(self._too_few(start_seconds))
        except BaseException:
            self._context.cancelJobGroup(group)
            raise
        if self._error is not None:
            raise self._explained(self._error)
        values = {rank: pickle.loads(row)["value"] for rank, row in self._rows}
        return [values[rank] for rank in range(self._size)]

    def _collect(self, group: str) -> None:
        numbers = range(self._size)
        try:
            self._context.setJobGroup(group, "ranks of horovod.spark.run", interruptOnCancel=True)
            tasks = self._context.parallelize(numbers, self._size).barrier()
            self._rows = tasks.mapPartitions(task(self._call)).collect()
        except BaseException as error:
            self._error = error

    def _too_few(self, seconds: float) -> str:
        return (
            f"Timed out waiting for Spark tasks to start: {len(self._started)} of {self._size} "
            f"have started after {seconds:g} s. Please check that you have enough resources to run "
            "all Horovod processes. Each Horovod process runs in a Spark task. You may need to "
            "increase the start_timeout parameter to a larger value if your Spark resources are "
            "allocated on-demand."
        )

    def _first(self) -> Failed | None:
        """Return the failure that others follow from, which may come after them."""
        return next((f for f in list(self._failed) if not _is_consequence(f)), None)

    def _explained(self, error: BaseException) -> BaseException:
        """Return what to raise for a stage that failed."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while (first := self._first()) is None and time.monotonic() < deadline:
            time.sleep(_TURN_SECONDS)
        first = first or next(iter(self._failed), None)
        if first is None:
            return SparkRunError(f"Spark job has failed, see the error above.\n{error}")
        failure = SparkRunError(
            "one or more processes exited with non-zero status; the first: rank "
            f"{first.rank} ({first.host}) failed:\n{first.text}"
        )
        failure.__cause__ = _error_of(first) or error
        return failure


def _error_of(failed: Failed) -> BaseException | None:
    if failed.error is None:
        return None
    error = pickle.loads(failed.error)["error"]
    return error if isinstance(error, BaseException) else None


def _is_consequence(failed: Failed) -> bool:
    from sirtaki.core.errors import HorovodInternalError

    return isinstance(_error_of(failed), HorovodInternalError)
