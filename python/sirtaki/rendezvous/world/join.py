"""Joins ranks to one world: they learn where the others are, and get links to some of them.

The ranks of a host send their records to their leader, and the leaders send them to rank 0. Rank 0
combines them to the world, which returns the same way. So the store serves one client per host.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sirtaki.rendezvous.host.joining import HeapMemory, join_host
from sirtaki.rendezvous.host.presence import own_boot
from sirtaki.rendezvous.network import interfaces as network
from sirtaki.rendezvous.network import tcp_socket
from sirtaki.rendezvous.network.tcp_socket import Endpoint
from sirtaki.rendezvous.stores import tcp_store
from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.trust import digests
from sirtaki.rendezvous.trust.auth import own_identity, repr_without
from sirtaki.rendezvous.world.membership import Membership, Topology

if TYPE_CHECKING:
    from sirtaki.rendezvous.world.listener import ControlLink, DataLink, RankListener
    from sirtaki.rendezvous.world.records import RankRecord, WorldRecord

_NO_HEAP = HeapMemory()
_OBJECT_LABEL = b"sirtaki key of objects\0"
_WORLD_LABEL = b"sirtaki key of a world\0"


class JoinSettings(NamedTuple):
    """The members of a world, and how a rank joins them.

    wanted: the members. topology: this rank's place among them; if it does not show which ranks
    share a host, the ranks determine that. hostname: its host's name for people. timeout: seconds
    for everything. secret: the job's 32 bytes, if it has one. interfaces: network interfaces to
    use, default those that lead to the others. host_id: distinguishes hosts that would seem to be
    one. tls: whether to encrypt traffic between hosts; a store's address may demand it too.
    direct_hosts: up to how many hosts are all linked to each other; rank 0's value counts.
    silent_seconds: how long a host may be silent; 0: for ever. place: the name of the meetings of a
    host's ranks with a secret, which are not counted; "": the prefix of the store's keys.
    taken_now: whether ranks allocate their shared memory when they meet, or page by page.
    """

    wanted: Membership
    topology: Topology
    hostname: str
    timeout: float
    secret: bytes | None = None
    interfaces: Sequence[str] = ()
    host_id: str = ""
    tls: bool = False
    direct_hosts: int = 8
    silent_seconds: float = tcp_socket.SILENT_SECONDS
    place: str = ""
    taken_now: bool = True

    def __repr__(self) -> str:
        return repr_without(self, "secret")


class Joined:
    """A rank's result of `join_world`; the descriptors belong to the caller.

    membership: with the members' hosts. rank: ours in it; topology and host_of follow from the two.
    hostnames: of each rank's host. sharing_cores: how many ranks run on this machine, including
    other containers. core_each: whether the ranks of this host can run at the same time, each on
    its own core. memfd: the host's shared region, -1 in a world of one rank. heaps: of its ranks,
    by local rank. event_descriptors: eventfds that wake each of the host's ranks, if there are
    several hosts. local_links: (rank, Unix socket) from the host's leader to its other ranks and
    back. host_links: TCP sockets between leaders of hosts. direct_hosts: up to how many hosts are
    all linked. object_key: the base of the keys that authenticate objects between hosts, different
    in every world; None on one host. key: shared by all ranks only, b"" in a world of one rank.
    connect: opens a data socket to (rank, number) on another host, unless its last argument returns
    true meanwhile; None on one host. why_broken: what ended a connection to a rank, "" if unknown.
    begin: makes `connect` serve the engine with a given number. close: releases the resources of
    `connect`.
    """

    def __init__(
        self,
        membership: Membership,
        rank: int,
        hostnames: list[str],
        sharing_cores: int = 1,
        direct_hosts: int = 8,
    ) -> None:
        self.membership = membership
        self.rank = rank
        self.topology = membership.topology(rank)
        self.host_of = membership.host_of
        self.hostnames = hostnames
        self.sharing_cores = sharing_cores
        self.core_each = True
        self.memfd = -1
        self.heaps: list[HeapMemory] = []
        self.event_descriptors: list[int] = []
        self.local_links: list[tuple[int, int]] = []
        self.host_links: list[ControlLink] = []
        self.direct_hosts = direct_hosts
        self.object_key: bytes | None = None
        self.key = b""
        self.connect: Callable[[int, int, Callable[[], bool]], DataLink] | None = None
        self.why_broken: Callable[[int], str] | None = None
        self.begin: Callable[[int], None] = lambda generation: None
        self.close: Callable[[], None] = lambda: None


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

    store: where the ranks meet, needed unless there is only one rank. prefix: of the store's keys,
    used once only. region_bytes: the size of a host's shared memory, by its number of ranks.
    linked_hosts: by the number of hosts and a host's number, the hosts linked with it, lower ones
    first. heap: this rank's shared arrays, for the others of its host. slot_bytes: of this rank.

    Raises TimeoutError naming the ranks that did not come in time, ConnectionError when one gave up
    or cannot be reached, ValueError for ranks that contradict each other or run different versions;
    then nothing stays open.
    """
    wanted, topology = settings.wanted, settings.topology
    if wanted.size == 1:
        return Joined(wanted.on([0]), 0, [settings.hostname])
    if store is None:
        raise ValueError(f"a world of {wanted.size} ranks needs a place to meet")
    deadline = time.monotonic() + settings.timeout
    here = settings.place or prefix
    if topology.local_size == topology.size:
        names = [settings.hostname] * wanted.size
        joined = Joined(wanted.on(names), topology.rank, names, wanted.size)
        region = (region_bytes(wanted.size), slot_bytes)
        _share_memory(joined, store, here, settings, settings.timeout, region, heap)
        return joined
    # Here, because ranks of one host start faster without it.
    from sirtaki.rendezvous.world.gather import Exchange

    with contextlib.ExitStack() as undo:
        listener = _make_listener(settings, store, here, deadline)
        undo.callback(listener.close)
        if settings.secret:
            listener.open(settings.secret)
        own = _own_record(settings, listener)
        world = Exchange(
            store, prefix, here, own, settings.secret, settings.timeout, deadline
        ).run()
        joined = _place(wanted, world, topology.rank)
        undo.callback(_close_descriptors, joined)
        several_hosts = max(joined.host_of) > 0
        secret = settings.secret
        if not secret and several_hosts:
            secret = _agree(store, prefix, settings, deadline)
            listener.open(secret)
        left = max(1.0, deadline - time.monotonic())
        place = f"{here}/memory/{own.host}/{world.number.hex()}"
        region = (region_bytes(joined.topology.local_size), slot_bytes)
        _share_memory(joined, store, place, settings, left, region, heap)
        if several_hosts and secret:
            _link_hosts(joined, listener, world, linked_hosts)
            joined.key = digests.keyed(secret, _WORLD_LABEL + world.number)
            joined.object_key = digests.keyed(secret, _OBJECT_LABEL + world.number)
        else:
            listener.close()
        undo.pop_all()
    return joined


