"""Joining and leaving the default world of a process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sirtaki import _core
from sirtaki.backends import is_communicator
from sirtaki.core import elastic
from sirtaki.core.config import Config
from sirtaki.core.errors import PeerLostError
from sirtaki.core.world import memory, registration, state
from sirtaki.core.world.links import Links
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.core.world.world import Entered, World, meet, start_mpi
from sirtaki.rendezvous.stores.store import TIMES_KEY
from sirtaki.rendezvous.trust.secret import read_secret
from sirtaki.rendezvous.world.membership import Membership, Topology
from sirtaki.rendezvous.world.start import Meeting
from sirtaki.schedulers import table
from sirtaki.schedulers.start import completed, place_variables

if TYPE_CHECKING:
    from sirtaki.rendezvous.world.placement import Placement

_TELL_SECONDS = 1.0


class _Process:
    """State of this process that outlives its worlds."""

    meeting: Meeting | None = None
    # Of the meeting; None: the placement at this process's start.
    placement: Placement | None = None
    # The default placement of `init`.
    assigned: Placement | None = None
    links: Links | None = None
    # Of an elastic job.
    renewed = registration.Renewed()
    dynamic_process_sets = False
    # `World.times` of all worlds that have ended, added up.
    times = (0.0, 0.0, 0, 0)
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
        placement: This process's place, which overrides the environment; see
            ``sirtaki.placements``.

    Raises:
        ValueError: The environment contradicts itself, `comm` and `placement` are both given, this
            process is not in `comm`, another process wants a different world with this one, a
            process set is invalid, or MPI is requested and cannot be used.
        TimeoutError: Some ranks did not join within the start timeout; the message names them.
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
        # All members are ready, so a missing one has died.
        soon = min(config.start_timeout, elastic.join_seconds(placement.size))
        placed = Config.from_env(placement=placement)._replace(start_timeout=soon)
        try:
            _init(None, process_sets, placement, placed)
            return
        except (TimeoutError, ConnectionError, PeerLostError) as error:
            elastic.require_driver(error)


def abort(why: str) -> None:
    """End the world because this process cannot continue; any thread may call it.

    Args:
        why: The error of this process's own operations; the others see a lost rank.
    """
    world = state.Default.world
    if world is not None and _Process.owner_pid == os.getpid():
        world.engine.abort(why)


def assign(placement: Placement | None) -> None:
    """Set the default placement of this process's `init`.

    For frameworks that run their users' code in their own processes. None: use the environment, as
    before.
    """
    _Process.assigned = placement


def own_config() -> Config:
    """Return the settings of this process, at its assigned place if it has one."""
    return Config.from_env(placement=_Process.assigned)


def _init(
    comm: Sequence[int] | object | None,
    process_sets: Sequence[ProcessSet] | str | None,
    placement: Placement | None,
    config: Config,
) -> None:
    """Join a world; see `init`."""
    wanted, topology = _wanted(comm, config)
    # In later worlds of an elastic job, survivors call init() without repeating this.
    kept_dynamic = elastic.is_elastic() and _Process.dynamic_process_sets
    dynamic = config.dynamic_process_sets or process_sets == "dynamic" or kept_dynamic
    _Process.dynamic_process_sets = dynamic
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(f'process_sets={process_sets!r} must be a list of sets or "dynamic"')
    memory.keep(config)
    library = start_mpi(config)
    if placement != _Process.placement:
        _forget_meeting()
        _Process.placement = placement
    kept, _Process.links = _Process.links, None
    _own_process()
    ends = time.monotonic() + config.start_timeout
    while True:
        meeting = meeting_of_start(config) if wanted.size > 1 else _Process.meeting
        try:
            world = World.join(config, wanted, topology, meeting, kept, dynamic, library)
            break
        except ConnectionError:
            # The store may belong to the previous program of rank 0, and may have ended with it.
            if not _serves_before(meeting, config) or time.monotonic() > ends:
                raise
            _forget_meeting()
    state.Default.world = world
    _core.set_current_engine(world.engine)
    if comm is None:
        tell_place(world.membership, world.topology, elastic.is_elastic())
    _start(world, [] if process_sets is None or isinstance(process_sets, str) else process_sets)


def _serves_before(meeting: Meeting | None, config: Config) -> bool:
    """Return whether a rank 0 serves the store after a previous process had our place."""
    if meeting is None or meeting.server is not None or meeting.attempts is None:
        return False
    return meeting.attempts.follows and not config.rendezvous.startswith(("unix:", "tcp:", "tls:"))


def _own_process() -> None:
    """Release this process's resources at exit, but not at the exit of a forked child."""
    _Process.owner_pid = os.getpid()
    if not _Process.exit_hook_registered:
        atexit.register(_leave)
        _Process.exit_hook_registered = True
        if elastic.is_elastic():
            sys.excepthook = functools.partial(_leave_by_error, sys.excepthook)


