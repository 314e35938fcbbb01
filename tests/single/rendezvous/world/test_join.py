"""Ranks of several hosts become one world: places, links that work, and ranks that do not fit."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import struct
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki import _core
from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.stores.tcp_store import TcpStore, TcpStoreServer
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.world import join as join_module
from sirtaki.rendezvous.world import records
from sirtaki.rendezvous.world.join import Joined, JoinSettings, join_world
from sirtaki.rendezvous.world.membership import Membership, Topology
from sirtaki.rendezvous.world.records import RankRecord, WorldRecord
from tests.single.rendezvous.memory_store import MemoryStore

SECRET = bytes(range(32))
TIMEOUT = 20.0


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    before = len(list(pathlib.Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(pathlib.Path("/proc/self/fd").iterdir())) == before


def place(hosts: Sequence[int], rank: int) -> Topology:
    """Where a rank stands on hosts with so many ranks each, one host after another."""
    host_of = [host for host, ranks in enumerate(hosts) for _ in range(ranks)]
    return Membership.of(0, range(len(host_of)), host_of).topology(rank)


def settings_of(hosts: Sequence[int], rank: int) -> JoinSettings:
    """What the launcher tells a rank of such hosts."""
    host = next(number for number in range(len(hosts)) if rank < sum(hosts[: number + 1]))
    wanted = Membership.of(0, range(sum(hosts)))
    return JoinSettings(
        wanted, place(hosts, rank), f"node-{host}", TIMEOUT, None, (), f"host {host}"
    )


Change = Callable[[JoinSettings], JoinSettings]


def join(
    hosts: Sequence[int],
    store: Store | None = None,
    change: Change = lambda settings: settings,
    ranks: Sequence[int] | None = None,
    prefix: str = "world/1",
    linked_hosts: Callable[[int, int], Sequence[int]] = _core.linked_hosts,
) -> list[Future[Joined]]:
    """Let ranks of fake hosts, threads here, join; wait until all have an outcome."""
    meeting = store or MemoryStore()
    chosen = range(sum(hosts)) if ranks is None else ranks
    with ThreadPoolExecutor(len(chosen)) as pool:
        where = (meeting, prefix, lambda n: 4096 * n, linked_hosts)
        return [
            pool.submit(join_world, change(settings_of(hosts, rank)), *where) for rank in chosen
        ]


def unknown(settings: JoinSettings) -> JoinSettings:
    return settings._replace(topology=settings.wanted.topology(settings.topology.rank))


def links_of(world: Joined) -> list[tuple[int, int]]:
    return world.local_links + [(link.rank, link.descriptor) for link in world.host_links]


def leave(worlds: Sequence[Joined]) -> None:
    for world in worlds:
        for descriptor in [
            world.memfd,
            *world.event_descriptors,
            *(fd for _, fd in links_of(world)),
        ]:
            os.close(descriptor)
        world.close()


def read(descriptor: int, count: int) -> bytes:
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.settimeout(TIMEOUT)
        return sock.recv(count, socket.MSG_WAITALL)


def test_how_many_hosts_talk_directly_is_what_rank_0_says() -> None:
    def differ(settings: JoinSettings) -> JoinSettings:
        return settings._replace(direct_hosts=3 + settings.topology.rank)

    worlds = [future.result() for future in join([1, 1], None, differ)]
    assert [world.direct_hosts for world in worlds] == [3, 3]
    leave(worlds)


@pytest.mark.parametrize("hosts", [[1, 1], [2, 1], [1, 2], [2, 2], [2, 1, 3]])
@pytest.mark.parametrize("told", [True, False])
def test_every_rank_gets_its_place_and_links_that_carry_bytes(hosts: list[int], told: bool) -> None:
    worlds = [future.result() for future in join(hosts, None, *([] if told else [unknown]))]
    host_of = [host for host, ranks in enumerate(hosts) for _ in range(ranks)]
    leaders = [host_of.index(host) for host in range(len(hosts))]
    sent = {}
    for rank, world in enumerate(worlds):
        assert world.host_of == host_of
        assert world.hostnames == [f"node-{host}" for host in host_of]
        assert world.topology == place(hosts, rank)
        assert os.fstat(world.memfd).st_size == 4096 * hosts[host_of[rank]]
        here = [r for r, host in enumerate(host_of) if host == host_of[rank]]
        assert [r for r, _ in world.local_links] == (here[1:] if rank == here[0] else here[:1])
        controls = leaders[1:] if rank == 0 else leaders[:1] if rank in leaders else []
        assert [link.rank for link in world.host_links] == controls
        for peer, link in links_of(world):
            assert not os.get_blocking(link)
            assert not os.get_inheritable(link)
            sent[peer, rank] = link
            os.write(link, struct.pack("!II", rank, peer))
    for (peer, rank), link in sent.items():
        assert struct.unpack("!II", read(link, 8)) == (peer, rank)
    leave(worlds)


@pytest.mark.parametrize(
    ("hosts", "homogeneous"),
    [([1, 1], True), ([2, 2], True), ([1, 2, 3], False), ([2, 1], False), ([1, 2, 2, 1], False)],
)
def test_all_ranks_agree_whether_hosts_have_equally_many(
    hosts: list[int], homogeneous: bool
) -> None:
    worlds = [future.result() for future in join(hosts)]
    assert [world.membership.homogeneous for world in worlds] == [homogeneous] * sum(hosts)
    leave(worlds)


def test_every_pair_on_different_hosts_can_open_lanes() -> None:
    worlds = [future.result() for future in join([2, 1, 1])]
    pairs = [
        (rank, peer, number)
        for rank, world in enumerate(worlds)
        for peer in range(4)
        for number in (0, 1, 7)
        if world.host_of[rank] != world.host_of[peer]
    ]
    with ThreadPoolExecutor(len(pairs)) as pool:
        opened = [pool.submit(worlds[r].connect, peer, number) for r, peer, number in pairs]
    made = dict(zip(pairs, (future.result() for future in opened), strict=True))
    links = {key: link.descriptor for key, link in made.items()}
    for (rank, peer, number), link in made.items():
        # Both ends, and they alone, have the keys that vouch for what is said there.
        assert (link.sending, link.receiving) == made[peer, rank, number][:0:-1]
    assert len({link.sending for link in made.values()}) == len(made)
    for key, link in links.items():
        assert not os.get_blocking(link)
        assert not os.get_inheritable(link)
        os.write(link, struct.pack("!III", *key))
    for (rank, peer, number), link in links.items():
        assert struct.unpack("!III", read(link, 12)) == (peer, rank, number)
        os.close(link)
    leave(worlds)


def test_links_between_hosts_notice_a_silent_peer() -> None:
    worlds = [future.result() for future in join([1, 1])]
    for world in worlds:
        with socket.socket(fileno=os.dup(world.host_links[0].descriptor)) as sock:
            for level, option, value in (
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2),
                (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
                (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 4000),
            ):
                assert sock.getsockopt(level, option) == value
    leave(worlds)


def test_local_ranks_may_be_in_another_order_than_ranks() -> None:
    def swapped(settings: JoinSettings) -> JoinSettings:
        topology = settings.topology
        other = topology.local_size - 1 - topology.local_rank
        return settings._replace(topology=topology._replace(local_rank=other))

    for hosts in ([2, 2], [3]):
        worlds = [future.result() for future in join(hosts, None, swapped)]
        assert [world.topology.local_rank for world in worlds] == [
            place(hosts, rank).local_rank for rank in range(len(worlds))
        ]
        leader, member = worlds[0].local_links[0][1], worlds[1].local_links[0][1]
        os.write(leader, b"x")
        assert read(member, 1) == b"x"
        leave(worlds)


def test_leaders_of_linked_hosts_are_connected_and_no_others() -> None:
    def chain(hosts: int, host: int) -> list[int]:
        return [near for near in (host - 1, host + 1) if 0 <= near < hosts]

    worlds = [future.result() for future in join([2, 1, 2, 1], linked_hosts=chain)]
    linked = [[link.rank for link in world.host_links] for world in worlds]
    assert linked == [[2], [], [0, 3], [2, 5], [], [3]]
    os.write(worlds[3].host_links[1].descriptor, b"down")
    assert read(worlds[5].host_links[0].descriptor, 4) == b"down"
    leave(worlds)


def test_up_to_33_hosts_are_a_star_around_the_first_and_more_are_a_tree() -> None:
    assert _core.linked_hosts(33, 0) == list(range(1, 33))
    assert _core.linked_hosts(33, 7) == [0]
    assert len(_core.linked_hosts(1250, 0)) == 32
    assert all(len(_core.linked_hosts(1250, host)) <= 33 for host in range(1250))


def test_the_world_of_ten_thousand_ranks_takes_a_rank_a_few_mebibytes() -> None:
    size = 10_000
    message = records.pack_world(
        WorldRecord(
            [
                RankRecord(
                    rank,
                    size,
                    rank % 8,
                    8,
                    *(f"{what}-{rank // 8:032}" for what in ("host", "machine", "boot", "name")),
                    "1.0.0",
                    [(f"10.0.{rank // 2000}.{rank // 8 % 250}", 40_000), ("127.0.0.1", 40_000)],
                )
                for rank in range(size)
            ]
        )
    )
    tracemalloc.start()
    try:
        world = records.parse(message)
        joined = join_module._place(Membership.of(0, range(size)), world, 4321)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert joined.topology == Topology(4321, size, 1, 8, 540, 1250)
    assert max(joined.host_of) == 1249
    assert kept < 16 << 20
    assert most < 32 << 20


def test_ranks_that_share_a_host_without_being_told_need_no_network() -> None:
    def together(settings: JoinSettings) -> JoinSettings:
        return unknown(settings._replace(hostname="one", host_id=""))

    worlds = [future.result() for future in join([1, 1, 1], None, together)]
    assert [world.topology for world in worlds] == [Topology(r, 3, r, 3, 0, 1) for r in range(3)]
    assert all(world.connect is None and world.host_links == [] for world in worlds)
    leave(worlds)


def test_a_world_of_one_needs_nothing() -> None:
    settings = JoinSettings(Membership.of(0, [7]), Topology(), "here", 1)
    joined = join_world(settings, None, "p", lambda n: n, _core.linked_hosts)
    assert joined.topology == Topology()
    assert (joined.host_of, joined.hostnames, joined.memfd) == ([0], ["here"], -1)


class CountingStore(TcpStore):
    requests = 0

    def _connect(self, deadline: float) -> socket.socket:
        CountingStore.requests += 1
        return super()._connect(deadline)


def test_the_store_over_tcp_hears_hosts_and_not_ranks() -> None:
    def with_secret(settings: JoinSettings) -> JoinSettings:
        return settings._replace(secret=SECRET)

    with TcpStoreServer(["127.0.0.1"], SECRET) as server:
        counts = []
        for number, hosts in enumerate(([2, 2, 2], [5, 5, 5])):
            CountingStore.requests = 0
            store = CountingStore(server.address, TIMEOUT, SECRET)
            leave([f.result() for f in join(hosts, store, with_secret, prefix=f"w/{number}")])
            counts.append(CountingStore.requests)
        assert counts[0] == counts[1]


# ---- Ranks that do not come, or do not fit ----


def in_a_hurry(settings: JoinSettings) -> JoinSettings:
    return settings._replace(timeout=1.0)


def failures(futures: Sequence[Future[Joined]], kind: type[Exception]) -> list[str]:
    told = []
    for future in futures:
        with pytest.raises(kind) as found:
            future.result()
        told.append(str(found.value))
    return told


def test_hosts_that_do_not_come_are_named_on_every_rank() -> None:
    store = MemoryStore()
    store.set("launch/hosts", json.dumps(["a", "a", "b", "c", "c"]).encode())
    told = failures(join([2, 1, 2], store, in_a_hurry, ranks=[0, 1, 2]), TimeoutError)
    assert all("host c (ranks [3, 4]) did not come within 1 s" in message for message in told)


def test_ranks_that_do_not_come_are_named_without_a_launchers_list() -> None:
    (message, *_) = failures(join([1, 1, 1, 1], None, in_a_hurry, ranks=[0, 2]), TimeoutError)
    assert "ranks [1, 3] of 4 did not come within 1 s" in message


def test_a_missing_local_rank_is_named_on_every_host() -> None:
    told = failures(join([2, 3], None, in_a_hurry, ranks=[0, 1, 2, 4]), TimeoutError)
    for message in told:
        assert "local ranks [1] of the 3 that the launcher started on node-1 did not" in message


def test_ranks_said_to_share_a_host_that_cannot_meet_say_what_to_look_at() -> None:
    def apart(settings: JoinSettings) -> JoinSettings:
        return in_a_hurry(settings)._replace(host_id=f"container {settings.topology.rank}")

    outcomes = join([2, 1], None, apart)
    (message,) = failures([outcomes[1]], TimeoutError)
    assert "rank 1 (local rank 1 on node-0)" in message
    assert "network namespace" in message
    failures([outcomes[0], outcomes[2]], TimeoutError)


def test_two_processes_with_one_local_rank_are_named() -> None:
    def twice(settings: JoinSettings) -> JoinSettings:
        local_rank = min(settings.topology.local_rank, 1)
        return settings._replace(topology=settings.topology._replace(local_rank=local_rank))

    for message in failures(join([3, 1], None, twice), ValueError):
        assert "both have local rank 1" in message


def test_two_leaders_on_one_host_are_told() -> None:
    def same(settings: JoinSettings) -> JoinSettings:
        return settings._replace(hostname="n", host_id="", secret=SECRET, timeout=2.0)

    outcomes = join([2, 2], None, same)
    told = [str(future.exception()) for future in outcomes]
    assert any("two ranks of this host have local rank 0" in message for message in told)
    assert all(future.exception() is not None for future in outcomes)


def test_ranks_that_count_differently_are_told() -> None:
    def more(settings: JoinSettings) -> JoinSettings:
        size = 3 if settings.topology.rank == 1 else 2
        return settings._replace(wanted=Membership.of(0, range(size)))

    for message in failures(join([1, 1], None, more), ValueError):
        assert "rank 1 (node-1) counts 3 ranks, rank 0 (node-0) counts 2" in message


def test_versions_that_differ_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sirtaki.rendezvous.world.join as joining

    versions = iter(("1.0", "2.0"))
    monkeypatch.setattr(joining, "own_identity", lambda: auth.Identity("h", next(versions, "2.0")))
    for message in failures(join([1, 1]), ValueError):
        assert "version mismatch: host node-" in message
        assert "install the same version on all hosts" in message


def test_an_interface_that_does_not_exist_is_told() -> None:
    def nowhere(settings: JoinSettings) -> JoinSettings:
        return settings._replace(interfaces=("nope7",))

    for message in failures(join([1, 1], None, nowhere), ValueError):
        assert "'nope7'" in message
        assert "lo (127.0.0.1" in message


# ---- Records ----

TEXT = st.text(max_size=20)
RANKS = st.builds(
    lambda rank, more, **rest: RankRecord(rank=rank, size=rank + 1 + more, **rest),
    rank=st.integers(0, 2000),
    more=st.integers(0, 2000),
    local_rank=st.integers(-1, 9),
    local_size=st.integers(0, 9),
    host=TEXT,
    machine=TEXT,
    boot=TEXT,
    name=TEXT,
    version=TEXT,
    endpoints=st.lists(st.tuples(TEXT, st.integers(1, 65535)), max_size=3),
)


@given(st.lists(RANKS, max_size=4), st.binary(max_size=32))
def test_records_survive_the_way(ranks: list[RankRecord], number: bytes) -> None:
    world = WorldRecord(ranks, number)
    assert records.parse(records.pack_world(world)) == world
    assert records.parse(records.pack_ranks(ranks)) == WorldRecord(ranks)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["ranks", "message", "kind", "number", "rank"]), inner)
    ),
)


@given(st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_other_bytes_are_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert records.parse(data).ranks == []


@pytest.mark.parametrize("kind", [ValueError, TimeoutError, ConnectionError])
def test_a_failure_is_raised_where_it_arrives(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="why"):
        records.parse(records.pack_failure(kind("why")))
