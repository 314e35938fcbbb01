"""One membership in a world: its topology and the engine that serves it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sirtaki import _core
from sirtaki.backends import mpi
from sirtaki.core import kinds
from sirtaki.core.affinity import engine_bound
from sirtaki.core.config import Config, Topology
from sirtaki.core.links import Links, Plan, connect
from sirtaki.core.vouching import Vouching
from sirtaki.rendezvous.join import Joined, Settings
from sirtaki.rendezvous.meeting import Meeting
from sirtaki.rendezvous.tcp_socket import silent_seconds


@dataclass
class World:
    """A running world, from ``init()`` to ``shutdown()``.

    links: what it runs on; closed with it unless another world may use them. launched_as: the
    starter's rank of each of its ranks. at_close: called when its engine has ended.
    """

    topology: Topology
    config: Config
    engine: _core.Engine
    vouching: Vouching
    dynamic_process_sets: bool
    links: Links
    launched_as: Sequence[int]
    at_close: list[Callable[[], None]] = field(default_factory=list)

    @property
    def homogeneous(self) -> bool:
        """Whether every host has the same number of ranks."""
        return self.links.joined.homogeneous

    def close(self) -> Links | None:
        """Leave: what others still wait for fails there. Return what another world may use."""
        ended_well = self.engine.shutdown()
        for end in self.at_close:
            end()
        if ended_well:
            return self.links
        self.links.close()
        return None

    def add_process_set(self, ranks: Sequence[int]) -> int:
        """Register a set on all ranks; return its id."""
        return self._submit(kinds.ADD_SET, "add_process_set", 0, list(ranks)).value

    def ranks_of(self, comm: object) -> list[int]:
        """Return the ranks of an mpi4py communicator's processes, none of COMM_NULL.

        Raises:
            ValueError: Some of them are not in this world.
        """
        launched = self.config.topology
        ranks = mpi.ranks_of(comm, launched.rank, launched.size, or_none=True)
        if not set(ranks) <= set(self.launched_as):
            raise ValueError("the communicator has processes that are not in this world")
        return sorted(self.launched_as.index(rank) for rank in ranks)

    def remove_process_set(self, process_set_id: int) -> None:
        """Forget a set on all ranks."""
        self._submit(kinds.REMOVE_SET, "remove_process_set", process_set_id, [])

    def _submit(self, kind: int, name: str, root: int, splits: list[int]) -> _core.Handle:
        request = _core.Request(kind, name=name, root=root, splits=splits, waits=True)
        return self.engine.submit(request, None)


def make_world(
    config: Config,
    topology: Topology,
    meeting: Meeting | None,
    kept: Links | None,
    number: int,
    group: str,
    dynamic: bool,
    launched_as: Sequence[int],
    library: Any,
) -> World:
    """Join the ranks that `topology` describes; `meeting` is needed unless it is one rank alone.

    Args:
        config: The settings.
        topology: This rank's place.
        meeting: Where the ranks meet.
        kept: Links of an earlier world, closed where they do not serve this one.
        number: How many worlds this process has joined, with this one.
        group: The starter's ranks that form it, "" for all.
        dynamic: Whether process sets may be added and removed later.
        launched_as: The starter's rank of each rank of this world.
        library: What `start_mpi` returned.

    Raises:
        ValueError: Ranks contradict each other or run different versions, the engine cannot run
            where it is to, or what MPI moves cannot be encrypted as TLS promises.
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
        direct_hosts=config.direct_hosts,
        silent_seconds=silent_seconds(config.host_timeout),
    )
    plan = Plan(settings, topology, config.start, config.rendezvous, group)
    links = connect(plan, kept, meeting, f"world/{number}{group}")
    joined = links.joined
    try:
        if library and config.tls:
            _require_one_host(joined.host_of)
        with engine_bound(config.thread_affinity, joined.topology.local_rank):
            engine = _core.Engine(
                links.core,
                options=_options(config, joined),
                backend=library and mpi.MpiBackend(library, launched_as),
            )
    except BaseException:
        links.close()
        raise
    vouching = Vouching(links.object_key, joined.hostnames)
    return World(joined.topology, config, engine, vouching, dynamic, links, launched_as)


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
    options.silent_seconds = silent_seconds(config.host_timeout)
    options.data_timeout_seconds = config.data_timeout
    options.deadlock_seconds = config.deadlock_timeout
    options.has_whole_job = joined.topology.size == config.topology.size
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
    options.direct_hosts = joined.direct_hosts
    options.single_copy = config.single_copy
    options.hosts = joined.hostnames
    machine_cores = os.cpu_count() or 1
    if not joined.core_each or joined.sharing_cores > machine_cores:
        # A polling rank would keep the rank it waits for off its core.
        options.caller_spin_ns = 0
        options.engine_spin_ns = 0
    return options
