"""Process sets: subsets of the world's ranks that run collectives of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sirtaki.backends import is_communicator
from sirtaki.core.world import state


class ProcessSet:
    """Some ranks of the world.

    Args:
        ranks_or_comm: World ranks, in any order, each once; or an mpi4py communicator of this
            process. A ``Split`` makes different communicators: each is a set of its own, and
            every rank holds its own one. A rank with ``COMM_NULL`` is in none.

    Attributes:
        process_set_id: The id while registered, else None.
        mpi_comm: The communicator, None for a set of ranks.

    Raises:
        ValueError: There is no rank, or one appears twice.
        TypeError: The argument is neither ranks nor a communicator.
    """

    process_set_id: int | None = None
    mpi_comm: object = None
    # The ids of all sets that were registered together with this one.
    _registered_ids: Sequence[int] = ()
    _ranks: list[int] | None = None

    def __init__(self, ranks_or_comm: Iterable[int] | object) -> None:
        if is_communicator(ranks_or_comm):
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
        self._ranks = ranks

    @property
    def ranks(self) -> list[int] | None:
        """The members in ascending order.

        None for the global set before ``init()``, and for an unregistered set of a communicator.
        """
        state.note_read()
        return self._ranks

    def _invalidate(self) -> None:
        self.process_set_id = None
        self._registered_ids = ()
        if self.mpi_comm is not None:
            self._ranks = None

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
        """Return whether this process is a member; None before ``init()``."""
        if self.ranks is None:
            return None
        return state.rank() in self.ranks

    def __copy__(self) -> ProcessSet:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> ProcessSet:
        return self  # a copy would not be registered, nor removed with this one

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

    @property
    def ranks(self) -> list[int] | None:
        state.note_read()
        return state.current_world().ranks if state.is_initialized() else None

    def included(self) -> bool | None:
        # In every world, so a compiled function may keep it.
        return True if state.is_initialized() else None

    def __reduce__(self) -> str:
        return "global_process_set"


global_process_set: ProcessSet = _GlobalProcessSet()


def _with_ranks(ranks: Sequence[int]) -> ProcessSet:
    """Return the registered set of these ranks, or a new one that can be registered."""
    registered: list[ProcessSet] = (
        state.current_world().process_sets if state.is_initialized() else []
    )
    for process_set in registered:
        if process_set.ranks == ranks:
            return process_set
    return ProcessSet(ranks)
