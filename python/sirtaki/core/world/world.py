"""A world that this process is a member of, and the engine that serves it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from functools import partial
from typing import TYPE_CHECKING, Any

from sirtaki import _core
from sirtaki.backends import MPI
from sirtaki.core import heartbeat
from sirtaki.core.config import Config
from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.operations import codes, handles
from sirtaki.core.tracing import recording
from sirtaki.core.world.affinity import engine_bound
from sirtaki.core.world.links import Links, connect
from sirtaki.core.world.unpickling import ObjectSeals
from sirtaki.questions import answering
from sirtaki.questions.messages import WORK, EndedWorld, OpenOperation, Question, WorldWork
from sirtaki.rendezvous.host import presence
from sirtaki.rendezvous.network.tcp_socket import silent_seconds
from sirtaki.rendezvous.threads import Living
from sirtaki.rendezvous.world import start
from sirtaki.rendezvous.world.attempts import Attempts
from sirtaki.rendezvous.world.join import Joined, JoinSettings
from sirtaki.rendezvous.world.membership import Membership, Topology
from sirtaki.rendezvous.world.start import Meeting

if TYPE_CHECKING:
    from sirtaki.hang.watching import OwnWatch
    from sirtaki.rendezvous.world.placement import Placement

# Operations per rank in answers to other programs, and the other hosts' time to answer.
_OPERATIONS = 4
_PATIENCE_SECONDS = 1.0
# How long a process that ends because of another awaits the launcher's questions.
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 0.05
_MOST_CAUSES = 20

# Worlds of this process, including frameworks' groups.
_worlds: Living[World] = Living()
# The latest that ended, for counters of the whole job.
_ended: deque[EndedWorld] = deque(maxlen=2)


class World:
    """A world that this process is a member of, and the engine that serves it.

    ``init()`` makes the process's default world. A world made from a placement exists beside it.
    All functions use it in a thread that has entered it::

        with sirtaki.World(placement):
            sirtaki.allreduce(array)

    Leaving the context closes the world. Threads that others start, such as those of a framework's
    backward pass, use the default world.

    Args:
        placement: This process's place; every rank of the world has a placement of its own.
        dynamic_process_sets: Whether process sets may be added and removed.

    Raises:
        ValueError: As for `World.join`, or a setting in the environment is wrong.
        TimeoutError, ConnectionError: As for `World.join`.
    """

    # The number of this rank's `join` calls; it misses agreements of the others meanwhile.
    joins: int = 0
    # Returns operations in which the accelerator waits for others: kinds, names, sets, seconds.
    on_device: Callable[[], list[tuple[str, str, int, float]]] | None = None
    # How many parts of a step each rank computes, where ranks share out parts.
    parts: Sequence[int] | None = None
    # The latest operations that can be done again, by name: see `Collectives.allreduce_again`.
    known: dict[str | None, tuple[_core.Known, Any, int, tuple[str, int]]]
    _joined_at = 0.0

    def __init__(self, placement: Placement, dynamic_process_sets: bool = False) -> None:
        config = Config.from_env(placement=placement)
        self._meeting: Meeting | None = meet(config) if placement.size > 1 else None
        self._tokens: list[Token[World | None]] = []
        try:
            self._start(
                config,
                config.membership,
                config.topology,
                self._meeting,
                dynamic=dynamic_process_sets or config.dynamic_process_sets,
            )
        except BaseException:
            self._end_meeting()
            raise
        atexit.register(self.close)
        self._answer(self.store, watched=False)

    @classmethod
    def join(
        cls,
        config: Config,
        wanted: Membership,
        topology: Topology,
        meeting: Meeting | None,
        kept: Links | None = None,
        dynamic: bool = False,
        library: Any = None,
    ) -> World:
        """Join the other members; a world of one rank needs no `meeting`.

        Args:
            config: The settings.
            wanted: The members of the world.
            topology: This rank's place there, as far as known.
            meeting: Where the ranks meet; the caller owns it.
            kept: Links of an earlier world, closed if they do not fit this one.
            dynamic: Whether process sets may be added and removed later.
            library: The result of `start_mpi`.

        Raises:
            ValueError: Ranks contradict each other or run different versions, the engine cannot run
                where it is to, or what MPI moves cannot be encrypted as TLS promises.
            TimeoutError: A rank did not join within ``config.start_timeout`` seconds.
            ConnectionError: A rank died while joining, or a host cannot be reached.
        """
        world = cls.__new__(cls)
        world._meeting, world._tokens = None, []
        world._start(config, wanted, topology, meeting, kept, dynamic, library)
        world._joined_at = time.monotonic()
        if not answering.answers():  # for the whole job, not for groups within it
            # The launcher knows the store that it serves, wherever a framework's group meets.
            world._answer(config.rendezvous or world.store, config.watched)
        return world

    def _start(
        self,
        config: Config,
        wanted: Membership,
        topology: Topology,
        meeting: Meeting | None,
        kept: Links | None = None,
        dynamic: bool = False,
        library: Any = None,
    ) -> None:
        settings = JoinSettings(
            wanted,
            topology,
            hostname=config.hostname,
            timeout=config.start_timeout,
            secret=meeting.secret if meeting else None,
            interfaces=config.interfaces,
            host_id=config.host_id,
            tls=config.tls,
            direct_hosts=config.direct_hosts,
            silent_seconds=silent_seconds(config.host_timeout),
            taken_now=meeting is None or meeting.taken_now,
        )
        self.links = connect(settings, kept, meeting)
        joined = self.links.joined
        try:
            if library and config.tls:
                _require_one_host(joined.host_of)
            with engine_bound(config.thread_affinity, joined.topology.local_rank):
                self.engine = _core.Engine(
                    self.links.core,
                    options=_options(config, joined),
                    backend=library and _mpi_backend(library, wanted),
                )
        except BaseException:
            self.links.close()
            raise
        self.config = config
        self.membership = joined.membership
        self.topology = joined.topology
        self.seals = ObjectSeals(self.links.object_key, joined.hostnames)
        self.dynamic_process_sets = dynamic
        self.store = meeting.store.address if meeting else ""
        self.ranks = list(range(joined.topology.size))
        # The registered sets; untyped, since `ProcessSet` depends on worlds.
        self.process_sets: list[Any] = []
        self.closed, self.known = False, {}
        # For the report of a hang: a key shared by all members and by no other world of the job,
        # and a name for people, "" for the job's own world.
        self.key = self.store
        self.label = ""
        # For a group within the job: its members' numbers in the job.
        self.members: list[int] = []
        self._answering: answering.Answering | None = None
        self._watch: OwnWatch | None = None
        self._looked = threading.Event()
        # Called when the engine has ended.
        self.at_close: list[Callable[[], None]] = []
        self._owner = os.getpid()
        _worlds.add(self)

    def close(self) -> None:
        """Leave; operations that others wait for fail there. A second call does nothing."""
        links = self.leave()
        if links is not None:
            links.close()

    def leave(self) -> Links | None:
        """Leave as `close` does, but return the links if another world may use them."""
        if self.closed or self._owner != os.getpid():
            return None  # a forked child has no engine thread and must not act for its parent
        self.closed = True
        atexit.unregister(self.close)
        _worlds.discard(self)
        if self._watch is not None:
            self._watch.end()
        whole = self._answering is not None
        if self._answering is not None:
            self._answering.close()
            self._answering = None  # it refers to this world
        for process_set in self.process_sets:
            process_set._invalidate()
        self.process_sets.clear()
        ended_well = self.engine.shutdown()
        if whole and (totals := self.engine.totals(self.topology.rank)) is not None:
            _ended.append({"key": self.key, "rank": self.topology.rank, "totals": totals})
        handles.end(self.engine)
        for end in self.at_close:
            end()
        self._end_meeting()
        if ended_well:
            return self.links
        self.links.close()
        return None

    def _answer(self, store: str, watched: bool) -> None:
        """Answer questions of other programs from now on; only Linux programs can find ranks.

        store: where the job's ranks meet. watched: whether a launcher looks for hangs.
        """
        if sys.platform != "linux":
            return
        if self.topology.local_rank == 0:
            presence.sweep()
        try:
            self._answer_for(presence.job_name(store), watched)
        except OSError as error:
            if self.topology.local_rank == 0:
                answering.say_unasked(str(error))

    def _answer_for(self, job: str, watched: bool) -> None:
        config = self.config
        self._answering = answering.answer_for(
            job,
            self.topology.rank,
            self.links.joined.hostnames,
            config.stacks_signal,
            self.membership.ids[self.topology.rank],
            {
                Question.STATE: self._states,
                Question.PLACE: place,
                **{each: partial(_work, each) for each in WORK},
                Question.RECORDS: self._records,
                **recording.answers(lambda: [each for each in _worlds if not each.closed]),
            },
        )
        if watched or config.stall_warning_seconds <= 0:
            return
        if self.topology.local_rank == 0 and self.topology.size > 1:
            from sirtaki.hang.watching import OwnWatch  # a launcher's ranks need none

            self._watch = OwnWatch(job, config.stall_warning_seconds)

    def await_last_look(self) -> None:
        """Let the launcher query all ranks if this process ends because another failed.

        The ranks beside a killed rank know its last operations.
        """
        if self.config.watched and self._answering is not None and _ends_by_a_loss():
            self._looked.wait(_LOOK_SECONDS)
            time.sleep(_ANSWER_SECONDS)  # pending questions are still being answered

    def times(self) -> tuple[float, float, int, int]:
        """Return this rank's time statistics so far.

        Seconds, seconds that threads were blocked in calls that wait, such calls, and operations.
        """
        return time.monotonic() - self._joined_at, *self.engine.waits()

    def _records(self) -> object:
        self._looked.set()
        return _work(Question.RECORDS)

    def _states(self) -> list[str]:
        from sirtaki.core.world.snapshot import shown  # most processes never need it

        others = [each for each in _worlds if each is not self and not each.closed]
        worlds = [(each.label, each.members, each.engine) for each in (self, *others)]
        return shown(worlds, _OPERATIONS, _PATIENCE_SECONDS)

    def _end_meeting(self) -> None:
        if self._meeting is not None:
            self._meeting.close()

    def __enter__(self) -> World:
        Entered.ever = True
        self._tokens.append(Entered.world.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        Entered.world.reset(self._tokens.pop())
        self.close()

    def add_process_set(self, ranks: Sequence[int]) -> int:
        """Register a set on all ranks; return its id."""
        return self._submit(codes.ADD_SET, "add_process_set", 0, list(ranks)).value

    def ranks_of(self, comm: object) -> list[int]:
        """Return the ranks of an mpi4py communicator's processes, none of COMM_NULL.

        Raises:
            ValueError: Some of them are not in this world.
        """
        from sirtaki.backends import mpi

        launched, members = self.config.topology, self.membership.ids
        chosen = mpi.ranks_of(comm, launched.rank, launched.size, or_none=True)
        if not set(chosen) <= set(members):
            raise ValueError("the communicator has processes that are not in this world")
        return sorted(map(members.index, chosen))

    def remove_process_set(self, process_set_id: int) -> None:
        """Remove a set on all ranks."""
        self._submit(codes.REMOVE_SET, "remove_process_set", process_set_id, [])

    def _submit(self, kind: int, name: str, root: int, splits: list[int]) -> _core.Handle:
        request = _core.Request(kind, name=name, root=root, splits=splits, waits=True)
        return self.engine.submit(request, None)


def _work(question: Question) -> list[WorldWork]:
    """Return the activity of ranks in this process's worlds, as one of `WORK` requests."""
    from sirtaki.core.world.snapshot import work

    found: list[WorldWork] = []
    for world in _worlds:
        leads = world.topology.local_rank == 0
        whole = world._answering is not None
        ended = list(_ended) if whole and question is Question.RATES else []
        silent = question in (Question.POLL, Question.RATES) and not leads
        if world.closed or (silent and not ended):
            continue
        own = world.topology.rank
        found.append(
            {
                "label": world.label,
                "key": world.key,
                "members": world.members,
                "whole": whole,
                "rank": own,
                "sets": {str(number): of for number, of in world.engine.process_sets().items()},
                "ranks": [] if silent else work(world.engine, own, question, leads),
                "ended": ended,
                "parts": None if silent or world.parts is None else list(world.parts),
            }
        )
    return found


