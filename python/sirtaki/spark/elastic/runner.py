"""`run_elastic`: ranks in Spark tasks that may be lost and replaced."""

from __future__ import annotations

import itertools
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from sirtaki import shipped
from sirtaki.launch.api import elastic_results, leave_call
from sirtaki.launch.elastic.discovery import Discovery
from sirtaki.launch.elastic.driver import ABANDON, Driver
from sirtaki.launch.elastic.job import with_last_error
from sirtaki.launch.elastic.settings import Elastic, elastic_settings
from sirtaki.launch.errors import JobError
from sirtaki.launch.flags.flags import Flags
from sirtaki.launch.hosts.addresses import all_addresses
from sirtaki.launch.output.first_error import Errors
from sirtaki.launch.output.output import Outputs
from sirtaki.launch.plan import SECRET_BYTES
from sirtaki.launch.processes.channels import STREAMS_OF_A_RANK, room_for_files
from sirtaki.launch.processes.supervise import Supervisor
from sirtaki.rendezvous.stores.store import open_store
from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer
from sirtaki.spark.context import active_context, process_count, start_seconds
from sirtaki.spark.elastic.agents import Agents, SparkHosts
from sirtaki.spark.elastic.worker import Orders, task
from sirtaki.spark.failures import SparkRunError, explained, too_few, unpicklable
from sirtaki.spark.messages import OVER, STARTED

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
_TURN_SECONDS = 0.1
_STORE_SECONDS = 60.0
_END_SECONDS = 3.0
_numbers = itertools.count()


