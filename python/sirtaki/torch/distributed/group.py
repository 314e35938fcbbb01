"""Process groups of `torch.distributed` whose collectives run on our engine."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import hashlib
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from sirtaki import _core
from sirtaki.core.operations import kinds
from sirtaki.core.world import lifecycle
from sirtaki.core.world.world import World
from sirtaki.rendezvous.world.membership import Membership
from sirtaki.rendezvous.world.start import Meeting
from sirtaki.stand_in import NAME, asked_names
from sirtaki.torch.distributed.devices import Devices
from sirtaki.torch.distributed.in_pytorch import run_untraced, serve_works
from sirtaki.torch.distributed.monitored import MonitoredBarrier
from sirtaki.torch.distributed.operations import Operations
from sirtaki.torch.distributed.pairs import GroupPairs
from sirtaki.torch.distributed.store import TorchStore
from sirtaki.torch.distributed.works import Completions, Work, Works, seconds_of

# For stores, which want a number.
_FOR_EVER = timedelta(days=365).total_seconds()
# Who ends while others still receive what it has sent waits for them so long.
_FAREWELL_SECONDS = 10.0


# Where and under which name the members of the group that is made now meet, if PyTorch's would not
# be the same for all of them.
_meeting: ContextVar[tuple[Store, str] | None] = ContextVar("_meeting", default=None)


class _Process:
    """What the groups of this process share."""

    completions: Completions | None = None
    made: ClassVar[Counter[str]] = Counter()  # groups, by name
    groups: ClassVar[weakref.WeakSet[Group]] = weakref.WeakSet()
    lock = threading.Lock()


# Its stubs know neither what may be overridden nor how.
_ProcessGroup: Any = dist.ProcessGroup


class Group(Devices, GroupPairs, Operations, _ProcessGroup):  # type: ignore[misc]
    """A group of ranks with an engine of its own.

    Args:
        store: Where the members meet.
        rank: This process's number in the group.
        size: How many members there are.
        name: Of the group, the same at all members, and of no group of others.
        timeout: After how long an operation that not all members have called fails.
        asked: The backends that the program asked for, by device, where it did not ask for us.

    Raises:
        ValueError: There is no such rank, or the members contradict each other.
        TimeoutError: Some members did not come; the message names them.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        name: str = "",
        timeout: timedelta | None = None,
        asked: Mapping[str, str] | None = None,
    ) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} is not one of the ranks 0 to {size - 1} of a group")
        super().__init__(rank, size)
        self._group_rank = rank
        self._group_size = size
        self._timeout = seconds_of(timeout)
        self._asked = dict(asked or {})
        self._completions = _completions()
        attempt = _attempt(name)
        meeting_place = TorchStore(store, attempt)
        if size > 1 and not meeting_place.is_first(f"rank {rank}"):
            raise ValueError(
                f"rank {rank} of this group is at the store already: another process has the same "
                "rank, or the store is of an earlier job (give every job a new file)"
            )
        self._world = _join(meeting_place, rank, size, self._timeout)
        self._world.key = attempt
        self._monitored = MonitoredBarrier(meeting_place, rank, size)
        self._engine = self._world.engine
        self._store = store
        self._device_store = PrefixStore(attempt, store)
        self._met_as = attempt
        self._divisions = 0
        self._closed = False
        self._ended = False
        self._ending = threading.Lock()
        self._coalesced: list[dist.Work] | None = None
        self._farewell: _core.Handle | None = None
        self._group_name = ""
        self._description = ""
        _Process.groups.add(self)

    # ---- What PyTorch asks a group ----

    def getBackendName(self) -> str:
        """Return our own name, which is for C++: there Gloo's name means an object of Gloo's."""
        return NAME

    def name(self) -> str:
        """Return the name of the backend that the program asked for."""
        names = list(self._asked.values()) or [NAME]
        # Of several PyTorch names this one first.
        return "nccl" if "nccl" in names else names[0]

    _get_backend_name = name

    def getRank(self) -> int:
        """Return this process's number in the group."""
        return self._group_rank

    def getSize(self) -> int:
        """Return the number of members."""
        return self._group_size

    def setGroupName(self, name: str) -> None:
        """Take the name by which PyTorch finds the group."""
        self._group_name = name
        self._world.label = f"group {name}"

    def getGroupName(self) -> str:
        """Return the name by which PyTorch finds the group."""
        return self._group_name

    def setGroupDesc(self, description: str) -> None:
        """Take what the program says of the group."""
        self._description = description

    def getGroupDesc(self) -> str:
        """Return what the program says of the group."""
        return self._description

    def _get_backend(self, device: torch.device) -> _Face:
        return _Face(self, self._asked.get(device.type, self.name()))

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Wait until all ranks have come, or name those that have not.

        Args:
            timeout: How long to wait; default: as long as the group does.
            wait_all_ranks: Whether rank 0 names all that did not come, or only the first.

        Raises:
            CollectiveTimeoutError: Some ranks did not come.
            PeerLostError: One was lost meanwhile.
        """
        self._require_open()
        seconds = self._timeout if timeout is None else timeout.total_seconds()
        limit = _FOR_EVER if seconds is None else seconds
        self._monitored.wait(self._engine, limit, wait_all_ranks)

    # ---- Several operations in one go ----

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        works, self._coalesced = self._coalesced or [], None
        return Works(works)

    # ---- Parts ----

    @contextlib.contextmanager
    def dividing(self, members: Sequence[int]) -> Iterator[None]:
        """Let a group that is made meanwhile meet where the members of this one have met.

        PyTorch names a group that not all ranks make by how many groups a rank has, which differs.
        All members of this group divide it the same number of times, in or out of a part.

        Args:
            members: Of the part, by their numbers in this group.
        """
        self._divisions += 1
        name = f"part {list(members)} of {self._met_as}, division {self._divisions}"
        token = _meeting.set((self._store, name))
        try:
            yield
        finally:
            _meeting.reset(token)

    # ---- Ends ----

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("the process group has been destroyed")

    def shutdown(self) -> None:
        """Leave the group.

        What this rank has sent can still be received: the engine goes on until the others leave,
        too, or have all ended.
        """
        if self._closed:
            return
        self._closed = True
        self._leave_inner("shutdown")
        number = self._completions.number()
        with contextlib.suppress(Exception):
            self._farewell = self._engine.submit(
                _core.Request(
                    kinds.BARRIER,
                    name="farewell",
                    completions=self._completions.queue,
                    number=number,
                ),
                None,
            )
            self._completions.expect(number, self._close)

    def abort(self) -> None:
        """End the group at once: what is under way fails on all ranks."""
        self._closed = True
        self._leave_inner("abort")
        engine = getattr(self, "_engine", None)
        if engine is not None:
            engine.abort("the process group was aborted")
        self._close()

    def _leave(self, deadline: float) -> None:
        """Do what is left to do when the process ends."""
        self.shutdown()
        # Neither is there where the group has ended meanwhile.
        engine, farewell = getattr(self, "_engine", None), getattr(self, "_farewell", None)
        if engine is not None and farewell is not None:
            with contextlib.suppress(Exception):
                engine.wait(farewell, max(0.0, deadline - time.monotonic()), for_ever=False)
        self._close()

    def _close(self) -> None:
        """End the engine and what it runs on; who comes second waits until that is done.

        Libraries keep groups for ever. Nothing of the core may live so long, so the group drops it.
        """
        with self._ending:
            if self._ended:
                return
            self._ended = True
            self._world.close()
            del self._engine, self._world, self._completions, self._farewell


class _Face:
    """What PyTorch asks the backend of a device, which is the group itself."""

    supports_splitting = False
    supports_coalescing = False
    supports_time_estimate = False
    options = None

    def __init__(self, group: Group, name: str) -> None:
        self._group = group
        self._name = name

    def name(self) -> str:
        """Return the name of the backend that the program asked for, for this device."""
        return self._name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Say that tensors are allocated as usual."""
        return False


serve_works()
run_untraced(Group, Work, Works)


def create(options: Any, _: Any = None) -> Group:
    """Make the group that `torch.distributed` asks for."""
    theirs = options.store, f"{options.group_id} of {options.global_ranks_in_group}"
    store, name = _meeting.get() or theirs
    size = options.group_size
    group = Group(store, options.group_rank, size, name, options.timeout, asked_names())
    group._world.members = list(options.global_ranks_in_group or range(size))
    return group


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


def _attempt(name: str) -> str:
    """Tell this meeting of a group's members apart from all earlier ones at the same store."""
    _Process.made[name] += 1
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return f"{restarts}.{_Process.made[name]}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _join(store: TorchStore, rank: int, size: int, timeout: float | None) -> World:
    config = lifecycle.own_config()
    limit = timeout or 0.0
    config = dataclasses.replace(
        config,
        backend="native",
        stall_shutdown_seconds=limit,
        start_timeout=limit or config.start_timeout,
    )
    # Who shares a host is found out. Of the store's keys a prefix is this group's alone.
    wanted = Membership.of(config.epoch, range(size))
    return World.join(config, wanted, wanted.topology(rank), Meeting(store))
