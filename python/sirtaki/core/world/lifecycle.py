"""Joining and leaving the world that a process has by default."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Sequence

from sirtaki import _core
from sirtaki.backends.communicator import is_communicator
from sirtaki.core import elastic
from sirtaki.core.config import Config, Topology
from sirtaki.core.errors import PeerLostError
from sirtaki.core.world import memory, registration, shared_heap, state
from sirtaki.core.world.links import Links
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.core.world.world import Entered, World, meet, start_mpi
from sirtaki.records import replace
from sirtaki.rendezvous.world.membership import Membership
from sirtaki.rendezvous.world.placement import Placement
from sirtaki.rendezvous.world.start import Meeting


class _Process:
    """What this process remembers between worlds."""

    meeting: Meeting | None = None
    # Of the meeting; None: that of this process's start.
    placement: Placement | None = None
    # What `init` takes when it is called without one.
    assigned: Placement | None = None
    links: Links | None = None
    # Of an elastic job.
    renewed = registration.Renewed()
    dynamic_process_sets = False
    owner_pid = 0
    exit_hook_registered = False


def init(
    comm: Sequence[int] | object | None = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    placement: Placement | None = None,
) -> None:
    """Join the world that the environment describes; without a launcher, a world of one.

    A second call while initialised does nothing.

    Args:
        comm: The launcher ranks that form the world, renumbered in this order, or an mpi4py
            communicator of them; default: all.
        process_sets: Process sets to register, the same on all ranks, or ``"dynamic"`` to allow
            ``add_process_set`` later.
        placement: This process's place, which replaces that of the environment; see
            ``sirtaki.placements``.

    Raises:
        ValueError: The environment contradicts itself, `comm` and `placement` are both given, this
            process is not in `comm`, another process wants a different world with this one, a
            process set is invalid, or MPI is requested and cannot be used.
        TimeoutError: Some ranks did not come within the start timeout; the message names them.
        ConnectionError: A rank died while joining, or a host cannot be reached.
    """
    if state.is_initialized():
        return
    if comm is not None and placement is not None:
        raise ValueError("init() takes comm or placement, not both")
    placement = placement or _Process.assigned
    config = Config.from_env(placement=placement)
    if config.process_id < 0 or comm is not None or placement is not None:
        _init(comm, process_sets, placement, config)
        return
    while True:
        placement = elastic.next_placement(config)
        # All members are ready, so one that does not come has died.
        soon = min(config.start_timeout, elastic.join_seconds(placement.size))
        placed = replace(Config.from_env(placement=placement), start_timeout=soon)
        try:
            _init(None, process_sets, placement, placed)
            return
        except (TimeoutError, ConnectionError, PeerLostError) as error:
            elastic.require_driver(error)


def assign(placement: Placement | None) -> None:
    """Say what `init` of this process takes when it is called without a placement.

    For frameworks that run the code of their users in processes of theirs. None: what the
    environment says, as before.
    """
    _Process.assigned = placement


def own_config() -> Config:
    """Return the settings of this process, at the place that it was assigned if it was."""
    return Config.from_env(placement=_Process.assigned)


def _init(
    comm: Sequence[int] | object | None,
    process_sets: Sequence[ProcessSet] | str | None,
    placement: Placement | None,
    config: Config,
) -> None:
    """Join a world; see `init`."""
    wanted, topology = _wanted(comm, config)
    # In the next worlds of an elastic job, survivors call init() without saying so.
    kept_dynamic = elastic.is_elastic() and _Process.dynamic_process_sets
    dynamic = config.dynamic_process_sets or process_sets == "dynamic" or kept_dynamic
    _Process.dynamic_process_sets = dynamic
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(f'process_sets={process_sets!r} must be a list of sets or "dynamic"')
    memory.keep(config)
    shared_heap.load(config)
    library = start_mpi(config)
    if placement != _Process.placement:
        _forget_meeting()
        _Process.placement = placement
    if wanted.size > 1:
        meeting_of_start(config)
    kept, _Process.links = _Process.links, None
    _own_process()
    world = World.join(config, wanted, topology, _Process.meeting, kept, dynamic, library)
    state.Default.world = world
    _core.set_current_engine(world.engine)
    _start(world, [] if process_sets is None or isinstance(process_sets, str) else process_sets)


def _own_process() -> None:
    """Release what this process holds at its end, but not at the end of a forked child."""
    _Process.owner_pid = os.getpid()
    if not _Process.exit_hook_registered:
        atexit.register(_leave)
        _Process.exit_hook_registered = True


def meeting_of_start(config: Config) -> Meeting:
    """Return where all ranks of this start meet, the same as long as the process lives."""
    if _Process.meeting is None:
        _Process.meeting = meet(config)
        _own_process()
    return _Process.meeting


def _leave() -> None:
    """Leave the world and the meeting at the end of the process."""
    shutdown()
    _forget_meeting()


def _forget_meeting() -> None:
    """Close the links and the meeting; in a forked child leave the parent's alone."""
    if _Process.links is not None:
        _Process.links.close()
        _Process.links = None
    if _Process.meeting is not None and _Process.owner_pid == os.getpid():
        _Process.meeting.close()
    _Process.meeting = None


def _start(world: World, process_sets: Sequence[ProcessSet]) -> None:
    """Do what needs a running world; close the world if that fails."""
    config = world.config
    try:
        if elastic.has_survivors():
            # Newcomers register the same sets as the others, in the same order.
            members = elastic.current_place().members
            _Process.renewed.renew(world, members, process_sets)
            process_sets = []
        if config.timeline and config.timeline != "DYNAMIC":
            world.engine.start_timeline(config.timeline, config.timeline_mark_cycles)
        registration.register_all(world, process_sets)
    except BaseException:
        shutdown()
        raise


def _wanted(comm: object, config: Config) -> tuple[Membership, Topology]:
    """Return who `init` is to meet, of all processes of this start, and our place among them."""
    started, own = config.membership, config.topology.rank
    ids = _ids_of(comm, config.topology) or started.ids
    if len(set(ids)) != len(ids) or not set(ids) <= set(started.ids):
        raise ValueError(f"comm={list(ids)} must name ranks of 0 to {started.size - 1}, each once")
    if own not in ids:
        raise ValueError(f"rank {own} called init(comm={list(ids)}) but is not in it")
    wanted = started.choose(ids)
    return wanted, config.topology if wanted == started else wanted.topology(ids.index(own))


def _ids_of(comm: object, launched: Topology) -> Sequence[int]:
    """The starter's ranks that `init` was given; none for all of them."""
    if comm is None:
        return ()
    if is_communicator(comm):
        from sirtaki.backends import mpi

        return mpi.ranks_of(comm, launched.rank, launched.size)
    if not isinstance(comm, Iterable):
        raise TypeError(f"init(comm={comm!r}) takes a list of ranks or an mpi4py communicator")
    return [int(rank) for rank in comm]


def shutdown() -> None:
    """Leave the world; operations that others still wait for fail there.

    Without a world it does nothing.
    """
    inner = Entered.world.get()
    if inner is not None:
        inner.close()
        return
    world, state.Default.world = state.Default.world, None
    if world is not None and elastic.is_elastic():
        _Process.renewed.note(world, elastic.current_place().members)
    if world is None or _Process.owner_pid != os.getpid():
        return  # a forked child must not speak for its parent
    _Process.links = world.leave()
    _core.set_current_engine(None)
