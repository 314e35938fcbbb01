"""The world that every function uses, and whether compiled functions contain its values."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sirtaki.backends import MPI
from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.world.world import Entered, World
from sirtaki.rendezvous.network import interfaces as network
from sirtaki.rendezvous.stores import tcp_store

if TYPE_CHECKING:
    from sirtaki.core.world.snapshot import RankState
    from sirtaki.rendezvous.world.membership import Topology


from collections.abc import Callable
from typing import ClassVar

_NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


class Default:
    """The world of ``init()``."""

    world: World | None = None


def _current() -> World | None:
    world = Entered.world.get() if Entered.ever else None
    if world is None:
        return Default.world
    return None if world.closed else world


def addresses() -> list[str]:
    """Return this host's addresses that ranks on other hosts may reach, the likeliest first.

    Raises:
        ValueError: Before ``init()``, or none of the chosen interfaces is up.
    """
    store = current_world().store
    over_tcp = store.startswith((tcp_store.SCHEME, tcp_store.TLS_SCHEME))
    towards = tcp_store.endpoints_of(store) if over_tcp else []
    return network.candidates(towards, current_world().config.interfaces)


def is_initialized() -> bool:
    """Return whether ``init()`` was called and ``shutdown()`` was not."""
    return _current() is not None


def current_world() -> World:
    """Return the world.

    Raises:
        ValueError: There is none.
    """
    world = _current()
    if world is None:
        raise ValueError(_NOT_INITIALIZED)
    return world


def world_for_operation() -> World:
    """Return the world, for a collective.

    Raises:
        HorovodInternalError: There is none.
    """
    world = _current() if Entered.ever else Default.world
    if world is None:
        raise HorovodInternalError(_NOT_INITIALIZED)
    return world


def _topology() -> Topology:
    note_read()
    return current_world().topology


def rank() -> int:
    """Return this process's number in the world, from 0. ValueError before ``init()``."""
    return _topology().rank


def size() -> int:
    """Return the number of processes in the world. ValueError before ``init()``."""
    return _topology().size


def local_rank() -> int:
    """Return this process's number on its host. ValueError before ``init()``."""
    return _topology().local_rank


def local_size() -> int:
    """Return the number of processes on this host. ValueError before ``init()``."""
    return _topology().local_size


def cross_rank() -> int:
    """Return this host's number among hosts with this local rank. ValueError before ``init()``."""
    return _topology().cross_rank


def cross_size() -> int:
    """Return the number of hosts with this local rank. ValueError before ``init()``."""
    return _topology().cross_size


def is_homogeneous() -> bool:
    """Return whether every host has the same number of ranks. ValueError before ``init()``."""
    note_read()
    return current_world().membership.homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Write a Chrome trace from now on; only rank 0 writes.

    Args:
        file_path: The output file; an existing file is replaced.
        mark_cycles: Also mark the start of every batch.

    Raises:
        ValueError: Before ``init()``, without ``HOROVOD_TIMELINE`` at start (``DYNAMIC`` prepares
            without starting), or the file cannot be written.
    """
    world = current_world()
    if not world.config.timeline:
        raise ValueError(
            "the timeline is off: start the job with HOROVOD_TIMELINE=DYNAMIC to start it later"
        )
    world.engine.start_timeline(file_path, mark_cycles)


def stop_timeline() -> None:
    """Stop writing the trace and close the file. ValueError as `start_timeline`."""
    world = current_world()
    if not world.config.timeline:
        raise ValueError("the timeline is off: there is nothing to stop")
    world.engine.stop_timeline()


def snapshot(last: int = 16, patience: float = 2.0) -> list[RankState]:
    """Return the activity of every rank in the job.

    It waits for no rank, so any thread or signal handler can call it while this rank is stuck in an
    operation. Ranks of this host that are stopped or dead appear in their last state. The leaders
    of other hosts are queried through rank 0.

    Args:
        last: The number of completed operations to include per rank of this host; ranks record
            the last 4096.
        patience: The seconds to wait for other hosts' answers; 0: only this host is included.

    Raises:
        ValueError: Before ``init()``, or `last` is negative.
    """
    from sirtaki.core.world.snapshot import states  # most processes never need it

    if last < 0:
        raise ValueError(f"last={last} must not be negative")
    return states(current_world().engine, last, patience)


def mpi_threads_supported() -> bool:
    """Return whether the script may call MPI concurrently with the engine.

    Raises:
        ValueError: Before ``init()``, or operations do not run on MPI.
    """
    current_world()
    if not mpi_enabled():
        raise ValueError("mpi_threads_supported() needs MPI, which is not enabled")
    from sirtaki.backends import mpi

    return mpi.threads_supported()


def mpi_enabled() -> bool:
    """Return whether operations run on MPI."""
    world = _current()
    return world is not None and world.engine.backend_name() == MPI


def mpi_built() -> bool:
    """Return whether MPI can be used: mpi4py and an MPI are installed."""
    from sirtaki.backends import mpi

    return mpi.built()


def gloo_enabled() -> bool:
    """Return whether the native transport, which takes Gloo's place, is used."""
    return not mpi_enabled()


def gloo_built() -> bool:
    """Return whether the native transport, which takes Gloo's place, can be used."""
    return True


def nccl_built() -> int:
    """Return NCCL's version code; 0 without NCCL, a GPU, or PyTorch in this process."""
    return nccl_version()


def ddl_built() -> bool:
    """Return whether IBM DDL can be used: no."""
    return False


def ccl_built() -> bool:
    """Return whether Intel oneCCL can be used: no."""
    return False


def cuda_built() -> bool:
    """Return whether CUDA tensors are reduced on the GPU."""
    return serves_cuda()


def rocm_built() -> bool:
    """Return whether ROCm tensors are reduced on the GPU."""
    return serves_rocm()


def _torch() -> Any:
    """Return PyTorch if the script has imported it, a GPU is visible and NCCL can serve it."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return None
    served = torch.distributed.is_nccl_available() and torch.cuda.is_available()
    return torch if served else None


def nccl_version() -> int:
    """Return NCCL's version code, as NCCL counts since 2.9; 0 without NCCL or a GPU."""
    torch = _torch()
    if torch is None:
        return 0
    major, minor, patch = torch.cuda.nccl.version()[:3]
    return int(major * 10000 + minor * 100 + patch)


def serves_cuda() -> bool:
    """Return whether tensors on NVIDIA's GPUs are reduced there."""
    torch = _torch()
    return torch is not None and torch.version.cuda is not None


def serves_rocm() -> bool:
    """Return whether tensors on AMD's GPUs are reduced there."""
    torch = _torch()
    return torch is not None and torch.version.hip is not None


class _Traced:
    """State of this process that outlives its worlds."""

    tracers: ClassVar[list[Callable[[], bool]]] = []
    has_value = False


def watch_tracing(is_tracing: Callable[[], bool]) -> None:
    """Watch a framework that cannot itself tell when a compiled function is out of date.

    Args:
        is_tracing: Returns whether this thread is tracing a function.
    """
    _Traced.tracers.append(is_tracing)


def note_read() -> None:
    """Record that a value of the world is being read, which a traced function keeps."""
    for is_tracing in _Traced.tracers:
        if is_tracing():
            _Traced.has_value = True


def note_changes() -> None:
    """Record that the program changes values in each new world, which traced functions may keep."""
    _Traced.has_value = True


def functions_depend_on_world() -> bool:
    """Return whether a compiled function may contain a value of a world."""
    return _Traced.has_value
