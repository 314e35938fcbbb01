"""Process groups of `torch.distributed` whose collectives run on our engine."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from sirtaki import _core
from sirtaki.core.config import Config
from sirtaki.core.operations import codes
from sirtaki.core.world import lifecycle
from sirtaki.core.world.world import World
from sirtaki.rendezvous.threads import Living
from sirtaki.rendezvous.trust import digests
from sirtaki.rendezvous.world.membership import Membership
from sirtaki.rendezvous.world.start import Meeting
from sirtaki.stand_in import NAME, asked_names
from sirtaki.torch.distributed.devices import Devices
from sirtaki.torch.distributed.in_pytorch import run_untraced, serve_works
from sirtaki.torch.distributed.interface.hooks import Hooks, attach_before
from sirtaki.torch.distributed.interface.methods import Face, Methods
from sirtaki.torch.distributed.interface.reconfigure import Reconfigurable
from sirtaki.torch.distributed.meeting import meetings
from sirtaki.torch.distributed.meeting.store import TorchStore
from sirtaki.torch.distributed.monitored import MonitoredBarrier
from sirtaki.torch.distributed.named import NamedOperations
from sirtaki.torch.distributed.pairs import GroupPairs
from sirtaki.torch.distributed.works import Completions, Work, Works, seconds_of

# For stores, which need a number.
_FOR_EVER = timedelta(days=365).total_seconds()
# How long a process that ends waits for others that still receive its data.
_FAREWELL_SECONDS = 10.0
_SECRET_LABEL = b"sirtaki secret of a group\0"
_PART_LABEL = b"sirtaki part of a group\0"
_NAME_LABEL = b"sirtaki name of a group\0"

# The group being divided, and the members of this process's part.
_division: ContextVar[tuple[Group, list[int]] | None] = ContextVar("_division", default=None)


class _Met(NamedTuple):
    """The members of a group after they have met.

    place: their location in the store. name: of the meeting, which is unique. leave: called when
    this process leaves the group.
    """

    world: World
    place: TorchStore
    name: str
    leave: Callable[[], None] = lambda: None


class _Process:
    """State shared by the groups of this process."""

    completions: Completions | None = None
    groups: ClassVar[Living[Group]] = Living()
    lock = threading.Lock()


# Its stubs do not declare how it may be overridden.
_ProcessGroup: Any = dist.ProcessGroup


class Group(
    Devices,
    GroupPairs,
    NamedOperations,
    Methods,
    Hooks,
    Reconfigurable,
    _ProcessGroup,  # type: ignore[misc]
):
    """A group of ranks with an engine of its own.

    Args:
        store: Where the members meet.
        rank: This process's number in the group.
        size: The number of members.
        name: The group's name, the same at all members, and unique to them.
        timeout: The time after which an operation not called by all members fails.
        asked: The requested backends by device, if the program did not request ours.
        part_of: A group, and those of its members that form this one: they meet through that group,
            regardless of `store` and `name`.
        unformed: Whether the members meet at the first call of `reconfigure`.

    Raises:
        ValueError: There is no such rank, or the members contradict each other.
        MeetingTimeoutError: Some members did not arrive; the message names them.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        name: str = "",
        timeout: timedelta | None = None,
        asked: Mapping[str, str] | None = None,
        part_of: tuple[Group, Sequence[int]] | None = None,
        unformed: bool = False,
    ) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} is not one of the ranks 0 to {size - 1} of a group")
        if part_of is not None:
            store = part_of[0]._store
        super().__init__(rank, size)
        self._group_rank = rank
        self._group_size = size
        self._timeout = seconds_of(timeout)
        self._asked = dict(asked or {})
        self._completions = _completions()
        self._store = store
        self._config: Config = lifecycle.own_config() if part_of is None else part_of[0]._config
        self._process = os.getpid()
        self._closed = False
        self._ended = False
        self._ending = threading.Lock()
        self._coalesced: list[dist.Work] | None = None
        self._farewell: _core.Handle | None = None
        self._group_name = ""
        self._description = ""
        if part_of is not None:
            self._enter(part_of[0]._meet_part(self, part_of[1]))
        elif not unformed:
            self._enter(self._meet(name, rank, size, self._timeout))
        _Process.groups.add(self)

    # ---- Queries of PyTorch ----

    def getBackendName(self) -> str:
        """Return our own name, for C++: there the name "gloo" means an object of Gloo's class."""
        return NAME

    def name(self) -> str:
        """Return the name of the backend that the program requested."""
        names = list(self._asked.values()) or [NAME]
        # PyTorch names this one first if there are several.
        return "nccl" if "nccl" in names else names[0]

    _get_backend_name = name

    def getRank(self) -> int:
        """Return this process's number in the group."""
        return self._group_rank

    def getSize(self) -> int:
        """Return the number of members."""
        return self._group_size

    def setGroupName(self, name: str) -> None:
        """Set the name by which PyTorch finds the group."""
        self._group_name = name
        if hasattr(self, "_world"):
            self._world.label = f"group {name}"

    def getGroupName(self) -> str:
        """Return the name by which PyTorch finds the group."""
        return self._group_name

    def setGroupDesc(self, description: str) -> None:
        """Set the program's description of the group."""
        self._description = description

    def getGroupDesc(self) -> str:
        """Return the program's description of the group."""
        return self._description

    def _get_backend(self, device: torch.device) -> Face:
        return Face(self, self._asked.get(device.type, self.name()))

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Wait until all ranks have arrived, or name those that have not.

        Args:
            timeout: The time limit; default: the group's.
            wait_all_ranks: Whether rank 0 names all missing ranks, or only the first.

        Raises:
            CollectiveTimeoutError: Some ranks did not arrive.
            PeerLostError: A rank was lost meanwhile.
        """
        self._require_open()
        seconds = self._timeout if timeout is None else timeout.total_seconds()
        limit = _FOR_EVER if seconds is None else seconds
        self._monitored.wait(self._engine, limit, wait_all_ranks)

    # ---- Coalesced operations ----

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        works, self._coalesced = self._coalesced or [], None
        return Works(works)

    # ---- Subgroups ----

    @contextlib.contextmanager
    def dividing(self, members: Sequence[int]) -> Iterator[None]:
        """Make the group that is created meanwhile a part of this one.

        Args:
            members: The part's members, by their numbers in this group.
        """
        token = _division.set((self, list(members)))
        try:
            yield
        finally:
            _division.reset(token)

    def _enter(self, met: _Met) -> None:
        """Use the members that have met from now on."""
        joined = met.world.links.joined
        self._world, self._engine = met.world, met.world.engine
        self._world.key = met.name
        self._leave_store = met.leave
        self._joined_key, self._host_of = joined.key, joined.host_of
        self._parts: Counter[tuple[int, ...]] = Counter()
        self._monitored = MonitoredBarrier(met.place, self._group_rank, self._group_size)
        self._device_store = PrefixStore(met.name, self._store)

    def _form_anew(self, rank: int, size: int, name: str, timeout: timedelta | None) -> None:
        self._require_not_destroyed()
        met = self._meet(name, rank, size, seconds_of(timeout) or self._timeout)
        earlier = getattr(self, "_world", None)
        if earlier is not None:
            self._leave_store()
            self._leave_inner("abort")
            self._engine.abort("the process group was reconfigured")
            earlier.close()
        self._group_rank, self._group_size = rank, size
        self._enter(met)
        met.world.label = f"group {self._group_name}"
        met.world.members = list(range(size))

    def _meet(self, name: str, rank: int, size: int, limit: float | None) -> _Met:
        """Meet the other members, who share only the store."""
        config = self._config
        secret = lifecycle.secret_of_start(config) if size > 1 else None
        members = Membership.of(config.epoch, range(size))

        def join(place: TorchStore, number: str, seconds: float) -> World:
            own = secret and digests.keyed(secret, _SECRET_LABEL + number.encode())
            return _join(config, place, own, members, rank, self._timeout, seconds)

        if size == 1:
            alone = TorchStore(self._store, f"sirtaki/{id(self)}")
            return _Met(join(alone, "", 0.0), alone, f"{id(self)}")
        seconds = limit or config.start_timeout
        meeting = meetings.Meeting(self._store, name, rank, size, seconds)
        with meetings.as_of_pytorch(seconds):
            world, place = meeting.hold(join)
        return _Met(world, place, place.name, meeting.leave)

    def _meet_part(self, part: Group, members: Sequence[int]) -> _Met:
        """Meet the other members of a part of this group, using this group's common knowledge.

        It does not depend on PyTorch's name for the part, which members may count differently. All
        members create groups with equal members in the same order.
        """
        chosen = tuple(members)
        label = f"{chosen} {self._parts[chosen]}".encode()
        secret = digests.keyed(self._joined_key, _PART_LABEL + label)
        name = digests.keyed(secret, _NAME_LABEL).hex()[:16]
        place = TorchStore(self._store, f"sirtaki/{name}")
        hosts = [self._host_of[member] for member in chosen]
        config = self._config
        membership = Membership.of(config.epoch, range(len(chosen)), hosts)
        rank, limit = part._group_rank, part._timeout
        seconds = limit or config.start_timeout
        with meetings.as_of_pytorch(seconds):
            world = _join(config, place, secret, membership, rank, limit, seconds, taken_now=False)
        if len(set(hosts)) > 1:
            meetings.forget(place, rank, len(chosen))
        self._parts[chosen] += 1
        return _Met(world, place, name)

    # ---- Closing ----

    def _require_open(self) -> None:
        self._require_not_destroyed()
        if not hasattr(self, "_engine"):
            raise RuntimeError(
                "the process group has no members yet: call reconfigure() first, as "
                "enable_reconfigure=True has it"
            )

    def _require_not_destroyed(self) -> None:
        if self._closed:
            raise ValueError("the process group has been destroyed")

    def shutdown(self) -> None:
        """Leave the group.

        Data that this rank has sent can still be received: the engine runs until the others leave
        or have ended. Operations that others start without it fail at once.
        """
        if self._closed:
            return
        self._closed = True
        if not hasattr(self, "_engine"):
            return
        self._leave_store()
        self._leave_inner("shutdown")
        number = self._completions.number()
        with contextlib.suppress(Exception):
            self._farewell = self._engine.submit(
                _core.Request(
                    codes.BARRIER,
                    name="farewell",
                    completions=self._completions.queue,
                    number=number,
                ),
                None,
            )
            self._completions.expect(number, self._close)
            self._engine.finish()

    def __del__(self) -> None:
        """Leave as `shutdown` does, as Gloo's group closes its connections; not in a child."""
        if not getattr(self, "_closed", True) and self._process == os.getpid():
            self.shutdown()

    def abort(self) -> None:
        """End the group at once: running operations fail on all ranks."""
        if not self._closed and hasattr(self, "_engine"):
            self._leave_store()
        self._closed = True
        self._leave_inner("abort")
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.abort("the process group was aborted")
        self._close()

    def _leave(self, deadline: float) -> None:
        """Leave at the end of the process."""
        self.shutdown()
        # Both are missing if the group has ended meanwhile.
        engine, farewell = getattr(self, "_engine", None), getattr(self, "_farewell", None)
        if engine is not None and farewell is not None:
            with contextlib.suppress(Exception):
                engine.wait(farewell, max(0.0, deadline - time.monotonic()), for_ever=False)
        self._close()

    def _close(self) -> None:
        """End the engine and its links; a second caller waits until that is done.

        Libraries keep groups for ever, but the core's objects must not live that long.
        """
        with self._ending:
            if self._ended:
                return
            self._ended = True
            if not hasattr(self, "_world"):
                return
            self._world.close()
            del self._engine, self._world, self._completions, self._farewell


