"""Registration and removal of process sets, together with all ranks of the world."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sirtaki.core.operations.objects import allgather_object, broadcast_object
from sirtaki.core.world import state
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.core.world.world import World


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a process set; every rank makes the same call, and all wait for each other.

    Args:
        process_set: The set, or the world ranks it consists of.

    Returns:
        The registered set.

    Raises:
        ValueError: Process sets are not dynamic (``HOROVOD_DYNAMIC_PROCESS_SETS=1`` or
            ``init(process_sets="dynamic")`` makes them so), a rank does not exist, or the set
            exists.
        MismatchError: Ranks gave different lists.
    """
    world = state.current_world()
    if not world.dynamic_process_sets:
        raise ValueError(
            "process sets cannot be added at run time: set HOROVOD_DYNAMIC_PROCESS_SETS=1 or call "
            'init(process_sets="dynamic")'
        )
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    _register(world, added)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a registered set; every rank calls this, and all wait for each other.

    Args:
        process_set: A set that `add_process_set` or `init` registered.

    Returns:
        True; False for the global set, an unregistered one, or before ``init()``.

    Raises:
        ValueError: Process sets are not dynamic.
    """
    if not state.is_initialized() or not process_set._registered_ids:
        return False
    world = state.current_world()
    if not world.dynamic_process_sets:
        raise ValueError("process sets cannot be removed: they are not dynamic")
    for number in process_set._registered_ids:
        world.remove_process_set(number)
    process_set._invalidate()
    if process_set in world.process_sets:
        world.process_sets.remove(process_set)
    return True


def add_host_sets() -> ProcessSet:
    """Register a set of each host's ranks unless there is one; all ranks call it.

    Returns:
        The set of this host's ranks.
    """
    world = state.current_world()
    hosts: dict[int, list[int]] = {}
    for rank, host in enumerate(world.membership.host_of):
        hosts.setdefault(host, []).append(rank)
    if len(hosts) == 1:
        return global_process_set
    known: dict[tuple[int, ...], ProcessSet] = {
        tuple(each.ranks or ()): each for each in world.process_sets
    }
    for ranks in hosts.values():
        if tuple(ranks) not in known:
            known[tuple(ranks)] = ProcessSet(ranks)
            _register(world, known[tuple(ranks)])
    return known[tuple(hosts[world.membership.host_of[world.topology.rank]])]


def _register(world: World, process_set: ProcessSet) -> None:
    if process_set.process_set_id is not None or process_set._registered_ids:
        raise ValueError(f"{process_set} is registered already")
    if process_set.mpi_comm is not None:
        sets = _sets_of_communicators(world, process_set)
    else:
        sets = [process_set.ranks or []]
    # All ranks check the sets together, so that none waits for a rank that gave up.
    numbers = [world.add_process_set(ranks) for ranks in sets]
    if process_set.ranks in sets:
        process_set.process_set_id = numbers[sets.index(process_set.ranks)]
    process_set._registered_ids = numbers
    world.process_sets.append(process_set)


def _sets_of_communicators(world: World, process_set: ProcessSet) -> list[list[int]]:
    """Find the members of a communicator here and, together, the others' communicators."""
    own: list[int] | str
    try:
        own = world.ranks_of(process_set.mpi_comm)
    except ValueError as error:
        own = f"rank {world.topology.rank}: {error}"
    found: list[list[int] | str] = allgather_object(own, "process_set_of_communicators")
    wrong = [each for each in found if isinstance(each, str)]
    if wrong or isinstance(own, str):
        raise ValueError("; ".join(wrong))
    process_set._ranks = own
    sets: list[list[int]] = []
    for each in found:
        if not isinstance(each, str) and each and each not in sets:
            sets.append(each)
    return sets


def register_all(world: World, process_sets: Sequence[ProcessSet]) -> None:
    """Register the sets given to ``init()``."""
    for number, process_set in enumerate(process_sets):
        try:
            _register(world, process_set)
        except ValueError as error:
            raise ValueError(
                f"process_sets entry number {number} is a duplicate or invalid: {error}"
            ) from None


class Renewed:
    """The process sets of an elastic job, which outlive its worlds.

    Sets are identified by the numbers that the driver has assigned to their processes.
    """

    def __init__(self) -> None:
        self._sets: list[tuple[ProcessSet, tuple[int, ...]]] = []
        # A world that fails during renewal has only some of them.
        self._under_way = False

    def note(self, world: World, members: Sequence[int]) -> None:
        """Record the sets of a world that is ending.

        Args:
            world: The world, before it is closed.
            members: The numbers of its processes in the order of their ranks.
        """
        if self._under_way:
            return
        self._sets = [
            (each, tuple(members[rank] for rank in each.ranks or ()))
            for each in world.process_sets
            if each.mpi_comm is None
        ]

    def renew(self, world: World, members: Sequence[int], given: Sequence[ProcessSet]) -> None:
        """Register in a new world the sets whose members are all in it; all ranks call it.

        Args:
            world: The new world, whose rank 0 was in the previous one.
            members: See `note`.
            given: A newcomer's sets from ``init()``: those with the same ranks become registered.
        """
        self._under_way = True
        # Newcomers know none of them, but register them too.
        known = broadcast_object([key for _, key in self._sets], 0, "elastic.process_sets")
        here = {numbers: each for each, numbers in self._sets}
        fresh = {tuple(each.ranks or ()): each for each in given}
        for numbers in known:
            lost = sorted(set(numbers) - set(members))
            if lost:
                _report_lost(world, numbers, lost)
                continue
            ranks = sorted(members.index(number) for number in numbers)
            each = here.get(numbers) or fresh.get(tuple(ranks)) or ProcessSet(ranks)
            each._ranks = ranks
            _register(world, each)
        self._under_way = False


def _report_lost(world: World, numbers: Sequence[int], lost: Sequence[int]) -> None:
    if world.topology.rank == 0:
        print(
            f"sirtaki: the process set of processes {list(numbers)} has lost {list(lost)} and is "
            "not made again; operations on it fail. Make another one in a reset callback",
            file=sys.stderr,
            flush=True,
        )
