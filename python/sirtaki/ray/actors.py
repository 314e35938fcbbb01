"""The processes of an elastic job on one node, each in an actor."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sirtaki.core.errors import HorovodInternalError
from sirtaki.launch.errors import FAILED
from sirtaki.launch.processes.events import Event, Process
from sirtaki.questions.messages import Question
from sirtaki.ray.elastic_worker import ElasticWorker, Ended
from sirtaki.ray.nodes import Node, Share
from sirtaki.rendezvous.threads import Inbox


@dataclass(frozen=True)
class Failed:
    """A process that failed.

    Attributes:
        id: The driver's number of the process.
        host: The node of the process.
        error: Ray's exception.
    """

    id: int
    host: str
    error: BaseException

    @property
    def is_consequence(self) -> bool:
        """Return whether it only results from another process's failure."""
        return isinstance(getattr(self.error, "cause", None), HorovodInternalError)


@dataclass
class Work:
    """The common data of a job's processes, and their outcomes.

    Attributes:
        call: A reference to the pickled function.
        secret: The job's secret.
        share: The share of a node for each process.
        variables: Variables for their environment.
        queue: The queue for their log entries, or None.
        start_seconds: The seconds that an actor may take to start.
        returned: The results of successful processes, by process number.
        failed: The failures, in order.
    """

    call: Any
    secret: bytes = field(repr=False)
    share: Share
    variables: Mapping[str, Any]
    queue: Any
    start_seconds: float
    returned: dict[int, Ended] = field(default_factory=dict)
    failed: list[Failed] = field(default_factory=list)


class RayProcesses:
    """Actors on one node, as `HostProcesses`: the job's supervisor starts and ends them through it.

    Args:
        host: The driver's name of the node.
        node: The node where they run.
        work: The work of the processes.
    """

    def __init__(self, host: str, node: Node, work: Work) -> None:
        self.host = host
        self.planned: Sequence[Process] = ()
        self._node = node
        self._work = work
        self._actors: dict[int, Any] = {}
        self._start_by: dict[int, float] = {}
        self._has_started = self._is_over = False
        # Ray's threads pass work to ours through this.
        self._inbox: Inbox[Callable[[], list[Event]]] = Inbox()

    def connect(self) -> None:
        """See `HostProcesses`: a node that is alive is ready."""

    def free_port(self) -> int:
        """See `HostProcesses`: unused, because the ranks of elastic jobs change."""
        return 0

    def start(self, processes: Sequence[Process]) -> None:
        """See `HostProcesses`."""
        self._has_started = True
        for process in processes:
            self._start(process)

    def _start(self, process: Process) -> None:
        work, share = self._work, self._work.share
        where = NodeAffinitySchedulingStrategy(self._node.id, soft=False)
        actor = (
            ray.remote(ElasticWorker)
            .options(num_cpus=share.cpus, num_gpus=share.gpus, scheduling_strategy=where)
            .remote(process.id)
        )
        self._actors[process.id] = actor
        self._start_by[process.id] = time.monotonic() + work.start_seconds
        variables = {**process.environment, **work.variables}
        gpus = int(self._node.gpus) if share.gpus else 0
        self._follow(process.id, actor.node_id.remote(), self._take_start)
        done = actor.train.remote(work.call, work.secret, variables, gpus, work.queue)
        self._follow(process.id, done, self._take_end)
        self._inbox.put(lambda: [Event("started", process.id)])

    def _follow(
        self, number: int, ref: Any, take: Callable[[int, Future[Any]], list[Event]]
    ) -> None:
        ref.future().add_done_callback(lambda done: self._inbox.put(partial(take, number, done)))

    def _take_start(self, number: int, done: Future[Any]) -> list[Event]:
        if done.exception() is None:
            self._start_by.pop(number, None)
        return []

    def _take_end(self, number: int, done: Future[Any]) -> list[Event]:
        if not self._end(number):
            return []
        error = done.exception()
        if error is None:
            ended = done.result()
            self._work.returned[number] = ended
            return [Event("exited", number, ended.code)]
        self._work.failed.append(Failed(number, self.host, error))
        unschedulable = isinstance(error, (ActorUnschedulableError, TaskUnschedulableError))
        died = isinstance(error, RayActorError) and not unschedulable
        said = Event("said", text=f"process {number}: {short(error)}")
        return [said, Event("exited", number, -signal.SIGKILL if died else FAILED)]

    def _end(self, number: int) -> bool:
        """End an actor; return False if it has been ended before."""
        self._start_by.pop(number, None)
        actor = self._actors.pop(number, None)
        if actor is None:
            return False
        if ray.is_initialized():
            # A finished actor would keep its CPUs, and a lost one might come back.
            ray.kill(actor)
        return True

    def channels(self) -> list[int]:
        """See `HostProcesses`."""
        return [self._inbox.fileno()] if self._has_started and not self._is_over else []

    def receive(self) -> list[Event]:
        """See `HostProcesses`."""
        events: list[Event] = []
        for call in self._inbox.take():
            events += call()
        if not self._actors and not self._is_over:
            self._is_over = True
            events.append(Event("done"))
        return events

    def deadline(self) -> float | None:
        """See `HostProcesses`."""
        return min(self._start_by.values(), default=None)

    def expire(self) -> list[Event]:
        """Give up actors for which Ray has not found room in time."""
        now = time.monotonic()
        late = [number for number, until in self._start_by.items() if until <= now]
        events = []
        for number in late:
            self._end(number)
            text = (
                f"process {number} has not started within {self._work.start_seconds:g} s "
                f"(timeout_s): the node may have no {self._work.share.cpus:g} CPU(s) free"
            )
            events += [Event("said", text=text), Event("exited", number, FAILED)]
        self._inbox.put(list)
        return events

    def pause(self) -> None:
        """See `HostProcesses`: a terminal does not affect Ray's processes."""

    def resume(self) -> None:
        """See `HostProcesses`."""

    def signal(self, rank: int, number: int) -> None:
        """See `HostProcesses`: this program forwards no signals."""

    def ask(self, job: str, question: Question, number: int) -> bool:
        """See `HostProcesses`: unused."""
        return True

    def interrupt(self) -> None:
        """See `HostProcesses`."""
        self.kill()

    def terminate(self) -> None:
        """See `HostProcesses`."""
        self.kill()

    def kill(self) -> None:
        """See `HostProcesses`."""
        for number in list(self._actors):
            self._end(number)
            self._inbox.put(partial(_killed, number))

    def close(self) -> bool:
        """See `HostProcesses`."""
        self.kill()
        self._is_over = True
        self._inbox.close()
        return True


def _killed(number: int) -> list[Event]:
    return [Event("exited", number, -signal.SIGKILL)]


def short(error: BaseException) -> str:
    """Return the message of a Ray exception, without a traceback."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {lines[0] if lines else ''}"
