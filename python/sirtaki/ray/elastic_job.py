"""Elastic jobs whose processes are actors."""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from sirtaki.launch.api import NON_ZERO_STATUS
from sirtaki.launch.elastic.discovery import finder
from sirtaki.launch.elastic.driver import Driver
from sirtaki.launch.elastic.job import drive
from sirtaki.launch.elastic.settings import DEFAULT_COOLDOWN, Elastic, FindHosts
from sirtaki.launch.elastic.starts import PlannedPlace, own_variables
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.addresses import all_addresses
from sirtaki.launch.output.output import Outputs
from sirtaki.launch.processes.events import HostProcesses, Process
from sirtaki.launch.processes.supervise import Supervisor
from sirtaki.ray import nodes
from sirtaki.ray.actors import Failed, RayProcesses, Work, short
from sirtaki.ray.nodes import Share
from sirtaki.ray.settings import ElasticRaySettings
from sirtaki.rendezvous.stores.store import open_store
from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer
from sirtaki.rendezvous.threads import Lasting, start_thread
from sirtaki.rendezvous.trust.auth import SECRET_BYTES

_STORE_SECONDS = 60.0
_LOG_SECONDS = 0.2
# Larger than any cluster.
_ANY_NUMBER = 1 << 20
Callbacks = Sequence[Callable[[Any], None]]


class RayHosts:
    """Starts the processes of an elastic job on nodes; see `launch.elastic.starts.HostPool`.

    Args:
        work: The work of the processes.
        store: The address of the store where they meet.
    """

    def __init__(self, work: Work, store: str) -> None:
        self._work = work
        self._store = store

    def reach(self, host: str, slots: int) -> HostProcesses:
        """See `HostPool`."""
        for node in nodes.alive():
            if node.is_called(host):
                return RayProcesses(host, node, self._work)
        raise LaunchError(f"Ray's cluster has no node {host} that is alive")

    def process(
        self, process_id: int, host: str, place: int, planned: PlannedPlace | None
    ) -> Process:
        """See `HostPool`."""
        return Process(process_id, place, own_variables(planned, host, process_id, self._store), {})


@dataclass(frozen=True)
class ElasticRay:
    """The execution of elastic jobs on a cluster.

    Attributes:
        settings: The user's settings.
        share: The share of a node for each process.
        variables: Variables for the processes' environment.
        discovery: Returns the hosts; None for the cluster's nodes.
    """

    settings: ElasticRaySettings
    share: Share
    variables: Mapping[str, Any]
    discovery: FindHosts | None = None

    def run(self, function: Callable[[], Any], callbacks: Callbacks | None) -> list[Any]:
        """Call a function on elastic processes; return the results of the last world.

        Raises:
            RuntimeError: The job has failed; the message names process and node, with a traceback.
        """
        call = ray.put(ray.cloudpickle.dumps(function))
        secret = secrets.token_bytes(SECRET_BYTES)
        elastic = self._elastic()
        with _logged(callbacks) as queue:
            seconds = self.settings.timeout_s
            work = Work(call, secret, self.share, self.variables, queue, seconds)
            try:
                self._drive(elastic, work)
            except LaunchError as error:
                raise _failure(error, work.failed) from _cause(work.failed)
        ended = [each for each in work.returned.values() if each.returned]
        return [each.value for each in sorted(ended, key=lambda each: each.rank)]

    def _drive(self, elastic: Elastic, work: Work) -> None:
        find = finder(elastic)
        known = dict(find())
        outputs = Outputs(elastic.most, sys.stdout, sys.stderr)
        addresses = all_addresses(self.settings.interfaces())
        with TcpStoreServer(addresses, work.secret) as server:
            store = open_store(server.address, _STORE_SECONDS, work.secret)
            try:
                hosts = RayHosts(work, server.address)
                driver = Driver(elastic, hosts, store, outputs.say)
                supervisor = Supervisor(
                    [], outputs, None, work.start_seconds, some_wait=lambda: False, policy=driver
                )
                drive(elastic, driver, server, supervisor, find, known)
            finally:
                store.close()

    def _elastic(self) -> Elastic:
        settings = self.settings
        least, most = settings.min_num_proc, settings.max_num_proc or _ANY_NUMBER
        if not 1 <= least <= most:
            raise ValueError(f"min_num_proc={least} is not between 1 and max_num_proc={most}")
        return Elastic(
            least,
            most,
            first=least,
            timeout=settings.elastic_timeout,
            reset_limit=settings.reset_limit,
            cooldown=settings.cooldown_range or DEFAULT_COOLDOWN,
            function=self.discovery or (lambda: nodes.slots_by_name(self.share)),
        )


def _cause(failed: Sequence[Failed]) -> BaseException | None:
    """Return the last failure that is no consequence of another one."""
    own = [each for each in failed if not each.is_consequence] or list(failed)
    return own[-1].error if own else None


def _failure(error: LaunchError, failed: Sequence[Failed]) -> RuntimeError:
    text = f"{NON_ZERO_STATUS}: {error}"
    for each in failed:
        if each.error is _cause(failed):
            text += f"\nprocess {each.id} on {each.host}: {short(each.error)}\n{each.error}"
    return RuntimeError(text)


@contextmanager
def _logged(callbacks: Callbacks | None) -> Iterator[Any]:
    """Pass log entries of processes to callbacks, in a thread; yield their queue, or None."""
    if not callbacks:
        yield None
        return
    from ray.util.queue import Queue

    queue, over = Queue(), threading.Event()
    lasting = Lasting("handing what processes log to callbacks")

    def hand_over() -> None:
        last = False
        while not last:
            last = over.wait(_LOG_SECONDS)
            with lasting:
                for info in queue.get_nowait_batch(queue.qsize()):
                    for callback in callbacks:
                        with lasting:
                            callback(info)

    thread = start_thread(hand_over, "sirtaki ray callbacks")
    try:
        yield queue
    finally:
        over.set()
        thread.join()
        queue.shutdown()
