"""Ranks come together as one world: they learn where the others are and get links to some of them.

The ranks of a host tell their leader, the leaders tell rank 0, and the world that it makes of that
goes back the same way, so the store hears hosts, not ranks.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sirtaki.rendezvous import network, tcp_socket, tcp_store
from sirtaki.rendezvous.auth import own_identity
from sirtaki.rendezvous.gather import exchange_records
from sirtaki.rendezvous.heaps import HeapMemory
from sirtaki.rendezvous.host import join_host
from sirtaki.rendezvous.host_identity import host_identity
from sirtaki.rendezvous.lobby import ControlLink, DataLink, Lobby
from sirtaki.rendezvous.records import RankRecord, WorldRecord
from sirtaki.rendezvous.store import Store
from sirtaki.rendezvous.tcp_socket import Endpoint
from sirtaki.rendezvous.topology import Topology

_NO_HEAP = HeapMemory()
_OBJECT_LABEL = b"sirtaki key of objects\0"


@dataclass(frozen=True)
class Settings:
    """How a rank is to join.

    hostname: its host's name for people. timeout: seconds for everything. secret: the job's 32
    bytes, where it has one. interfaces: network interfaces to use, default those that lead to the
    others. host_id: sets hosts apart that would seem to be one. tls: whether to encrypt what goes
    between hosts, as is also done when the store's address says so. sockets: how many connect two
    ranks on different hosts. direct_hosts: how many of them all talk to each other. Of these two,
    what rank 0 says is done. silent_seconds: how long a host may answer nothing; 0: for ever.
    """

    hostname: str
    timeout: float
    secret: bytes | None = field(default=None, repr=False)
    interfaces: Sequence[str] = ()
    host_id: str = ""
    tls: bool = False
    sockets: int = 1
    direct_hosts: int = 8
    silent_seconds: float = tcp_socket.SILENT_SECONDS


@dataclass
class Joined:
    """What a rank has after `join_world`; the descriptors belong to the caller.

    topology: with all that was not known before, local ranks in the order of ranks. host_of: the
    host of each rank, numbered from 0 by their lowest ranks. hostnames: of each rank's host.
    sharing_cores: how many ranks run on this machine, those in other containers too. core_each:
    whether the ranks of this host can run at a time, each on another core. memfd: the host's shared
    region, -1 in a world of one. heaps: of its ranks, by local rank. bells: what ends a poll of
    each of the host's ranks, where there are several hosts. local_links: (rank, Unix socket) from
    the host's leader to its other ranks and back. host_links: TCP sockets between leaders of hosts.
    sockets: how many connect two ranks. direct_hosts: up to how many hosts all talk to each other.
    object_key: from which the keys that vouch for objects between hosts follow, another one in
    every world; None on one host. connect: opens a data socket to (rank, lane) on another host,
    unless its last argument returns true meanwhile; None on one host.
    why_broken: what ended a connection to a rank, "" where nobody knows. begin: tells `connect`
    that it now serves another engine, the so many-th. close: releases what `connect` needs.
    """

    topology: Topology
    host_of: list[int]
    hostnames: list[str]
    sharing_cores: int = 1
    core_each: bool = True
    memfd: int = -1
    heaps: list[HeapMemory] = field(default_factory=list)
    bells: list[int] = field(default_factory=list)
    local_links: list[tuple[int, int]] = field(default_factory=list)
    host_links: list[ControlLink] = field(default_factory=list, repr=False)
    sockets: int = 1
    direct_hosts: int = 8
    object_key: bytes | None = field(default=None, repr=False)
    connect: Callable[[int, int, Callable[[], bool]], DataLink] | None = None
    why_broken: Callable[[int], str] | None = None
    begin: Callable[[int], None] = lambda generation: None
    close: Callable[[], None] = lambda: None

    @property
    def homogeneous(self) -> bool:
        """Whether every host has the same number of ranks."""
        return len(set(Counter(self.host_of).values())) == 1


def join_world(
    settings: Settings,
    topology: Topology,
    store: Store | None,
    prefix: str,
    region_bytes: Callable[[int], int],
    linked_hosts: Callable[[int, int], Sequence[int]],
    heap: HeapMemory = _NO_HEAP,
) -> Joined:
    """Meet all other ranks; every rank calls it.

    topology: this rank's place; which ranks share a host is found out where it does not say so.
    store: where the ranks meet, needed unless it is one rank alone. prefix: of the store's keys,
    used once only. region_bytes: the size of the memory that so many ranks of a host share.
    linked_hosts: which hosts are linked with one of so many, those before it first. heap: this
    rank's shared heap, for the others of its host.

    Raises TimeoutError naming who did not come in time, ConnectionError when one gave up or cannot
    be reached, ValueError for ranks that contradict each other or run different versions; then
    nothing stays open.
    """
    if topology.size == 1:
        return Joined(Topology(), [0], [settings.hostname])
    if store is None:
        raise ValueError(f"a world of {topology.size} ranks needs a place to meet")
    deadline = time.monotonic() + settings.timeout
    if topology.local_size == topology.size:
        alone = Topology(topology.rank, topology.size, topology.rank, topology.size, 0, 1)
        names = [settings.hostname] * topology.size
        joined = Joined(alone, [0] * topology.size, names, topology.size)
        _share_memory(joined, store, prefix, settings, settings.timeout, region_bytes, heap)
        return joined
    with contextlib.ExitStack() as undo:
        lobby = _make_lobby(settings, topology, store, prefix, deadline)
        undo.callback(lobby.close)
        if settings.secret:
            lobby.open(settings.secret)
        own = _own_record(settings, topology, lobby)
        world = exchange_records(store, prefix, own, settings.secret, settings.timeout, deadline)
        joined = _place(world, topology.rank)
        undo.callback(_close_descriptors, joined)
        if not settings.secret:
            lobby.open(world.secret)
        left = max(1.0, deadline - time.monotonic())
        place = f"{prefix}/memory/{own.host}"
        _share_memory(joined, store, place, settings, left, region_bytes, heap)
        if max(joined.host_of) > 0:
            _link_hosts(joined, lobby, world, linked_hosts)
            secret = settings.secret or world.secret
            joined.object_key = hmac.digest(secret, _OBJECT_LABEL + world.number, "sha256")
        else:
            lobby.close()
        undo.pop_all()
    return joined


def _make_lobby(
    settings: Settings, topology: Topology, store: Store, prefix: str, deadline: float
) -> Lobby:
    over_tcp = store.address.startswith((tcp_store.SCHEME, tcp_store.TLS_SCHEME))
    towards = tcp_store.endpoints_of(store.address) if over_tcp else []
    addresses = network.candidates(towards, settings.interfaces, deadline)
    tls = settings.tls or store.address.startswith(tcp_store.TLS_SCHEME)
    return Lobby(
        topology.rank,
        topology.size,
        prefix,
        addresses,
        settings.timeout,
        tls=tls,
        silent_seconds=settings.silent_seconds,
    )


def _own_record(settings: Settings, topology: Topology, lobby: Lobby) -> RankRecord:
    here = host_identity(settings.hostname, settings.host_id)
    known = topology.local_size > 0
    return RankRecord(
        rank=topology.rank,
        size=topology.size,
        local_rank=topology.local_rank if known else -1,
        local_size=topology.local_size,
        host=here.host,
        machine=here.machine,
        boot=here.boot,
        name=here.name,
        version=own_identity().version,
        endpoints=lobby.endpoints,
        sockets=settings.sockets,
        direct_hosts=settings.direct_hosts,
    )


def _place(world: WorldRecord, rank: int) -> Joined:
    """Number the hosts by their lowest ranks and say where `rank` stands."""
    numbers: dict[str, int] = {}
    host_of = [numbers.setdefault(record.host, len(numbers)) for record in world.ranks]
    counts = [0] * len(numbers)
    places: list[int] = []
    for host in host_of:
        places.append(counts[host])
        counts[host] += 1
    beside = [r for r, place in enumerate(places) if place == places[rank]]
    topology = Topology(
        rank,
        len(world.ranks),
        places[rank],
        counts[host_of[rank]],
        beside.index(rank),
        len(beside),
    )
    names = [record.name for record in world.ranks]
    boots = [record.boot for record in world.ranks]
    sharing_cores = boots.count(boots[rank])
    return Joined(
        topology,
        host_of,
        names,
        sharing_cores,
        sockets=world.ranks[0].sockets,
        direct_hosts=world.ranks[0].direct_hosts,
    )


def _share_memory(
    joined: Joined,
    store: Store,
    prefix: str,
    settings: Settings,
    timeout: float,
    region_bytes: Callable[[int], int],
    heap: HeapMemory,
) -> None:
    """Meet the ranks of this host."""
    topology = joined.topology
    host = joined.host_of[topology.rank]
    here = [rank for rank, other in enumerate(joined.host_of) if other == host]
    met = join_host(
        store,
        prefix,
        topology.local_rank,
        topology.local_size,
        region_bytes(topology.local_size),
        timeout,
        settings.secret,
        heap,
        bells=max(joined.host_of) > 0,
    )
    joined.memfd = met.memfd
    joined.heaps = met.heaps
    joined.bells = met.bells
    joined.core_each = met.core_each
    others = here[1:] if topology.local_rank == 0 else here[:1]
    joined.local_links = list(zip(others, met.links, strict=True))


def _link_hosts(
    joined: Joined,
    lobby: Lobby,
    world: WorldRecord,
    linked_hosts: Callable[[int, int], Sequence[int]],
) -> None:
    """Connect the leaders of the hosts that are to be linked."""
    rank = joined.topology.rank
    machine = world.ranks[rank].machine
    peers = {
        record.rank: _reachable(record, machine) for record in world.ranks if record.rank != rank
    }
    lobby.introduce(peers, joined.hostnames)
    if joined.topology.local_rank == 0:
        for host in linked_hosts(max(joined.host_of) + 1, joined.host_of[rank]):
            joined.host_links.append(lobby.control_link(joined.host_of.index(host)))
    joined.connect = lobby.connect
    joined.why_broken = lobby.why_broken
    joined.begin = lobby.begin
    joined.close = lobby.close


def _reachable(record: RankRecord, machine: str) -> list[Endpoint]:
    """Leave out what would lead back to ourselves instead of to another machine."""
    if record.machine == machine:
        return record.endpoints
    return [end for end in record.endpoints if not tcp_socket.is_loopback(end[0])]


def _close_descriptors(joined: Joined) -> None:
    local = [descriptor for _, descriptor in joined.local_links]
    between = [link.descriptor for link in joined.host_links]
    for descriptor in [joined.memfd, *joined.bells, *local, *between]:
        if descriptor >= 0:
            os.close(descriptor)
    for heap in joined.heaps:
        heap.close()
