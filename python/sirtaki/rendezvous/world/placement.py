"""Placements: values that can be sent, with all that a process needs to join a world."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from sirtaki.rendezvous.network import interfaces as network
from sirtaki.rendezvous.stores import unix_store
from sirtaki.rendezvous.stores.store import LAUNCHED_HOSTS_KEY
from sirtaki.rendezvous.stores.store_server import StoreServer
from sirtaki.rendezvous.stores.tcp_store import SCHEME, TLS_SCHEME, TcpStoreServer
from sirtaki.rendezvous.stores.unix_store import UnixStoreServer
from sirtaki.rendezvous.trust.auth import SECRET_BYTES
from sirtaki.rendezvous.world.membership import Membership, Topology


@dataclass(frozen=True)
class Placement:
    """The place of one process in a world, and where the world meets: all that ``init`` needs.

    It can be pickled and sent to that process over any channel that keeps its secret.

    Attributes:
        rank: From 0; each rank of a world is one process.
        size: The number of processes in the world.
        store: The address of the store where they meet, in the form of ``SIRTAKI_RENDEZVOUS``.
        secret: The job's 32 bytes, by which processes authenticate; a store over TCP needs it.
        epoch: The number of this attempt to form a world; the starter of processes increases it.
        local_rank: The rank's number on its host.
        local_size: The number of ranks on its host; 0: the ranks determine it when they meet.
        cross_rank: The host's number among the hosts that have this local rank.
        cross_size: The number of these hosts.
        host_id: A text that distinguishes hosts; "": the machine's own identity.

    Raises:
        ValueError: A number does not fit its limit, or a store over TCP has no secret.
    """

    rank: int
    size: int
    store: str
    secret: bytes | None = field(default=None, repr=False)
    epoch: int = 0
    local_rank: int = 0
    local_size: int = 0
    cross_rank: int = 0
    cross_size: int = 0
    host_id: str = ""

    def __post_init__(self) -> None:
        """Check the values."""
        limits = [("rank", self.rank, "size", self.size)]
        if self.local_size:
            limits.append(("local_rank", self.local_rank, "local_size", self.local_size))
            limits.append(("cross_rank", self.cross_rank, "cross_size", self.cross_size))
            limits.append(("local_size", self.local_size - 1, "size", self.size))
        for name, value, limit_name, limit in limits:
            if not 0 <= value < limit:
                raise ValueError(f"{self}: {name} does not fit {limit_name}")
        if self.epoch < 0:
            raise ValueError(f"{self}: epoch is negative")
        known = (unix_store.SCHEME, SCHEME, TLS_SCHEME)
        if not self.store.startswith(known):
            raise ValueError(f"{self}: store must begin with one of {', '.join(known)}")
        has_secret = self.secret is not None and len(self.secret) == SECRET_BYTES
        if not self.store.startswith(unix_store.SCHEME) and not has_secret:
            raise ValueError(f"{self}: a store over TCP needs a secret of {SECRET_BYTES} bytes")

    @property
    def encrypts(self) -> bool:
        """Whether connections between hosts must be encrypted."""
        return self.store.startswith(TLS_SCHEME)

    @property
    def topology(self) -> Topology:
        """The place as a topology."""
        return Topology(*(getattr(self, name) for name in Topology._fields))


@contextlib.contextmanager
def placements(
    n: int,
    hosts: Sequence[str] | None = None,
    *,
    anywhere: bool = False,
    epoch: int = 0,
    interfaces: Sequence[str] = (),
    tls: bool = False,
) -> Iterator[list[Placement]]:
    """Make the placements of a world's processes, and serve the store where they meet.

    Leave the context when all processes have returned from ``init``. Processes that call it later
    cannot meet; those that have met no longer need the store.

    Args:
        n: The number of processes.
        hosts: A string for each rank that identifies its host; default: all are on this host.
        anywhere: The processes may be on any host that reaches this one, and determine themselves
            which of them share a host. Do not give `hosts` too.
        epoch: The number of the attempt; increase it when the same processes try again.
        interfaces: The network interfaces at which the store listens; default: all that are up.
        tls: Whether connections between hosts are encrypted.

    Yields:
        One placement for each rank.

    Raises:
        ValueError: `n` is below 1, or `hosts` has another length or comes with `anywhere`.
        OSError: The store cannot listen.
    """
    with served_placements(
        n, hosts, anywhere=anywhere, epoch=epoch, interfaces=interfaces, tls=tls
    ) as (places, _):
        yield places


@contextlib.contextmanager
def served_placements(
    n: int,
    hosts: Sequence[str] | None = None,
    *,
    anywhere: bool = False,
    epoch: int = 0,
    interfaces: Sequence[str] = (),
    tls: bool = False,
) -> Iterator[tuple[list[Placement], StoreServer]]:
    """See `placements`; also yields the store, so that its owner can set more values."""
    if n < 1:
        raise ValueError(f"placements({n}): a world needs at least one process")
    if hosts is not None and (anywhere or len(hosts) != n):
        raise ValueError(
            f"placements({n}, hosts={list(hosts)}, anywhere={anywhere}): give one host a rank, or "
            "anywhere=True alone"
        )
    membership = Membership.of(epoch, range(n), [""] * n if hosts is None else hosts)
    here = hosts is None and not anywhere
    secret = None if here else os.urandom(SECRET_BYTES)
    server = _serve(secret, hosts, interfaces, tls)
    server.start()
    try:
        place = partial(Placement, store=server.address, secret=secret, epoch=epoch)
        names = enumerate([""] * n if hosts is None else hosts)
        yield (
            [
                place(rank, n)
                if anywhere
                else place(host_id=host, **membership.topology(rank)._asdict())
                for rank, host in names
            ],
            server,
        )
    finally:
        server.close()


def _serve(
    secret: bytes | None, hosts: Sequence[str] | None, interfaces: Sequence[str], tls: bool
) -> StoreServer:
    if secret is None:
        return UnixStoreServer()
    server = TcpStoreServer(network.candidates((), interfaces), secret, tls=tls)
    if hosts is not None:
        server.put(LAUNCHED_HOSTS_KEY, json.dumps(list(hosts)).encode())
    return server