def run_elastic(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    verbose: int = 1,
    nics: Sequence[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
    executable: str | None = None,
) -> list[T]:
    """Call an elastic training function on ranks that may be lost and replaced.

    The interface is that of `horovod.spark.run_elastic`. Ranks run in ordinary Spark tasks, not in
    a barrier stage: a failed rank is restarted in its task, and Spark restarts a task whose
    executor is lost, up to `spark.task.maxFailures` times.

    Args:
        fn: The function; it trains in an `hvd.elastic.run`.
        args: Its arguments.
        kwargs: Its named arguments.
        num_proc: The initial number of ranks; default: `spark.default.parallelism`.
        min_num_proc: The minimum number for training to continue; default: `num_proc`.
        max_num_proc: The maximum number, with a task for each; default: `num_proc`.
        start_timeout: The seconds that `num_proc` tasks may take to start; default:
            HOROVOD_SPARK_START_TIMEOUT, else 600.
        elastic_timeout: The seconds with fewer than `min_num_proc` ranks; default:
            HOROVOD_ELASTIC_TIMEOUT, else 600.
        reset_limit: The maximum number of new worlds after the first; default: any number.
        env: The whole environment of the ranks; default: that of Spark's workers.
        stdout: The destination of the ranks' output; default: this process's.
        stderr: The same for their errors.
        verbose: 0 does not print the inferred number of ranks.
        nics: The network interfaces on which ranks reach the driver.
        prefix_output_with_timestamp: Whether to prefix each line with the time.
        min_np: Another name of `min_num_proc`.
        max_np: Another name of `max_num_proc`.
        executable: The Python of the ranks; default: that of Spark's workers.

    Returns:
        The return values of the last world's ranks, by rank.

    Raises:
        RuntimeError: The job cannot continue; the message names the process, host and error.
        ValueError: The numbers of ranks contradict each other.
        TypeError: The function or an argument cannot be sent.
        Exception: There is no SparkContext, or the tasks have not started in time.
    """
    context = active_context()
    size = process_count(context, num_proc, verbose)
    flags = Flags(
        num_proc=size,
        min_num_proc=_either("min", min_np, min_num_proc, size),
        max_num_proc=_either("max", max_np, max_num_proc, size),
        elastic_timeout=elastic_timeout,
        reset_limit=reset_limit,
        host_discovery=dict,
    )
    elastic = elastic_settings(flags, os.environ)
    assert elastic is not None
    try:
        shipped.dumps((fn, tuple(args), dict(kwargs or {})))
    except Exception as error:
        raise unpicklable(fn, error) from error
    job = _ElasticJob(context, elastic, executable or "", env, nics or ())
    outputs = Outputs(
        elastic.most,
        stdout or sys.stdout,
        stderr or sys.stderr,
        timestamps=prefix_output_with_timestamp,
        errors=Errors(False),
    )
    with job:
        leave_call(job.server, job.secret, fn, args, kwargs or {})
        job.wait_for_tasks(start_seconds(start_timeout))
        return elastic_results(job.server, job.run(outputs))


def _either(which: str, old: int | None, new: int | None, default: int) -> int:
    if old is not None and new is not None and old != new:
        raise ValueError(f"{which}_np={old} and {which}_num_proc={new} contradict each other")
    return next((given for given in (new, old) if given is not None), default)


class _ElasticJob:
    """Tasks that serve an elastic job; requested on entering the context.

    executable: the Python of the ranks. env: their environment. nics: for tasks to reach us.
    """

    def __init__(
        self,
        context: SparkContext,
        elastic: Elastic,
        executable: str,
        env: Mapping[str, str] | None,
        nics: Sequence[str],
    ) -> None:
        self._context = context
        self._elastic = elastic
        self._executable = executable
        self.secret = secrets.token_bytes(SECRET_BYTES)
        addresses = all_addresses(nics)
        self.server = TcpStoreServer(addresses, self.secret)
        self._agents = Agents(addresses, self.secret)
        variables = None if env is None else dict(env)
        self._orders = Orders(self.server.address, self._agents.address, self.secret, variables)
        self._group = f"horovod.spark.run_elastic.{next(_numbers)}"
        self._error: BaseException | None = None
        self._driver: Driver | None = None
        self._stage: threading.Thread | None = None

    def __enter__(self) -> _ElasticJob:
        from pyspark import InheritableThread

        self.server.on_set = self._note
        self.server.start()
        self._agents.start()
        self._stage = InheritableThread(target=self._offer)
        self._stage.daemon = True
        self._stage.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the tasks; Spark's cancel covers those that have not begun."""
        store = open_store(self.server.address, _STORE_SECONDS, self.secret)
        store.set(OVER, b"")
        store.close()
        assert self._stage is not None
        deadline = time.monotonic() + _END_SECONDS
        while self._stage.is_alive() and self._agents.called and time.monotonic() < deadline:
            self._stage.join(_TURN_SECONDS)
        self._context.cancelJobGroup(self._group)
        self._agents.close()
        self.server.close()

    def _offer(self) -> None:
        numbers = range(self._elastic.most)
        try:
            self._context.setJobGroup(self._group, "an elastic job", interruptOnCancel=True)
            tasks = self._context.parallelize(numbers, self._elastic.most)
            tasks.mapPartitions(task(self._orders)).collect()
        except BaseException as error:
            self._error = error

    def _note(self, key: str, value: bytes) -> None:
        """Handle a value set in the store, in the store's thread."""
        if key.startswith(f"{STARTED}/"):
            self._agents.note(int(key.rpartition("/")[2]), value)
        elif key == ABANDON:
            self.server.abandon(value.decode())
        elif self._driver is not None:
            self.server.discard(self._driver.on_set(key, value))

    def wait_for_tasks(self, seconds: float) -> None:
        """Wait for as many tasks as the first world has ranks. Raises Exception, SparkRunError."""
        wanted, deadline = self._elastic.first, time.monotonic() + seconds
        while (found := self._agents.called) < wanted:
            if self._error is not None:
                raise SparkRunError(explained(self._error, wanted, {})) from self._error
            if time.monotonic() > deadline:
                raise Exception(too_few(found, wanted, seconds))
            time.sleep(_TURN_SECONDS)

    def run(self, outputs: Outputs) -> int:
        """Train; return the number of processes used. Raises RuntimeError."""
        elastic, address = self._elastic, self.server.address
        store = open_store(address, _STORE_SECONDS, self.secret)
        hosts = SparkHosts(
            self._agents, address, self.secret, self._executable, elastic.unresponsive
        )
        driver = self._driver = Driver(elastic, hosts, store, outputs.say)
        found = self._agents.found()
        driver.on_hosts(dict(found))
        discovery = Discovery(self._agents.found, found, driver.on_hosts, driver.on_trouble)
        discovery.start()
        supervisor = Supervisor(
            [], outputs, None, elastic.timeout, some_wait=lambda: False, policy=driver
        )
        try:
            with room_for_files((2 * STREAMS_OF_A_RANK + 3) * elastic.most):
                supervisor.run()
        except JobError as error:
            raise with_last_error(error, supervisor, driver) from None
        finally:
            discovery.end()
            self._driver = None
            driver.end()
            store.close()
        return driver.started
