"""The ranks of one host meet: they come to share a memory region and have links to their leader."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sirtaki.rendezvous import heaps, local_socket, memory_file
from sirtaki.rendezvous.cpu_quota import own_quota
from sirtaki.rendezvous.heaps import HeapMemory
from sirtaki.rendezvous.local_meeting import Meeting
from sirtaki.rendezvous.store import Store

_HELLO = struct.Struct("!IIQ1024s")  # local rank, local size, bytes of the region, cores
_VERDICT = struct.Struct("!IQ?")  # the leader's local size, bytes of its region, a core for each
_CORES = 8192
_NO_HEAP = HeapMemory()
_MEETING = "during the meeting of this host's ranks"
_MORE = b"\x02"
_BATCH = 250  # descriptors that one message can carry: the kernel's limit is 253


@dataclass
class HostLinks:
    """What a rank holds after `join_host`: raw file descriptors that the caller owns.

    memfd: the shared region. core_each: whether all ranks of this host can run at a time, each on
    another core, without a pause that its control group makes. links: on the leader one socket a
    member, index i for local rank i + 1; on a member one socket, to the leader. heaps: the ranks'
    shared heaps, by local rank. bells: where asked for, an eventfd by local rank, which is the same
    on all. All are close-on-exec; sockets and bells are non-blocking.
    """

    memfd: int
    core_each: bool
    links: list[int]
    heaps: list[HeapMemory]
    bells: list[int] = field(default_factory=list)


def join_host(
    store: Store,
    prefix: str,
    local_rank: int,
    local_size: int,
    region_bytes: int,
    timeout: float,
    secret: bytes | None = None,
    heap: HeapMemory = _NO_HEAP,
    bells: bool = False,
) -> HostLinks:
    """Meet the other ranks of this host; every one of them calls it.

    prefix: of the store's keys, used once only, by this host only. region_bytes: size of the shared
    memory, equal on all. timeout: seconds. secret: the job's, where it has one. heap: what the
    others are to have of this rank's shared heap; its descriptor stays the caller's. bells: whether
    to have any, equal on all. Returns the descriptors. Raises ValueError for contradicting
    arguments, OSError where the host has not so much memory, TimeoutError or ConnectionError naming
    the local ranks that did not come, died or gave up; then nothing stays open.
    """
    if not 0 <= local_rank < local_size:
        raise ValueError(f"local rank {local_rank} does not exist among {local_size} ranks")
    if region_bytes <= 0:
        raise ValueError(f"the shared region must have at least one byte, not {region_bytes}")
    deadline = time.monotonic() + timeout
    meeting = Meeting(store, f"{prefix}/leader", secret)
    if local_rank == 0:
        return _lead(meeting, local_size, region_bytes, heap, deadline, local_size if bells else 0)
    with _naming(f"local rank {local_rank}: local rank 0", _MEETING):
        count = local_size if bells else 0
        return _follow(meeting, local_rank, local_size, region_bytes, heap, deadline, count)


@contextlib.contextmanager
def _naming(who: str, what: str) -> Iterator[None]:
    """Say in a failure of the connection whose it is."""
    try:
        yield
    except TimeoutError as error:
        raise TimeoutError(f"{who} did not answer {what} ({error})") from error
    except (ConnectionError, PermissionError) as error:
        raise ConnectionError(f"{who} closed its connection {what} ({error})") from error


def _lead(
    meeting: Meeting,
    local_size: int,
    region_bytes: int,
    heap: HeapMemory,
    deadline: float,
    count: int,
) -> HostLinks:
    with contextlib.ExitStack() as undo:
        memfd = _create_region(region_bytes)
        undo.callback(os.close, memfd)
        bells: list[int] = []
        for _ in range(count):
            bells.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
            undo.callback(os.close, bells[-1])
        links: list[int] = []
        all_heaps = [HeapMemory(bytes=heap.bytes)]
        core_each = _time_for_all(local_size)
        if local_size > 1:
            members: dict[int, socket.socket] = {}
            undo.callback(_close_all, members)
            with meeting.listen() as listener:
                cores = _gather(listener, members, local_size, region_bytes, deadline)
            core_each = core_each and _core_each([_own_cores(), *cores])
            verdict = _VERDICT.pack(local_size, region_bytes, core_each)
            _share(members, memfd, bells, verdict, deadline)
            all_heaps += _exchange_heaps(members, heap, deadline, undo)
            links = [_detach(members[rank]) for rank in range(1, local_size)]
        undo.pop_all()
        return HostLinks(memfd, core_each, links, all_heaps, bells)


def _own_cores() -> int:
    """Return the cores that this process may use, as a set of bits."""
    return sum(1 << core for core in os.sched_getaffinity(0) if core < _CORES)


def _time_for_all(ranks: int) -> bool:
    """Whether the time that our control group grants lasts for a core each."""
    quota = own_quota()
    return quota is None or quota >= ranks


def _core_each(allowed: Sequence[int]) -> bool:
    """Whether each rank can have another one of the cores that it may use.

    Nowhere may more ranks be bound than there are cores, however many others have to themselves.
    """
    places = {*allowed, functools.reduce(operator.or_, allowed)}
    return all(
        sum(cores & ~place == 0 for cores in allowed) <= place.bit_count() for place in places
    )


def _create_region(region_bytes: int) -> int:
    memfd = memory_file.create("sirtaki", sealable=True)
    try:
        _allocate(memfd, region_bytes)
        # Shrinking a mapped file kills its readers with SIGBUS; nobody may do it by accident.
        memory_file.add_seals(memfd, memory_file.SHRINK | memory_file.GROW)
    except BaseException:
        os.close(memfd)
        raise
    return memfd


def _allocate(memfd: int, region_bytes: int) -> None:
    """Take all memory now: later, a rank that touches what is not to be had ends with SIGBUS."""
    try:
        os.posix_fallocate(memfd, 0, region_bytes)
    except OSError as error:
        raise OSError(
            error.errno,
            f"local rank 0 ({socket.gethostname()}) cannot have the {region_bytes / 2**20:.1f} MiB "
            f"of shared memory that the ranks of this host need ({os.strerror(error.errno or 0)}); "
            "raise the memory limit of the container or job and `ulimit -f`, or start fewer ranks "
            "on this host",
        ) from error


def _gather(
    listener: socket.socket,
    members: dict[int, socket.socket],
    local_size: int,
    region_bytes: int,
    deadline: float,
) -> list[int]:
    """Accept until every other local rank has come, filling `members`; return their cores."""
    all_cores: list[int] = []
    while len(members) < local_size - 1:
        try:
            local_socket.set_deadline(listener, deadline)
            sock, _ = listener.accept()
        except TimeoutError:
            missing = sorted(set(range(1, local_size)) - set(members))
            raise TimeoutError(
                f"local rank 0: local ranks {missing} of {local_size} did not come in time"
            ) from None
        if not local_socket.is_same_user(sock):
            sock.close()
            continue
        try:
            rank, size, bytes_, cores = _HELLO.unpack(
                local_socket.receive_exactly(sock, _HELLO.size, deadline)
            )
        except (TimeoutError, ConnectionError):
            # It died before saying which one it is; the deadline will name who is missing.
            sock.close()
            continue
        if rank in members or not 0 < rank < local_size:
            sock.close()
            raise ValueError(
                f"local rank 0: a process came as local rank {rank} of {size}, which is "
                f"{'already here' if rank in members else f'not among my {local_size}'}"
            )
        members[rank] = sock
        if (size, bytes_) != (local_size, region_bytes):
            # Both sides then find the same contradiction.
            sock.sendall(_VERDICT.pack(local_size, region_bytes, False))
            raise ValueError(
                f"local rank {rank} counts {size} ranks and {bytes_} bytes of shared memory, "
                f"local rank 0 counts {local_size} and {region_bytes}"
            )
        all_cores.append(int.from_bytes(cores, "big"))
    return all_cores


def _share(
    members: dict[int, socket.socket],
    memfd: int,
    bells: Sequence[int],
    verdict: bytes,
    deadline: float,
) -> None:
    """Hand region and bells to every member."""
    for rank, sock in sorted(members.items()):
        with _naming(f"local rank 0: local rank {rank}", _MEETING):
            local_socket.set_deadline(sock, deadline)
            socket.send_fds(sock, [verdict], [memfd])
            for start in range(0, len(bells), _BATCH):
                socket.send_fds(sock, [_MORE], bells[start : start + _BATCH])


def _exchange_heaps(
    members: dict[int, socket.socket],
    own: HeapMemory,
    deadline: float,
    undo: contextlib.ExitStack,
) -> list[HeapMemory]:
    """Wait until each member has all that, and hands over its heap; pass on the others' heaps."""
    theirs: list[HeapMemory] = []
    for rank, sock in sorted(members.items()):
        with _naming(f"local rank 0: local rank {rank}", _MEETING):
            theirs.append(heaps.receive(sock, deadline))
        undo.callback(theirs[-1].close)
    for rank, sock in sorted(members.items()):
        with _naming(f"local rank 0: local rank {rank}", _MEETING):
            for other, heap in enumerate([own, *theirs]):
                heaps.send(sock, HeapMemory(bytes=heap.bytes) if other == rank else heap, deadline)
    return theirs


