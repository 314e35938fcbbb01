"""The process-wide world: what ``init()`` makes and every other function uses."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sirtaki import _core
from sirtaki.backends import mpi
from sirtaki.core import accelerators, memory, shared_heap
from sirtaki.core.config import Config, Topology
from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.links import Links
from sirtaki.core.world import World, make_world, start_mpi
from sirtaki.rendezvous import meeting, network, tcp_store
from sirtaki.rendezvous.meeting import Meeting

if TYPE_CHECKING:
    from sirtaki.core.process_sets import ProcessSet

_NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


class _Process:
    """What this process remembers between worlds."""

    world: World | None = None
    meeting: Meeting | None = None
    links: Links | None = None
    worlds_joined = 0
    owner_pid = 0
    exit_hook_registered = False


def init(
    comm: Sequence[int] | object | None = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
) -> None:
    """Join the world that the environment describes; a world of one without a launcher.

    Calling it again while initialised does nothing.

    Args:
        comm: What forms the world, renumbered in this order: launcher ranks, or an mpi4py
            communicator of them; default all.
        process_sets: Sets to register, the same on all ranks, or ``"dynamic"`` to allow
            ``add_process_set`` later.

    Raises:
        ValueError: The environment is contradictory, this process is not in `comm`, a process
            set is wrong, or MPI is asked for and cannot be used.
        TimeoutError: Some ranks did not come within the start timeout; the message names them.
        ConnectionError: A rank died while joining, or a host cannot be reached.
    """
    if is_initialized():
        return
    config = Config.from_env()
    ranks = _ranks_of(comm, config.topology)
    topology = _topology_of(ranks, config.topology)
    dynamic = config.dynamic_process_sets or process_sets == "dynamic"
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(f'process_sets={process_sets!r} must be a list of sets or "dynamic"')
    memory.keep(config)
    shared_heap.load(config)
    library = start_mpi(config)
    if topology.size > 1:
        meeting_of_start(config)
    _Process.worlds_joined += 1
    group = "" if ranks is None else "." + ".".join(map(str, ranks))
    kept, _Process.links = _Process.links, None
    _own_process()
    launched_as = ranks or range(topology.size)
    _Process.world = make_world(
        config,
        topology,
        _Process.meeting,
        kept,
        _Process.worlds_joined,
        group,
        dynamic,
        launched_as,
        library,
    )
    _core.set_current_engine(_Process.world.engine)
    _start(config, [] if process_sets is None or isinstance(process_sets, str) else process_sets)


def _own_process() -> None:
    """Let what this process holds be released at its end, and not at that of a child of it."""
    _Process.owner_pid = os.getpid()
    if not _Process.exit_hook_registered:
        atexit.register(_leave)
        _Process.exit_hook_registered = True


def meeting_of_start(config: Config) -> Meeting:
    """Return where all ranks of this start meet, the same as long as the process lives."""
    if _Process.meeting is None:
        _Process.meeting = _meet(config)
        _own_process()
    return _Process.meeting


def _meet(config: Config) -> Meeting:
    place = meeting.Place(
        start=config.start,
        rendezvous=config.rendezvous,
        secret_file=config.secret_file,
        interfaces=config.interfaces,
        home=config.shared_folder,
        tls=config.tls,
        timeout=config.start_timeout,
    )
    return meeting.meet(place)


def _leave() -> None:
    """Do what is left to do when the process ends."""
    shutdown()
    if _Process.links is not None:
        _Process.links.close()
        _Process.links = None
    if _Process.meeting is not None and _Process.owner_pid == os.getpid():
        _Process.meeting.close()


def _start(config: Config, process_sets: Sequence[ProcessSet]) -> None:
    """Do what needs a running world; on failure there is none."""
    from sirtaki.core import process_sets as sets

    try:
        if config.timeline and config.timeline != "DYNAMIC":
            current_world().engine.start_timeline(config.timeline, config.timeline_mark_cycles)
        sets._on_init(process_sets)
    except BaseException:
        shutdown()
        raise


def _ranks_of(comm: object, launched: Topology) -> list[int] | None:
    """The starter's ranks that `init` was given, None for all of them."""
    if comm is None:
        return None
    if mpi.is_communicator(comm):
        return mpi.ranks_of(comm, launched.rank, launched.size)
    if not isinstance(comm, Iterable):
        raise TypeError(f"init(comm={comm!r}) takes a list of ranks or an mpi4py communicator")
    return [int(rank) for rank in comm]