def _agree(store: Store, prefix: str, settings: JoinSettings, deadline: float) -> bytes:
    from sirtaki.rendezvous.trust.agreement import agree  # jobs of our launcher have a secret

    topology = settings.topology
    return agree(store, f"{prefix}/agreement", topology.rank, topology.size, deadline)


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
    """Return the result for `rank` with the places of all ranks, before any connection."""
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
    """Meet the ranks of this host. region: bytes of their shared memory, and of a slot."""
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
        event_descriptors=max(joined.host_of) > 0,
        slot_bytes=region[1],
        taken_now=settings.taken_now,
    )
    joined.memfd = met.memfd
    joined.heaps = met.heaps
    joined.event_descriptors = met.event_descriptors
    joined.core_each = met.core_each
    joined.key = met.key
    others = here[1:] if topology.local_rank == 0 else here[:1]
    joined.local_links = list(zip(others, met.links, strict=True))


def _link_hosts(
    joined: Joined,
    listener: RankListener,
    world: WorldRecord,
    linked_hosts: Callable[[int, int], Sequence[int]],
) -> None:
    """Connect the leaders of linked hosts."""
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
    """Return a rank's endpoints without those that lead back to this machine."""
    if record.machine == machine:
        return record.endpoints
    return [end for end in record.endpoints if not tcp_socket.is_loopback(end[0])]


def _close_descriptors(joined: Joined) -> None:
    local = [descriptor for _, descriptor in joined.local_links]
    between = [link.descriptor for link in joined.host_links]
    for descriptor in [joined.memfd, *joined.event_descriptors, *local, *between]:
        if descriptor >= 0:
            os.close(descriptor)
    for heap in joined.heaps:
        heap.close()


_NETWORK = Path("/proc/self/ns/net")


class HostIdentity(NamedTuple):
    """The identity of a rank's host.

    host: equal for ranks that share memory and Unix sockets. machine: equal for ranks that share
    the loopback interface. boot: equal for ranks that share processor cores. name: for people.
    """

    host: str
    machine: str
    boot: str
    name: str


def host_identity(name: str, host_id: str = "") -> HostIdentity:
    """Return this process's. name: of the host, by the launcher. host_id: distinguishes hosts."""
    boot = own_boot() or socket.gethostname()
    network = 0
    with contextlib.suppress(OSError):
        network = _NETWORK.stat().st_ino
    machine = f"{boot} {network}"
    host = f"{machine} {os.geteuid()} {name} {host_id}"
    return HostIdentity(_digest(host), _digest(machine), _digest(boot), name)


def _digest(text: str) -> str:
    return digests.sha256(text.encode()).hex()[:32]
