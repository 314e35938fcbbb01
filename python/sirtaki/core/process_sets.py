"""Process sets: subsets of the world's ranks that run collectives of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sirtaki.backends import mpi
from sirtaki.core import state


class ProcessSet:
    """Some ranks of the world.

    Args:
        ranks_or_comm: World ranks, in any order, each once; or an mpi4py communicator of this
            process. Those of a ``Split`` differ from rank to rank: each is a set of its own, and
            every rank holds the one that it is in. A rank with ``COMM_NULL`` is in none.

    Attributes:
        ranks: The members in ascending order; None for the global set before ``init()``, and for
            a set of a communicator while it is not registered.
        process_set_id: The id while registered, else None.
        mpi_comm: The communicator, None for a set of ranks.

    Raises:
        ValueError: There is no rank, or one appears twice.
        TypeError: What was given is neither ranks nor a communicator.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: object = None
    # The ids of the sets that all ranks have registered together with this one.
    _registered_ids: Sequence[int] = ()

    def __init__(self, ranks_or_comm: Iterable[int] | object) -> None:
        if mpi.is_communicator(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
            return
        if not isinstance(ranks_or_comm, Iterable):
            raise TypeError(
                f"ProcessSet({ranks_or_comm!r}) takes a list of ranks or an mpi4py communicator"
            )
        ranks = sorted(int(rank) for rank in ranks_or_comm)
        if len(set(ranks)) != len(ranks):
            raise ValueError(f"a rank appears twice in the process set {ranks}")
        if not ranks:
            raise ValueError("a process set needs at least one rank")
        self.ranks = ranks

    def _invalidate(self) -> None:
        self.process_set_id = None
        self._registered_ids = ()
        if self.mpi_comm is not None:
            self.ranks = None

    def size(self) -> int | None:
        """Return the number of members, None if the set is not registered."""
        if self.process_set_id is None or self.ranks is None:
            return None
        return len(self.ranks)

    def rank(self) -> int | None:
        """Return this process's number within the set, None if the set is not registered.

        Raises:
            ValueError: This process is not a member.
        """
        if self.process_set_id is None or self.ranks is None:
            return None
        if not self.included():
            raise ValueError("Process is not part of provided process set.")
        return self.ranks.index(state.rank())

    def included(self) -> bool | None:
        """Tell whether this process is a member; None before ``init()``."""
        if self.ranks is None:
            return None
        return state.rank() in self.ranks

    def __copy__(self) -> ProcessSet:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> ProcessSet:
        return self  # a copy would not be registered, and not be removed with this one

    def __reduce__(self) -> str | tuple[object, ...]:
        return _with_ranks, (self.ranks,)

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, "
            f"mpi_comm={self.mpi_comm})"
        )

    __repr__ = __str__


class _GlobalProcessSet(ProcessSet):
    """All ranks, id 0."""

    def __init__(self) -> None:
        self.process_set_id = 0

    def __reduce__(self) -> str:
        return "global_process_set"


global_process_set: ProcessSet = _GlobalProcessSet()

_registered: list[ProcessSet] = []


def _with_ranks(ranks: Sequence[int]) -> ProcessSet:
    """Return the registered set of these ranks, or else a new one, that can be registered."""
    for process_set in _registered:
        if process_set.ranks == ranks:
            return process_set
    return ProcessSet(ranks)


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a process set; every rank calls this alike, and all wait for each other.

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
    _register(added)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a registered set; every rank calls this, and all wait for each other.

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
    if process_set in _registered:
        _registered.remove(process_set)
    return True


def _register(process_set: ProcessSet) -> None:
    world = state.current_world()
    if process_set.process_set_id is not None or process_set._registered_ids:
        raise ValueError(f"{process_set} is registered already")
    if process_set.mpi_comm is not None:
        sets = _sets_of_communicators(process_set)
    else:
        sets = [process_set.ranks or []]
    # Whether a set is good is found out together, so that no rank waits for one that gave up.
    numbers = [world.add_process_set(ranks) for ranks in sets]
    if process_set.ranks in sets:
        process_set.process_set_id = numbers[sets.index(process_set.ranks)]
    process_set._registered_ids = numbers
    _registered.append(process_set)


def _sets_of_communicators(process_set: ProcessSet) -> list[list[int]]:
    """Find out who is in a communicator here and, together, which ones the others have."""
    from sirtaki.core.objects import allgather_object

    own: list[int] | str
    try:
        own = state.current_world().ranks_of(process_set.mpi_comm)
    except ValueError as error:
        own = f"rank {state.rank()}: {error}"
    found: list[list[int] | str] = allgather_object(own, "process_set_of_communicators")
    wrong = [each for each in found if isinstance(each, str)]
    if wrong or isinstance(own, str):
        raise ValueError("; ".join(wrong))
    process_set.ranks = own
    sets: list[list[int]] = []
    for each in found:
        if not isinstance(each, str) and each and each not in sets:
            sets.append(each)
    return sets


def _on_init(process_sets: Sequence[ProcessSet]) -> None:
    """Register the sets given to ``init()``."""
    global_process_set.ranks = list(range(state.size()))
    for number, process_set in enumerate(process_sets):
        try:
            _register(process_set)
        except ValueError as error:
            raise ValueError(
                f"process_sets entry number {number} is a duplicate or invalid: {error}"
            ) from None


def _on_shutdown() -> None:
    for process_set in _registered:
        process_set._invalidate()
    _registered.clear()
    global_process_set.ranks = None
