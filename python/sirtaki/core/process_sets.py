"""Process sets: subsets of the world's ranks that run collectives of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sirtaki.core import state


class ProcessSet:
    """Some ranks of the world.

    Args:
        ranks_or_comm: World ranks, in any order, each once.

    Attributes:
        ranks: The members in ascending order; None for the global set before ``init()``.
        process_set_id: The id while registered, else None.
        mpi_comm: Always None; sets are described by ranks.

    Raises:
        ValueError: There is no rank, or one appears twice.
        NotImplementedError: An mpi4py communicator was given.
    """

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: object = None

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        if not isinstance(ranks_or_comm, Iterable):
            raise NotImplementedError(
                "a process set is given by a list of ranks; for a communicator, by those that its "
                "processes have in MPI.COMM_WORLD"
            )
        ranks = sorted(int(rank) for rank in ranks_or_comm)
        if len(set(ranks)) != len(ranks):
            raise ValueError(f"a rank appears twice in the process set {ranks}")
        if not ranks:
            raise ValueError("a process set needs at least one rank")
        self.ranks = ranks

    def _invalidate(self) -> None:
        self.process_set_id = None

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
    if not state.is_initialized() or not process_set.process_set_id:
        return False
    world = state.current_world()
    if not world.dynamic_process_sets:
        raise ValueError("process sets cannot be removed: they are not dynamic")
    world.remove_process_set(process_set.process_set_id)
    process_set._invalidate()
    if process_set in _registered:
        _registered.remove(process_set)
    return True


def _register(process_set: ProcessSet) -> None:
    world = state.current_world()
    ranks = process_set.ranks
    if process_set.process_set_id is not None or ranks is None:
        raise ValueError(f"{process_set} is registered already")
    # Whether the set is good is found out together, so that no rank waits for one that gave up.
    process_set.process_set_id = world.add_process_set(ranks)
    _registered.append(process_set)


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