def _follow(
    meeting: Meeting,
    local_rank: int,
    local_size: int,
    region_bytes: int,
    heap: HeapMemory,
    deadline: float,
    count: int,
) -> HostLinks:
    with contextlib.ExitStack() as undo:
        sock = meeting.connect(deadline)
        undo.callback(sock.close)
        own_cores = _own_cores().to_bytes(_CORES // 8, "big")
        sock.sendall(_HELLO.pack(local_rank, local_size, region_bytes, own_cores))
        memfd, size, bytes_, core_each = _receive_region(sock, deadline)
        if memfd is not None:
            undo.callback(os.close, memfd)
        if (size, bytes_) != (local_size, region_bytes):
            raise ValueError(
                f"local rank {local_rank} counts {local_size} ranks and {region_bytes} bytes of "
                f"shared memory, local rank 0 counts {size} and {bytes_}"
            )
        if memfd is None or os.fstat(memfd).st_size != region_bytes:
            raise ConnectionError("local rank 0 did not hand over the shared memory")
        bells: list[int] = []
        while len(bells) < count:
            more = _receive_bells(sock, deadline)
            for bell in more:
                undo.callback(os.close, bell)
            bells += more
        heaps.send(sock, heap, deadline)
        all_heaps: list[HeapMemory] = []
        for _ in range(local_size):
            all_heaps.append(heaps.receive(sock, deadline))
            undo.callback(all_heaps[-1].close)
        undo.pop_all()
        return HostLinks(memfd, core_each, [_detach(sock)], all_heaps, bells)


def _receive_region(sock: socket.socket, deadline: float) -> tuple[int | None, int, int, bool]:
    """Read the leader's verdict, behind the memfd if one came along."""
    data, descriptors = local_socket.receive_with_descriptors(sock, _VERDICT.size, 1, deadline)
    memfd = descriptors[0] if descriptors else None
    size, bytes_, core_each = _VERDICT.unpack(data)
    return memfd, size, bytes_, core_each


def _receive_bells(sock: socket.socket, deadline: float) -> list[int]:
    """Read a message with some descriptors."""
    _, bells = local_socket.receive_with_descriptors(sock, len(_MORE), _BATCH, deadline)
    if not bells:
        raise ConnectionError("local rank 0 did not hand over the bells")
    return bells


def _detach(sock: socket.socket) -> int:
    sock.setblocking(False)
    return sock.detach()


def _close_all(members: dict[int, socket.socket]) -> None:
    for sock in members.values():
        sock.close()
