"""The meeting of a host's ranks: shared memory, links, and ranks that do not come."""

from __future__ import annotations

import contextlib
import mmap
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from sirtaki.launch.cores.processors import parse_cpus
from sirtaki.rendezvous.host import joining as host
from sirtaki.rendezvous.host import meeting as local_meeting
from sirtaki.rendezvous.host.joining import HeapMemory, HostLinks, Region, join_host
from sirtaki.rendezvous.network import local_socket
from sirtaki.rendezvous.stores.unix_store import UnixStore, UnixStoreServer
from tests.single.rendezvous.memory_store import MemoryStore

REGION = 1 << 16
TIMEOUT = 20.0


def open_descriptors() -> int:
    return len(list(pathlib.Path("/proc/self/fd").iterdir()))


def close_links(joined: HostLinks) -> None:
    for descriptor in (joined.memfd, *joined.links, *joined.event_descriptors):
        os.close(descriptor)
    for heap in joined.heaps:
        heap.close()


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert open_descriptors() == before


def say_hello(sock: socket.socket, rank: int) -> None:
    local_meeting.send(sock, struct.pack("!IQ1024s", rank, REGION, b""), time.monotonic() + 10)


def meet(
    size: int,
    region: Callable[[int], int] = lambda rank: REGION,
    event_descriptors: bool = False,
    slot_bytes: int = 0,
) -> list[Future[HostLinks]]:
    store = MemoryStore()

    def join(rank: int) -> HostLinks:
        own = region(rank)
        return join_host(
            store,
            "meeting",
            rank,
            size,
            own,
            TIMEOUT,
            event_descriptors=event_descriptors,
            slot_bytes=slot_bytes,
        )

    with ThreadPoolExecutor(size) as pool:
        return [pool.submit(join, rank) for rank in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_all_ranks_share_one_region(size: int) -> None:
    joined = [future.result() for future in meet(size)]
    with mmap.mmap(joined[0].memfd, REGION) as memory:
        memory[:5] = b"hello"
    for links in joined:
        assert os.fstat(links.memfd).st_size == REGION
        with mmap.mmap(links.memfd, REGION) as memory:
            assert memory[:5] == b"hello"
        close_links(links)


@pytest.mark.parametrize("without", [None, 0, 1, 2])
def test_each_rank_has_the_heaps_of_the_others(without: int | None) -> None:
    store = MemoryStore()
    own = [os.memfd_create(f"heap {rank}") for rank in range(3)]
    sizes = [0 if rank == without else 100 + rank for rank in range(3)]

    def join(rank: int) -> HostLinks:
        os.ftruncate(own[rank], sizes[rank])
        heap = HeapMemory(own[rank], sizes[rank]) if sizes[rank] else HeapMemory()
        return join_host(store, "meeting", rank, 3, REGION, TIMEOUT, heap=heap)

    with ThreadPoolExecutor(3) as pool:
        joined = list(pool.map(join, range(3)))
    for rank, links in enumerate(joined):
        assert [heap.bytes for heap in links.heaps] == sizes
        for other, heap in enumerate(links.heaps):
            if other in (rank, without):
                assert heap.descriptor == -1
            else:
                assert os.path.sameopenfile(heap.descriptor, own[other])
                assert not os.get_inheritable(heap.descriptor)
        close_links(links)
    for descriptor in own:
        os.close(descriptor)


def test_the_region_has_all_its_memory_from_the_beginning() -> None:
    (future,) = meet(1)
    joined = future.result()
    assert os.fstat(joined.memfd).st_blocks * 512 >= REGION
    with pytest.raises(PermissionError):
        os.ftruncate(joined.memfd, 0)
    close_links(joined)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_each_rank_takes_its_own_slots_and_the_first_all_that_is_common(size: int) -> None:
    region = Region(100 + size * 30, 30, size)
    assert region.parts_of(0) == [(0, 100), (100, 30)]
    for rank in range(1, size):
        assert region.parts_of(rank) == [(100 + rank * 30, 30)]


def test_all_ranks_together_take_the_whole_region() -> None:
    joined = [future.result() for future in meet(3, slot_bytes=REGION // 4)]
    assert os.fstat(joined[0].memfd).st_blocks * 512 >= REGION
    for links in joined:
        close_links(links)


def test_memory_that_is_not_to_be_had_is_an_error_that_says_what_to_do() -> None:
    # A limit of file sizes counts for memory files too, and ends nobody by accident here.
    code = f"""
import resource
from sirtaki.rendezvous.host.joining import join_host
from tests.single.rendezvous.memory_store import MemoryStore
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    join_host(MemoryStore(), "meeting", 0, 1, {REGION}, 1.0)
except OSError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "cannot have its part of the 0.1 MiB of shared memory" in done.stdout
    assert "start fewer ranks on this host" in done.stdout


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_link_i_of_the_leader_goes_to_local_rank_i_plus_1(size: int) -> None:
    leader, *members = [future.result() for future in meet(size)]
    assert len(leader.links) == size - 1
    for rank, member in enumerate(members, start=1):
        assert len(member.links) == 1
        os.write(member.links[0], bytes([rank]))
    for index, link in enumerate(leader.links):
        assert os.read(link, 10) == bytes([index + 1])
    for links in (leader, *members):
        close_links(links)


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (("0", "1"), True),
        (("0", "0"), False),
        (("0-1", "0-1"), True),
        (("0-1", "0-1", "0-1"), False),
        (("0-1", "0", "1"), False),
        # As many cores as ranks, but two are bound to one.
        (("0", "0", "1-2"), False),
        (("0-3", "0-3", "0", "1"), True),
        (("0-3", "0-3", "0", "0"), False),
        (("0-1", "0-1", "2-3", "2-3"), True),
        # No two of them lack a core, all four do.
        (("0-1", "1-2", "0,2", "0-1"), False),
    ],
)
def test_ranks_learn_whether_each_can_have_a_core(
    allowed: tuple[str, ...], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = threading.local()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: own.cores)
    store = MemoryStore()

    def join(rank: int) -> bool:
        own.cores = parse_cpus(allowed[rank])
        links = join_host(store, "meeting", rank, len(allowed), REGION, TIMEOUT)
        close_links(links)
        return links.core_each

    with ThreadPoolExecutor(len(allowed)) as pool:
        assert list(pool.map(join, range(len(allowed)))) == [expected] * len(allowed)


@pytest.mark.parametrize(
    ("ranks", "granted", "expected"),
    [(2, None, True), (2, 2.0, True), (2, 1.5, False), (1, 1.0, True), (1, 0.5, False)],
)
def test_a_quota_of_less_time_than_ranks_gives_no_core_each(
    ranks: int, granted: float | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sirtaki.rendezvous.host.joining.own_quota", lambda: granted)
    for future in meet(ranks):
        links = future.result()
        close_links(links)
        assert links.core_each is expected


def test_a_rank_is_counted_on_the_cores_that_it_is_bound_to() -> None:
    store = MemoryStore()

    def join(rank: int) -> bool:
        # Of this thread alone.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        links = join_host(store, "meeting", rank, 2, REGION, TIMEOUT)
        close_links(links)
        return links.core_each

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(join, range(2))) == [False, False]


def test_sockets_do_not_block_and_nothing_is_inherited_by_children() -> None:
    for future in meet(2):
        links = future.result()
        assert not os.get_inheritable(links.memfd)
        for link in links.links:
            assert not os.get_blocking(link)
            assert not os.get_inheritable(link)
        close_links(links)


def test_the_region_cannot_be_shrunk_under_its_readers() -> None:
    (future,) = meet(1)
    links = future.result()
    with pytest.raises(PermissionError):
        os.ftruncate(links.memfd, 1)
    close_links(links)


def test_the_leader_names_the_ranks_that_did_not_come() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(join_host, store, "p", 0, 4, REGION, 0.5)
        member = pool.submit(join_host, store, "p", 2, 4, REGION, TIMEOUT)
    with pytest.raises(TimeoutError, match=r"local ranks \[1, 3\]"):
        leader.result()
    with pytest.raises(ConnectionError, match="local rank 0"):
        member.result()


def test_a_member_names_the_leader_that_did_not_come() -> None:
    with pytest.raises(TimeoutError, match="local rank 1: local rank 0"):
        join_host(MemoryStore(), "p", 1, 2, REGION, 0.2)


def test_a_leader_that_has_died_is_named() -> None:
    store = MemoryStore()
    listener, name = local_socket.listen()
    listener.close()
    store.set("p/leader", name.encode())
    with pytest.raises(ConnectionError, match="local rank 1: local rank 0"):
        join_host(store, "p", 1, 2, REGION, 5)


def test_a_member_that_dies_after_its_hello_is_named() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(join_host, store, "p", 0, 3, REGION, TIMEOUT)
        name = store.get("p/leader", 10).decode()
        for rank in (1, 2):
            with local_socket.connect(name, time.monotonic() + 10) as sock:
                say_hello(sock, rank)
    with pytest.raises(ConnectionError, match="local rank 1"):
        leader.result()


def test_regions_of_different_size_are_refused_on_both_sides() -> None:
    leader, member = meet(2, lambda rank: REGION * (rank + 1))
    for future in (leader, member):
        with pytest.raises(ValueError, match=rf"{2 * REGION} bytes.*{REGION}"):
            future.result()


def test_a_local_rank_that_comes_twice_is_refused() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(3) as pool:
        futures = [
            pool.submit(join_host, store, "p", rank, 3, REGION, TIMEOUT) for rank in (0, 1, 1)
        ]
    with pytest.raises(ValueError, match="already here"):
        futures[0].result()
    for future in futures[1:]:
        with pytest.raises(ConnectionError):
            future.result()


def test_a_stranger_that_says_nothing_useful_is_ignored() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(join_host, store, "p", 0, 2, REGION, TIMEOUT)
        name = store.get("p/leader", 10).decode()
        with local_socket.connect(name, time.monotonic() + 10) as sock:
            sock.sendall(b"short")
        member = pool.submit(join_host, store, "p", 1, 2, REGION, TIMEOUT)
    close_links(leader.result())
    close_links(member.result())


@pytest.mark.parametrize(("rank", "size", "region"), [(2, 2, 1), (-1, 2, 1), (0, 0, 1), (0, 1, 0)])
def test_contradicting_arguments_are_refused(rank: int, size: int, region: int) -> None:
    with pytest.raises(ValueError, match=r"rank|region"):
        join_host(MemoryStore(), "p", rank, size, region, 1)


def test_two_meetings_with_different_prefixes_do_not_mix() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(4) as pool:
        futures = [
            pool.submit(join_host, store, prefix, rank, 2, region, TIMEOUT)
            for rank in (0, 1)
            for prefix, region in (("a", 4096), ("b", 8192))
        ]
    assert [os.fstat(f.result().memfd).st_size for f in futures] == [4096, 8192, 4096, 8192]
    for future in futures:
        close_links(future.result())


def _child(address: str, rank: int, size: int) -> int:
    links = join_host(UnixStore(address, TIMEOUT), "p", rank, size, REGION, TIMEOUT)
    with mmap.mmap(links.memfd, REGION) as memory:
        memory[rank] = rank
        if rank == 0:
            for link in links.links:
                os.set_blocking(link, True)
                assert os.read(link, 1) == b"!"
            return 0 if memory[:size] == bytes(range(size)) else 1
        os.write(links.links[0], b"!")
    return 0


def test_processes_meet_through_the_unix_store() -> None:
    size = 4
    with UnixStoreServer() as server:
        children = []
        for rank in range(size):
            pid = os.fork()
            if pid == 0:
                code = 1
                with contextlib.suppress(BaseException):
                    code = _child(server.address, rank, size)
                os._exit(code)
            children.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * size


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_rank_has_the_event_descriptors_of_all(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_BATCH", 2)  # several messages
    joined = [future.result() for future in meet(size, event_descriptors=True)]
    for links in joined:
        assert len(links.event_descriptors) == size
        assert not any(map(os.get_blocking, links.event_descriptors))
        assert not any(map(os.get_inheritable, links.event_descriptors))
    for rank in range(size):
        os.eventfd_write(joined[rank].event_descriptors[size - 1 - rank], 5)
        assert os.eventfd_read(joined[-1].event_descriptors[size - 1 - rank]) == 5
    for links in joined:
        close_links(links)


def _say_hello_and_hang(name: str) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect("\0" + name[1:])
    say_hello(sock, 1)
    sock.recv(1, socket.MSG_PEEK)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_member_process_killed_before_it_has_the_memory_is_named() -> None:
    store = MemoryStore()
    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(join_host, store, "p", 0, 2, REGION, TIMEOUT)
        name = store.get("p/leader", 10).decode()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                _say_hello_and_hang(name)
            os._exit(1)
        os.waitpid(pid, 0)
    with pytest.raises(ConnectionError, match="local rank 1"):
        leader.result()