def place() -> dict[str, Any]:
    """Return where the main thread is, and by world where its accelerator waits for others."""
    from sirtaki.questions import place as of_this_process  # hardly any process needs it

    unfinished: dict[str, list[OpenOperation]] = {
        world.key: [
            {
                "kind": kind,
                "name": name,
                "set": number,
                "stage": "handed over",
                "seconds": seconds,
                "peer": None,
                "waits": None,
                "chunk": None,
            }
            for kind, name, number, seconds in world.on_device()
        ]
        for world in _worlds
        if world.on_device is not None
    }
    return {**of_this_process.place(), "device": unfinished}


def _ends_by_a_loss() -> bool:
    """Return whether the program ends by an error that reports another rank's failure."""
    error: BaseException | None = getattr(sys, "last_value", None)
    for _ in range(_MOST_CAUSES):
        if error is None or isinstance(error, HorovodInternalError):
            return error is not None
        error = error.__cause__ or error.__context__
    return False


class Entered:
    """The world entered by a thread or another holder of a context."""

    world: ContextVar[World | None] = ContextVar("sirtaki_world", default=None)
    # Compilers that trace through `rank()` do not support context variables.
    ever = False


def meet(config: Config) -> Meeting:
    """Return where all ranks of this start meet; errors as `rendezvous.world.start.meet`."""
    # A core built for one rank refuses more here, before ranks wait for each other.
    _core.region_bytes(config.topology.size)
    place = start.MeetingPlace(
        start=config.start,
        rendezvous=config.rendezvous,
        secret_file=config.secret_file,
        secret=config.secret,
        interfaces=config.interfaces,
        home=config.shared_folder,
        tls=config.tls,
        timeout=config.start_timeout,
    )
    met = start.meet(place)
    job = presence.job_name(config.rendezvous or met.store.address)
    met.attempts = Attempts(met.store, met.advice, job, directed=config.process_id >= 0)
    return met