serve_works()
attach_before(Group)
run_untraced(Group, Work, Works)


def create(options: Any, _: Any = None) -> Group:
    """Create the group that `torch.distributed` requests."""
    if torch.__version__ < "2.7":  # a TorchVersion compares numbers
        # Its C++ code keeps only the C++ half of our works, whose wait never ends: see PythonWork.
        raise RuntimeError(
            f"sirtaki groups need PyTorch 2.7 or newer, not {torch.__version__}: DDP would hang"
        )
    ranks = list(options.global_ranks_in_group or [])
    store, name = options.store, str(options.group_id)
    part_of = _division.get() or _part_of_all(ranks)
    if part_of is None and ranks:
        # Members may have different names for it, and their store locations depend on the names.
        store, name = dist.distributed_c10d._get_default_store(), f"group of {ranks}"
    size = options.group_size
    unformed = getattr(options, "enable_reconfigure", False)
    place = store, options.group_rank, size, name, options.timeout, asked_names()
    group = Group(*place, part_of=part_of, unformed=unformed)
    if not unformed:
        group._world.members = ranks or list(range(size))
    return group


def _part_of_all(ranks: list[int]) -> tuple[Group, list[int]] | None:
    """Return the default group, if it is ours, with the members of a group; otherwise None."""
    default = dist.group.WORLD
    return (default, ranks) if ranks and isinstance(default, Group) else None


def _completions() -> Completions:
    with _Process.lock:
        if _Process.completions is None:
            _Process.completions = Completions()
            atexit.register(_leave_all)
        return _Process.completions


def _leave_all() -> None:
    groups: Sequence[Group] = list(_Process.groups)
    deadline = time.monotonic() + _FAREWELL_SECONDS
    for group in groups:
        group.shutdown()
    for group in groups:
        group._leave(deadline)
    if _Process.completions is not None:
        _Process.completions.close()
        _Process.completions = None


def _join(
    config: Config,
    place: TorchStore,
    secret: bytes | None,
    members: Membership,
    rank: int,
    timeout: float | None,
    seconds: float,
    taken_now: bool = True,
) -> World:
    config = config._replace(
        backend="native",
        stall_shutdown_seconds=timeout or 0.0,
        start_timeout=seconds or config.start_timeout,
    )
    # A prefix of the store's keys belongs to this meeting alone.
    return World.join(
        config, members, members.topology(rank), Meeting(place, secret, taken_now=taken_now)
    )
