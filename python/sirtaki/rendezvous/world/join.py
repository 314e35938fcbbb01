"""Ranks come together as one world: they learn where the others are and get links to some of them.

The ranks of a host send their records to their leader, and the leaders send them to rank 0. Rank 0
makes the world of them, which returns the same way. So the store serves one client a host.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sirtaki.records import dataclass, field
from sirtaki.rendezvous.host.heaps import HeapMemory
from sirtaki.rendezvous.host.identity import host_identity
from sirtaki.rendezvous.host.joining import join_host
from sirtaki.rendezvous.network import interfaces as network
from sirtaki.rendezvous.network import tcp_socket
from sirtaki.rendezvous.network.tcp_socket import Endpoint
from sirtaki.rendezvous.stores import tcp_store
from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.trust import digests
from sirtaki.rendezvous.trust.auth import own_identity
from sirtaki.rendezvous.world.membership import Membership, Topology

if TYPE_CHECKING:
    from sirtaki.rendezvous.world.listener import ControlLink, DataLink, RankListener
    from sirtaki.rendezvous.world.records import RankRecord, WorldRecord

_NO_HEAP = HeapMemory()
_OBJECT_LABEL = b"sirtaki key of objects\0"


@dataclass(frozen=True)
class JoinSettings:
    """Who is to meet, and how a rank is to join.

    wanted: the members. topology: this rank's place among them; which ranks share a host is found
    out where it does not say so. hostname: its host's name for people. timeout: seconds for
    everything. secret: the job's 32 bytes, where it has one. interfaces: network interfaces to use,
    default those that lead to the others. host_id: sets hosts apart that would seem to be one. tls:
    whether to encrypt what goes between hosts, as is also done when the store's address says so.
    direct_hosts: how many hosts all talk to each other; what rank 0 says is done. silent_seconds:
    how long a host may answer nothing; 0: for ever.
    """

    wanted: Membership
    topology: Topology
    hostname: str
    timeout: float
    secret: bytes | None = field(default=None, repr=False)
    interfaces: Sequence[str] = ()
    host_id: str = ""
    tls: bool = False
    direct_hosts: int = 8
    silent_seconds: float = tcp_socket.SILENT_SECONDS


@dataclass
class Joined:
    """What a rank has after `join_world`; the descriptors belong to the caller.

    membership: with everybody's host. rank: ours in it; topology and host_of follow from the two.
    hostnames: of each rank's host. sharing_cores: how many ranks run on this machine, those in
    other containers too. core_each: whether the ranks of this host can run at a time, each on
    another core. memfd: the host's shared region, -1 in a world of one. heaps: of its ranks, by
    local rank. bells: what ends a poll of each of the host's ranks, where there are several hosts.
    local_links: (rank, Unix socket) from the host's leader to its other ranks and back. host_links:
    TCP sockets between leaders of hosts. direct_hosts: up to how many hosts all talk to each other.
    object_key: from which the keys that vouch for objects between hosts follow, another one in
    every world; None on one host. connect: opens a data socket to (rank, number) on another host,
    unless its last argument returns true meanwhile; None on one host. why_broken: what ended a
    connection to a rank, "" where nobody knows. begin: tells `connect` that it now serves another
    engine, the so many-th. close: releases what `connect` needs.
    """

    membership: Membership
    rank: int
    hostnames: list[str]
    sharing_cores: int = 1
    core_each: bool = True
    memfd: int = -1
    heaps: list[HeapMemory] = field(default_factory=list)
    bells: list[int] = field(default_factory=list)
    local_links: list[tuple[int, int]] = field(default_factory=list)
    host_links: list[ControlLink] = field(default_factory=list, repr=False)
    direct_hosts: int = 8
    object_key: bytes | None = field(default=None, repr=False)
    connect: Callable[[int, int, Callable[[], bool]], DataLink] | None = None
    why_broken: Callable[[int], str] | None = None
    begin: Callable[[int], None] = lambda generation: None
    close: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.topology = self.membership.topology(self.rank)
        self.host_of = self.membership.host_of


def join_world(
    settings: JoinSettings,
    store: Store | None,
    prefix: str,
    region_bytes: Callable[[int], int],
    linked_hosts: Callable[[int, int], Sequence[int]],
    heap: HeapMemory = _NO_HEAP,
    slot_bytes: int = 0,
) -> Joined:
    """Meet all other ranks; every rank calls it.

    store: where the ranks meet, needed unless it is one rank alone. prefix: of the store's keys,
    used once only. region_bytes: the size of the memory that so many ranks of a host share.
    linked_hosts: which hosts are linked with one of so many, those before it first. heap: this
    rank's shared heap, for the others of its host. slot_bytes: of the shared memory, a rank's own.

    Raises TimeoutError naming who did not come in time, ConnectionError when one gave up or cannot
    be reached, ValueError for ranks that contradict each other or run different versions; then
    nothing stays open.
    """
    wanted, topology = settings.wanted, settings.topology
    if wanted.size == 1:
        return Joined(wanted.on([0]), 0, [settings.hostname])
    if store is None:
        raise ValueError(f"a world of {wanted.size} ranks needs a place to meet")
    deadline = time.monotonic() + settings.timeout
    if topology.local_size == topology.size:
        names = [settings.hostname] * wanted.size
        joined = Joined(wanted.on(names), topology.rank, names, wanted.size)
        region = (region_bytes(wanted.size), slot_bytes)
        _share_memory(joined, store, prefix, settings, settings.timeout, region, heap)
        return joined
    # Here, because ranks of one host start faster without it.
    from sirtaki.rendezvous.world.gather import Exchange

    with contextlib.ExitStack() as undo:
        listener = _make_listener(settings, store, prefix, deadline)
        undo.callback(listener.close)
        if settings.secret:
            listener.open(settings.secret)
        own = _own_record(settings, listener)
        world = Exchange(store, prefix, own, settings.secret, settings.timeout, deadline).run()
        joined = _place(wanted, world, topology.rank)
        undo.callback(_close_descriptors, joined)
        if not settings.secret:
            listener.open(world.secret)
        left = max(1.0, deadline - time.monotonic())
        place = f"{prefix}/memory/{own.host}"
        region = (region_bytes(joined.topology.local_size), slot_bytes)
        _share_memory(joined, store, place, settings, left, region, heap)
        if max(joined.host_of) > 0:
            _link_hosts(joined, listener, world, linked_hosts)
            secret = settings.secret or world.secret
            joined.object_key = digests.keyed(secret, _OBJECT_LABEL + world.number)
        else:
            listener.close()
        undo.pop_all()
    return joined


def _make_listener(
    settings: JoinSettings, store: Store, prefix: str, deadline: float
) -> RankListener:
    from sirtaki.rendezvous.world.listener import RankListener

    over_tcp = store.address.startswith((tcp_store.SCHEME, tcp_store.TLS_SCHEME))
    towards = tcp_store.endpoints_of(store.address) if over_tcp else []
    addresses = network.candidates(towards, settings.interfaces, deadline)
    tls = settings.tls or store.address.startswith(tcp_store.TLS_SCHEME)
    return RankListener(
        settings.topology.rank,
        settings.wanted.size,
        prefix,
        addresses,
        settings.timeout,
        tls=tls,
        silent_seconds=settings.silent_seconds,
    )


def _own_record(settings: JoinSettings, listener: RankListener) -> RankRecord:
    from sirtaki.rendezvous.world.records import RankRecord

    here = host_identity(settings.hostname, settings.host_id)
    return RankRecord(
        rank=settings.topology.rank,
        size=settings.wanted.size,
        local_rank=settings.topology.local_rank,
        local_size=settings.topology.local_size,
        host=here.host,
        machine=here.machine,
        boot=here.boot,
        name=here.name,
        version=own_identity().version,
        endpoints=listener.endpoints,
        direct_hosts=settings.direct_hosts,
    )


def _place(wanted: Membership, world: WorldRecord, rank: int) -> Joined:
    """Say where everybody stands, and what `rank` is to do."""
    boots = [record.boot for record in world.ranks]
    return Joined(
        wanted.on(record.host for record in world.ranks),
        rank,
        [record.name for record in world.ranks],
        sharing_cores=boots.count(boots[rank]),
        direct_hosts=world.ranks[0].direct_hosts,
    )


def _share_memory(
    joined: Joined,
    store: Store,
    prefix: str,
    settings: JoinSettings,
    timeout: float,
    region: tuple[int, int],
    heap: HeapMemory,
) -> None:
    """Meet the ranks of this host. region: bytes of the memory that they share, and of a slot."""
    topology = joined.topology
    host = joined.host_of[topology.rank]
    here = [rank for rank, other in enumerate(joined.host_of) if other == host]
    met = join_host(
        store,
        prefix,
        topology.local_rank,
        topology.local_size,
        region[0],
        timeout,
        settings.secret,
        heap,
        bells=max(joined.host_of) > 0,
        slot_bytes=region[1],
    )
    joined.memfd = met.memfd
    joined.heaps = met.heaps
    joined.bells = met.bells
    joined.core_each = met.core_each
    others = here[1:] if topology.local_rank == 0 else here[:1]
    joined.local_links = list(zip(others, met.links, strict=True))


def _link_hosts(
    joined: Joined,
    listener: RankListener,
    world: WorldRecord,
    linked_hosts: Callable[[int, int], Sequence[int]],
) -> None:
    """Connect the leaders of the hosts that are to be linked."""
    rank = joined.topology.rank
    machine = world.ranks[rank].machine
    peers = {
        record.rank: _reachable(record, machine) for record in world.ranks if record.rank != rank
    }
    listener.introduce(peers, joined.hostnames)
    if joined.topology.local_rank == 0:
        for host in linked_hosts(max(joined.host_of) + 1, joined.host_of[rank]):
            joined.host_links.append(listener.control_link(joined.host_of.index(host)))
    joined.connect = listener.connect
    joined.why_broken = listener.why_broken
    joined.begin = listener.begin
    joined.close = listener.close


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
