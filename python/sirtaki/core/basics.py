"""Lifecycle and topology as methods of one object, where Horovod scripts look for them."""

from __future__ import annotations

from sirtaki.core.world import lifecycle, state


class HorovodBasics:
    """`hvd.init`, `hvd.rank` and the other functions that all frameworks have, as methods.

    Args:
        arguments: Where Horovod finds its library; ignored.
    """

    def __init__(self, *arguments: object) -> None:
        pass

    init = staticmethod(lifecycle.init)
    shutdown = staticmethod(lifecycle.shutdown)
    is_initialized = staticmethod(state.is_initialized)
    rank = staticmethod(state.rank)
    size = staticmethod(state.size)
    local_rank = staticmethod(state.local_rank)
    local_size = staticmethod(state.local_size)
    cross_rank = staticmethod(state.cross_rank)
    cross_size = staticmethod(state.cross_size)
    is_homogeneous = staticmethod(state.is_homogeneous)
    start_timeline = staticmethod(state.start_timeline)
    stop_timeline = staticmethod(state.stop_timeline)
    mpi_threads_supported = staticmethod(state.mpi_threads_supported)
    mpi_enabled = staticmethod(state.mpi_enabled)
    mpi_built = staticmethod(state.mpi_built)
    gloo_enabled = staticmethod(state.gloo_enabled)
    gloo_built = staticmethod(state.gloo_built)
    nccl_built = staticmethod(state.nccl_built)
    ddl_built = staticmethod(state.ddl_built)
    ccl_built = staticmethod(state.ccl_built)
    cuda_built = staticmethod(state.cuda_built)
    rocm_built = staticmethod(state.rocm_built)

    @staticmethod
    def _get_process_set_ids_and_ranks() -> dict[int, list[int]]:
        """Return the ranks of every registered process set by its id."""
        return state.current_world().engine.process_sets()