def _leave_by_error(hook: Callable[..., object], *error: object) -> None:
    """Print an error that ends the program, and leave before threads and exit handlers delay it."""
    hook(*error)
    if _Process.owner_pid == os.getpid():
        elastic.say_ending()
        shutdown()


def meeting_of_start(config: Config) -> Meeting:
    """Return the meeting point of all ranks of this start, the same while the process lives."""
    if _Process.meeting is None:
        _Process.meeting = meet(config)
        _own_process()
    return _Process.meeting


def _leave() -> None:
    """Leave the world and the meeting when the process ends."""
    elastic.say_ending()
    world = state.Default.world
    if world is not None and not elastic.is_elastic() and _Process.owner_pid == os.getpid():
        world.await_last_look()
    shutdown()
    _forget_meeting()


def secret_of_start(config: Config) -> bytes | None:
    """Return the secret that all ranks of this start share, or None."""
    if config.secret is not None:
        return config.secret
    if config.secret_file:
        return read_secret(config.secret_file)
    return _Process.meeting.secret if _Process.meeting is not None else None


def _forget_meeting() -> None:
    """Close the links and the meeting; in a forked child, leave the parent's open."""
    if _Process.links is not None:
        _Process.links.close()
        _Process.links = None
    if _Process.meeting is not None and _Process.owner_pid == os.getpid():
        _Process.meeting.close()
    _Process.meeting = None


def _start(world: World, process_sets: Sequence[ProcessSet]) -> None:
    """Start everything that needs a running world; close the world on failure."""
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
        if config.advice and world.topology.rank == 0 and max(world.links.joined.host_of) > 0:
            from sirtaki.core.advice import advise  # a job on one host needs none

            advise(world)
    except BaseException:
        shutdown()
        raise


def _wanted(comm: object, config: Config) -> tuple[Membership, Topology]:
    """Return the processes of this start that `init` is to meet, and our place among them."""
    started, own = config.membership, config.topology.rank
    ids = _ids_of(comm, config.topology) or started.ids
    if len(set(ids)) != len(ids) or not set(ids) <= set(started.ids):
        raise ValueError(f"comm={list(ids)} must name ranks of 0 to {started.size - 1}, each once")
    if own not in ids:
        raise ValueError(f"rank {own} called init(comm={list(ids)}) but is not in it")
    wanted = started.choose(ids)
    return wanted, config.topology if wanted == started else wanted.topology(ids.index(own))


def _ids_of(comm: object, launched: Topology) -> Sequence[int]:
    """Return the starter's ranks passed to `init`; empty for all."""
    if comm is None:
        return ()
    if is_communicator(comm):
        from sirtaki.backends import mpi

        return mpi.ranks_of(comm, launched.rank, launched.size)
    if not isinstance(comm, Iterable):
        raise TypeError(f"init(comm={comm!r}) takes a list of ranks or an mpi4py communicator")
    return [int(rank) for rank in comm]


def _tell_times(world: World) -> None:
    """Send the time statistics of this process's worlds to the launcher, if it listens."""
    meeting = _Process.meeting
    if meeting is None or not world.config.watched or elastic.is_elastic():
        return
    number = world.membership.ids[world.topology.rank]
    with contextlib.suppress(Exception):  # no error may keep the program from ending
        before, last = _Process.times, world.times()
        seconds, exposed = before[0] + last[0], before[1] + last[1]
        calls, operations = before[2] + last[2], before[3] + last[3]
        _Process.times = seconds, exposed, calls, operations
        told = f"{seconds:.3f} {exposed:.3f} {calls} {operations}"
        meeting.store.set(f"{TIMES_KEY}{number}", told.encode(), _TELL_SECONDS)


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
        return  # a forked child must not act for its parent
    _tell_times(world)
    _Process.links = world.leave()
    _core.set_current_engine(None)


def tell_place(membership: Membership, topology: Topology, is_elastic: bool) -> None:
    """Set the variables read by data loaders and loggers, where unset.

    The program that started the ranks may have set some or none of them. In an elastic job they
    change with the world, and so do those of the launcher and of a scheduler. Any other world of
    one rank is left alone, since it may not be a job.
    """
    if is_elastic:
        os.environ.update(_of_launcher(os.environ, topology))
    if is_elastic or topology.size > 1:
        os.environ.update(completed(os.environ, _place(membership, topology)))


def _of_launcher(environ: Mapping[str, str], topology: Topology) -> dict[str, str]:
    place = {name: str(value) for name, value in topology._asdict().items()}
    of_schedulers = {
        variable: place[name]
        for scheduler in table.here(environ)
        for name, variables in scheduler.of_rank.items()
        for variable in variables
        if variable in environ
    }
    return {**{f"HOROVOD_{name.upper()}": value for name, value in place.items()}, **of_schedulers}


def _place(membership: Membership, topology: Topology) -> Mapping[str, str]:
    hosts = membership.host_of
    place = topology.rank, topology.size, topology.local_rank, topology.local_size
    return place_variables(*place, hosts[topology.rank], len(set(hosts)))
