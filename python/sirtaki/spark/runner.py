"""`run`: ranks started by the tasks of a barrier stage, with results through Spark."""

from __future__ import annotations

import itertools
import json
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar

from sirtaki import shipped
from sirtaki.rendezvous.stores.store import open_store
from sirtaki.rendezvous.stores.store_server import StoreServer
from sirtaki.rendezvous.world.placement import served_placements
from sirtaki.spark.barrier import task
from sirtaki.spark.context import (
    Output,
    active_context,
    make_call,
    process_count,
    start_seconds,
)
from sirtaki.spark.failures import SparkRunError, explained, too_few
from sirtaki.spark.messages import FAILED, OUTPUT, OVER, PLACED, STARTED, Call, Failed

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
_TURN_SECONDS = 0.1
_STORE_SECONDS = 5.0
# The time for a rank's failure to arrive after Spark has reported that its task failed.
_LAST_WORDS_SECONDS = 1.0
_numbers = itertools.count()


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

    The interface is that of `horovod.spark.run`. The job's secret is part of the tasks' closure: on
    a network that others can read, set `spark.network.crypto.enabled`.

    Args:
        fn: The function; it calls `hvd.init()`.
        args: Its arguments.
        kwargs: Its named arguments.
        num_proc: The number of ranks, each in a task; default: `spark.default.parallelism`.
        start_timeout: The seconds that the tasks may take to start; default:
            HOROVOD_SPARK_START_TIMEOUT, else 600.
        use_mpi: Refused: Spark starts the ranks.
        use_gloo: Accepted and ignored.
        extra_mpi_args: Refused.
        env: The whole environment of the ranks; default: that of Spark's workers.
        stdout: The destination of the ranks' output; default: this process's.
        stderr: The same for their errors.
        verbose: 0 does not print the inferred number of ranks.
        nics: The network interfaces on which ranks reach the driver.
        prefix_output_with_timestamp: Whether to prefix each line with the time.
        executable: The Python of the ranks; default: that of Spark's workers.

    Returns:
        The ranks' return values, by rank.

    Raises:
        SparkRunError: A rank failed; a RuntimeError that names the rank and its host, with a
            traceback. Its cause is the rank's exception. Or a rank's executor was lost, or Spark
            has too few slots, or the workers' Python is incompatible.
        ValueError: MPI was requested, or `num_proc` is below 1.
        TypeError: The function or an argument cannot be sent.
        Exception: There is no SparkContext, or the tasks have not started in time.
    """
    if use_mpi or extra_mpi_args:
        raise ValueError(
            "horovod.spark.run: Spark's tasks start the ranks, which need no MPI; leave out "
            "use_mpi and extra_mpi_args"
        )
    context = active_context()
    num_proc = process_count(context, num_proc, verbose)
    output = Output(stdout, stderr, prefix_output_with_timestamp)
    with served_placements(num_proc, anywhere=True, interfaces=nics or ()) as (places, server):
        call = make_call(fn, args, kwargs, places, executable, env)
        return _Job(context, call, server, output).results(start_seconds(start_timeout))


class _Job:
    """A barrier stage whose tasks start ranks."""

    def __init__(
        self, context: SparkContext, call: Call, server: StoreServer, output: Output
    ) -> None:
        self._context = context
        self._call = call
        self._server = server
        self._output = output
        self._size = len(call.places)
        self._started: set[str] = set()
        self._placed: dict[int, tuple[int, str]] = {}
        self._failed: list[Failed] = []
        self._rows: list[tuple[int, bytes]] = []
        self._error: BaseException | None = None
        server.on_set = self._note

    def _note(self, key: str, value: bytes) -> None:
        """Handle messages of tasks, in the store's thread."""
        if key.startswith(f"{OUTPUT}/"):
            self._output.show(key, value)
            self._server.discard(key)
        elif key.startswith(f"{STARTED}/"):
            self._started.add(key)
        elif key.startswith(f"{PLACED}/"):
            rank, host = json.loads(value)
            self._placed[int(key.rpartition("/")[2])] = rank, host
        elif key.startswith(f"{FAILED}/"):
            self._failed.append(pickle.loads(value))

    def results(self, seconds: float) -> list[Any]:
        """Run the stage; return the results by rank. seconds: for the tasks to start."""
        from pyspark import InheritableThread

        group = f"horovod.spark.run.{next(_numbers)}"
        thread = InheritableThread(target=lambda: self._collect(group))
        thread.daemon = True
        thread.start()
        deadline = time.monotonic() + seconds
        try:
            while thread.is_alive():
                thread.join(_TURN_SECONDS)
                if len(self._started) < self._size and time.monotonic() > deadline:
                    raise Exception(too_few(len(self._started), self._size, seconds))
        except BaseException:
            self._end(group)
            raise
        if self._error is not None:
            self._end(group)
            raise self._explained(self._error)
        values = {
            rank: shipped.value_of(pickle.loads(row)["value"], rank) for rank, row in self._rows
        }
        return [values[rank] for rank in range(self._size)]

    def _collect(self, group: str) -> None:
        numbers = range(self._size)
        try:
            self._context.setJobGroup(group, "ranks of horovod.spark.run", interruptOnCancel=True)
            tasks = self._context.parallelize(numbers, self._size).barrier()
            self._rows = tasks.mapPartitions(task(self._call)).collect()
        except BaseException as error:
            self._error = error

    def _end(self, group: str) -> None:
        """End everything that still runs: tasks learn of it from us before Spark kills them."""
        place = self._call.places[0]
        store = open_store(place.store, _STORE_SECONDS, place.secret)
        store.set(OVER, b"")
        store.close()
        self._context.cancelJobGroup(group)

    def _first(self) -> Failed | None:
        """Return the failure that caused the others, even if it arrived after them."""
        return next((f for f in list(self._failed) if not f.is_consequence), None)

    def _explained(self, error: BaseException) -> BaseException:
        """Return the error to raise for a failed stage."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while (first := self._first()) is None and time.monotonic() < deadline:
            time.sleep(_TURN_SECONDS)
        lost = explained(error, self._size, self._placed)
        if first is None and (not self._failed or "was lost with its executor" in lost):
            return SparkRunError(lost)
        first = first or self._failed[0]
        failure = SparkRunError(
            "one or more processes exited with non-zero status; the first: rank "
            f"{first.rank} ({first.host}) failed:\n{first.text}"
        )
        failure.__cause__ = shipped.error_of(first.error) or error
        return failure