def start_mpi(config: Config) -> Any:
    """Start MPI and return it; None if MPI does not move the data.

    Call it before the ranks meet: the start of MPI holds the GIL until all ranks have called it,
    and rank 0 may serve the store where the others meet.

    Raises:
        ValueError: MPI cannot be used here, or counts the ranks differently.
    """
    if config.backend != MPI:
        return None
    from sirtaki.backends import mpi

    library = mpi.library(config.mpi_threads)
    mpi.require_same_world(library, config.topology.rank, config.topology.size)
    return library


def _mpi_backend(library: Any, wanted: Membership) -> object:
    # Imported here, because other jobs start faster without it.
    from sirtaki.backends.mpi import MpiBackend

    return MpiBackend(library, wanted.ids)


def _require_one_host(host_of: Sequence[int]) -> None:
    if len(set(host_of)) > 1:
        raise ValueError(
            "SIRTAKI_TLS=1 cannot encrypt what MPI moves between hosts: choose "
            "SIRTAKI_BACKEND=native, or do without --tls where the network is your own"
        )


def _options(config: Config, joined: Joined) -> _core.EngineOptions:
    options = _core.EngineOptions()
    options.fusion_bytes = config.fusion_threshold
    options.chunk_bytes = config.chunk_bytes
    options.cache_capacity = config.cache_capacity
    options.stall_shutdown_seconds = config.stall_shutdown_seconds
    options.host_timeout_seconds = config.host_timeout
    options.silent_seconds = silent_seconds(config.host_timeout)
    options.data_timeout_seconds = config.data_timeout
    options.deadlock_seconds = config.deadlock_timeout
    options.has_whole_job = joined.membership.size == config.topology.size
    options.log_level = config.log_level
    options.log_time = config.log_time
    tune = options.autotune
    tune.enabled = config.autotune.enabled
    tune.log = config.autotune.log
    tune.warmup_samples = config.autotune.warmup_samples
    tune.steps_per_sample = config.autotune.steps_per_sample
    tune.max_samples = config.autotune.max_samples
    tune.chunk_fixed = config.autotune.chunk_fixed
    tune.fusion_fixed = config.autotune.fusion_fixed
    options.direct_hosts = joined.direct_hosts
    options.single_copy = config.single_copy
    options.hosts = joined.hostnames
    options.heartbeat = heartbeat.descriptor(config.heartbeat_file)
    machine_cores = os.cpu_count() or 1
    if not joined.core_each or joined.sharing_cores > machine_cores:
        # A polling rank would keep the rank that it waits for off its core.
        options.caller_spin_ns = 0
        options.engine_spin_ns = 0
    return options