def _topology_of(ranks: list[int] | None, launched: Topology) -> Topology:
    if ranks is None:
        return launched
    if not ranks or sorted(ranks) == list(range(launched.size)) == ranks:
        return launched
    if len(set(ranks)) != len(ranks) or min(ranks) < 0 or max(ranks) >= launched.size:
        raise ValueError(f"comm={ranks} must name ranks of 0 to {launched.size - 1}, each once")
    if launched.rank not in ranks:
        raise ValueError(f"rank {launched.rank} called init(comm={ranks}) but is not in it")
    position, size = ranks.index(launched.rank), len(ranks)
    if launched.local_size != launched.size:
        return Topology(position, size, 0, 0, 0, 0)  # who shares a host is found out
    return Topology(position, size, position, size, 0, 1)


def shutdown() -> None:
    """Leave the world; what others still wait for fails there. No effect without a world."""
    from sirtaki.core import process_sets as sets

    world = _Process.world
    if world is None:
        return
    _Process.world = None
    if _Process.owner_pid != os.getpid():
        return  # a forked child has no engine thread and must not speak for its parent
    sets._on_shutdown()
    _Process.links = world.close()
    _core.set_current_engine(None)


def addresses() -> list[str]:
    """Return addresses of this host at which ranks of others may reach it, the likeliest first.

    Raises:
        ValueError: Before ``init()``, or none of the interfaces chosen is up here.
    """
    store = _Process.meeting.store.address if _Process.meeting is not None else ""
    over_tcp = store.startswith((tcp_store.SCHEME, tcp_store.TLS_SCHEME))
    towards = tcp_store.endpoints_of(store) if over_tcp else []
    return network.candidates(towards, current_world().config.interfaces)


def is_initialized() -> bool:
    """Tell whether ``init()`` was called and ``shutdown()`` was not."""
    return _Process.world is not None


def current_world() -> World:
    """Return the world.

    Raises:
        ValueError: There is none.
    """
    if _Process.world is None:
        raise ValueError(_NOT_INITIALIZED)
    return _Process.world


def world_for_operation() -> World:
    """Return the world, for a collective.

    Raises:
        HorovodInternalError: There is none.
    """
    if _Process.world is None:
        raise HorovodInternalError(_NOT_INITIALIZED)
    return _Process.world


def rank() -> int:
    """Return this process's number in the world, from 0. ValueError before ``init()``."""
    return current_world().topology.rank


def size() -> int:
    """Return the number of processes in the world. ValueError before ``init()``."""
    return current_world().topology.size


def local_rank() -> int:
    """Return this process's number on its host. ValueError before ``init()``."""
    return current_world().topology.local_rank


def local_size() -> int:
    """Return the number of processes on this host. ValueError before ``init()``."""
    return current_world().topology.local_size


def cross_rank() -> int:
    """Return this host's number among hosts with this local rank. ValueError before ``init()``."""
    return current_world().topology.cross_rank


def cross_size() -> int:
    """Return the number of hosts with this local rank. ValueError before ``init()``."""
    return current_world().topology.cross_size


def is_homogeneous() -> bool:
    """Tell whether every host has the same number of ranks. ValueError before ``init()``."""
    return current_world().homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Write a Chrome trace from now on; rank 0 writes, elsewhere nothing happens.

    Args:
        file_path: Where to write; an existing file is replaced.
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


def mpi_threads_supported() -> bool:
    """Tell whether the script may call MPI at the same time as the engine does.

    Raises:
        ValueError: Before ``init()``, or operations do not run on MPI.
    """
    current_world()
    if not mpi_enabled():
        raise ValueError("mpi_threads_supported() needs MPI, which is not enabled")
    return mpi.threads_supported()


def mpi_enabled() -> bool:
    """Tell whether operations run on MPI."""
    return _Process.world is not None and _Process.world.engine.backend_name() == mpi.NAME


def mpi_built() -> bool:
    """Tell whether MPI can be used: mpi4py and an MPI are installed."""
    return mpi.built()


def gloo_enabled() -> bool:
    """Tell whether the native transport, which takes Gloo's place, is used."""
    return not mpi_enabled()


def gloo_built() -> bool:
    """Tell whether the native transport, which takes Gloo's place, can be used."""
    return True


def nccl_built() -> int:
    """Return NCCL's version code; 0 without NCCL, a GPU, or PyTorch in this process."""
    return accelerators.nccl_version()


def ddl_built() -> bool:
    """Tell whether IBM DDL can be used: no."""
    return False


def ccl_built() -> bool:
    """Tell whether Intel oneCCL can be used: no."""
    return False


def cuda_built() -> bool:
    """Tell whether CUDA tensors are reduced on the GPU."""
    return accelerators.serves_cuda()


def rocm_built() -> bool:
    """Tell whether ROCm tensors are reduced on the GPU."""
    return accelerators.serves_rocm()
