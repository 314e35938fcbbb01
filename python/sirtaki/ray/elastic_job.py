"""An elastic job whose processes are actors."""

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
from sirtaki.launch.elastic.starts import own_variables, planned_slot
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
from sirtaki.rendezvous.trust.auth import SECRET_BYTES

_STORE_SECONDS = 60.0
_LOG_SECONDS = 0.2
# More than any cluster has.
_ANY_NUMBER = 1 << 20
Callbacks = Sequence[Callable[[Any], None]]


class RayHosts:
    """Starts the processes of an elastic job on nodes; see `launch.elastic.starts.Hosts`.

    Args:
        work: What they do.
        store: The address where they meet.
    """

    def __init__(self, work: Work, store: str) -> None:
        self._work = work
        self._store = store

    def reach(self, host: str, slots: int) -> HostProcesses:
        """See `Hosts`."""
        for node in nodes.alive():
            if node.is_called(host):
                return RayProcesses(host, node, self._work)
        raise LaunchError(f"Ray's cluster has no node {host} that is alive")

    def process(self, process_id: int, rank: int, size: int, host: str, place: int) -> Process:
        """See `Hosts`."""
        own = own_variables(planned_slot(rank, size, host, place), process_id, self._store)
        return Process(process_id, place, own, {})


@dataclass(frozen=True)
class ElasticRay:
    """How elastic jobs run on a cluster.

    Attributes:
        settings: What the user wants.
        share: What each process has of its node.
        variables: Of the processes' environment.
        discovery: Returns the hosts; None for the nodes of the cluster.
    """

    settings: ElasticRaySettings
    share: Share
    variables: Mapping[str, Any]
    discovery: FindHosts | None = None

    def run(self, function: Callable[[], Any], callbacks: Callbacks | None) -> list[Any]:
        """Call a function on processes that come and go; return what the last ones returned.

        Raises:
            RuntimeError: The job has failed; names the process, its node, and shows its traceback.
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
    """Return the last failure that is no consequence of another's."""
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
    """Hand what processes log to callbacks, in a thread; yields the queue for them, or None."""
    if not callbacks:
        yield None
        return
    from ray.util.queue import Queue

    queue, over = Queue(), threading.Event()

    def hand_over() -> None:
        last = False
        while not last:
            last = over.wait(_LOG_SECONDS)
            for info in queue.get_nowait_batch(queue.qsize()):
                for callback in callbacks:
                    callback(info)

    thread = threading.Thread(target=hand_over, name="sirtaki ray callbacks", daemon=True)
    thread.start()
    try:
        yield queue
    finally:
        over.set()
        thread.join()
        queue.shutdown()
