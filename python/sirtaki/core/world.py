"""One membership in a world: its topology and the engine that serves it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sirtaki import _core
from sirtaki.backends import mpi
from sirtaki.core.config import Config, Topology
from sirtaki.core.vouching import Vouching
from sirtaki.rendezvous.join import Joined, Settings, join_world
from sirtaki.rendezvous.meeting import Meeting

# The core's numbers for the operations that manage process sets.
_ADD_SET = 12
_REMOVE_SET = 13


@dataclass
class World:
    """A running world, from ``init()`` to ``shutdown()``.

    homogeneous: whether every host has the same number of ranks.
    """

    topology: Topology
    config: Config
    engine: _core.Engine
    vouching: Vouching
    dynamic_process_sets: bool
    homogeneous: bool = True
    close_lobby: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Leave: what others still wait for fails there."""
        self.engine.shutdown()
        self.close_lobby()

    def add_process_set(self, ranks: Sequence[int]) -> int:
        """Register a set on all ranks; return its id."""
        return self._submit(_ADD_SET, "add_process_set", 0, list(ranks)).value

    def remove_process_set(self, process_set_id: int) -> None:
        """Forget a set on all ranks."""
        self._submit(_REMOVE_SET, "remove_process_set", process_set_id, [])

    def _submit(self, kind: int, name: str, root: int, splits: list[int]) -> _core.Handle:
        return self.engine.submit(kind, name, 0, 0, root, 0, 1.0, 1.0, [], splits, [], [], True)


def make_world(
    config: Config,
    topology: Topology,
    meeting: Meeting | None,
    prefix: str,
    dynamic: bool,
    launched_as: Sequence[int],
    library: Any,
) -> World:
    """Join the ranks that `topology` describes; `meeting` is needed unless it is one rank alone.

    Args:
        config: The settings.
        topology: This rank's place.
        meeting: Where the ranks meet.
        prefix: Of the keys there, different for every world.
        dynamic: Whether process sets may be added and removed later.
        launched_as: The starter's rank of each rank of this world.
        library: What `start_mpi` returned.

    Raises:
        ValueError: Ranks contradict each other or run different versions, or what MPI moves cannot
            be encrypted as TLS promises.
        TimeoutError: A rank did not come within ``config.start_timeout`` seconds.
        ConnectionError: A rank died while joining, or a host cannot be reached.
    """
    settings = Settings(
        hostname=config.hostname,
        timeout=config.start_timeout,
        secret=meeting.secret if meeting else None,
        interfaces=config.interfaces,
        host_id=config.host_id,
        tls=config.tls,
        sockets=config.sockets_per_peer,
    )
    store = meeting.store if meeting else None
    try:
        joined = join_world(settings, topology, store, prefix, _core.region_bytes)
    except TimeoutError as error:
        if meeting and meeting.advice:
            raise TimeoutError(f"{error}; {meeting.advice}") from error
        raise
    try:
        if library and config.tls:
            _require_one_host(joined.host_of)
        engine = _core.Engine(
            rank=joined.topology.rank,
            host_of=joined.host_of,
            memfd=joined.memfd,
            local_links=joined.local_links,
            host_links=joined.host_links,
            connect=joined.connect,
            why_broken=joined.why_broken,
            options=_options(config, joined),
            backend=library and mpi.MpiBackend(library, launched_as),
        )
    except BaseException:
        joined.close()
        raise
    vouching = Vouching(joined.object_key, joined.hostnames)
    return World(
        joined.topology, config, engine, vouching, dynamic, joined.homogeneous, joined.close
    )


def start_mpi(config: Config) -> Any:
    """Return MPI, started, or None when it is not to move the data.

    Comes before the ranks meet: the start of MPI holds the GIL until all ranks have come to it, and
    rank 0 may be the one that serves the others' meeting.

    Raises:
        ValueError: MPI cannot be used here, or counts the ranks differently.
    """
    if config.backend != mpi.NAME:
        return None
    library = mpi.library(config.mpi_threads)
    mpi.require_same_world(library, config.topology.rank, config.topology.size)
    return library


def _require_one_host(host_of: Sequence[int]) -> None:
    if len(set(host_of)) > 1:
        raise ValueError(
            "SIRTAKI_TLS=1 cannot encrypt what MPI moves between hosts: choose "
            "SIRTAKI_BACKEND=native, or do without --tls where the network is your own"
        )


def _options(config: Config, joined: Joined) -> _core.EngineOptions:
    options = _core.EngineOptions()
    options.fusion_bytes = config.fusion_threshold
    options.chunk_bytes = config.chunk_bytes
    options.cache_capacity = config.cache_capacity
    options.stall_warning_seconds = config.stall_warning_seconds
    options.stall_shutdown_seconds = config.stall_shutdown_seconds
    options.host_timeout_seconds = config.host_timeout
    options.log_level = config.log_level
    options.log_time = config.log_time
    tune = options.autotune
    tune.enabled = config.autotune.enabled
    tune.log = config.autotune.log
    tune.warmup_samples = config.autotune.warmup_samples
    tune.steps_per_sample = config.autotune.steps_per_sample
    tune.max_samples = config.autotune.max_samples
    tune.chunk_fixed = config.autotune.chunk_fixed
    tune.fusion_fixed = config.autotune.fusion_fixed
    options.sockets_per_peer = joined.sockets
    options.single_copy = config.single_copy
    options.hosts = joined.hostnames
    machine_cores = os.cpu_count() or 1
    if joined.topology.local_size > joined.cores or joined.sharing_cores > machine_cores:
        # A polling rank would keep the rank it waits for off its core.
        options.caller_spin_ns = 0
        options.engine_spin_ns = 0
    return options
