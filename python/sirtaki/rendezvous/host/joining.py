"""The meeting of one host's ranks, which gives them shared memory and links to their leader."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sirtaki.rendezvous.files import memory_file
from sirtaki.rendezvous.host import meeting as local_meeting
from sirtaki.rendezvous.host.control_groups import own_quota
from sirtaki.rendezvous.host.meeting import Gathering, HostMeeting
from sirtaki.rendezvous.network import local_socket
from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.trust.auth import repr_without

_HELLO = struct.Struct("!IQ1024s")  # local rank, bytes of the region, cores
_VERDICT = struct.Struct("!Q?32s")  # bytes of the leader's region, a core for each, the key
_CORES = 8192
_KEY_BYTES = 32
_HEAP_BYTES = struct.Struct("!Q")
_MORE = b"\x02"
_BATCH = 250  # descriptors that one message can carry: the kernel's limit is 253


class HeapMemory(NamedTuple):
    """The memory file that contains a rank's shared arrays.

    descriptor: of the file, -1 for this rank's own, which is not sent. bytes: its size, 0 if the
    rank has none.
    """

    descriptor: int = -1
    bytes: int = 0

    def close(self) -> None:
        """Close the descriptor of another rank's heap."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


_NO_HEAP = HeapMemory()


class HostLinks(NamedTuple):
    """What a rank holds after `join_host`: raw file descriptors that the caller owns.

    memfd: the shared region. core_each: whether all ranks of this host can run at the same time,
    each on its own core, without throttling by the control group. key: 32 random bytes that only
    the ranks of this host have. links: on the leader one socket per member, index i for local rank
    i + 1; on a member one socket, to the leader. heaps: of the ranks' shared arrays, by local rank.
    event_descriptors: if requested, one eventfd per local rank, shared by all. All descriptors are
    close-on-exec; sockets and event descriptors are non-blocking.
    """

    memfd: int
    core_each: bool
    key: bytes
    links: list[int]
    heaps: list[HeapMemory]
    event_descriptors: list[int]

    def __repr__(self) -> str:
        return repr_without(self, "key")


class Region(NamedTuple):
    """The memory that the ranks of a host share.

    bytes: of all. slot_bytes: of one rank's slots, which are at the end by local rank. taken_now:
    whether ranks allocate the memory when they meet, instead of at the first write to each page.
    """

    bytes: int
    slot_bytes: int
    local_size: int
    taken_now: bool = True

    def parts_of(self, local_rank: int) -> list[tuple[int, int]]:
        """Return start and length of a rank's parts: its slots, and for local rank 0 the rest.

        The kernel allocates a page near the cores of the process that touches it first.
        """
        common = self.bytes - self.local_size * self.slot_bytes
        own = (common + local_rank * self.slot_bytes, self.slot_bytes)
        parts = [(0, common), own] if local_rank == 0 else [own]
        if not self.taken_now:
            return []
        return [(start, size) for start, size in parts if size > 0]


def join_host(
    store: Store,
    prefix: str,
    local_rank: int,
    local_size: int,
    region_bytes: int,
    timeout: float,
    secret: bytes | None = None,
    heap: HeapMemory = _NO_HEAP,
    event_descriptors: bool = False,
    slot_bytes: int = 0,
    taken_now: bool = True,
) -> HostLinks:
    """Meet the other ranks of this host; every one of them calls it.

    prefix: of the store's keys, used once only, by this host only. region_bytes: size of the shared
    memory, equal on all. timeout: seconds. secret: the job's, if it has one. heap: this rank's
    shared arrays, for the others; its descriptor stays the caller's. event_descriptors: whether to
    create them, equal on all. slot_bytes: size of each rank's slots at the region's end, which that
    rank allocates itself, near its cores. taken_now: see `Region`.

    Returns the descriptors. Raises ValueError for contradicting arguments, OSError if the host has
    too little memory, TimeoutError or ConnectionError naming the local ranks that did not come,
    died or gave up; then nothing stays open.
    """
    if not 0 <= local_rank < local_size:
        raise ValueError(f"local rank {local_rank} does not exist among {local_size} ranks")
    if region_bytes <= 0:
        raise ValueError(f"the shared region must have at least one byte, not {region_bytes}")
    deadline = time.monotonic() + timeout
    meeting = HostMeeting(store, f"{prefix}/leader", secret)
    count = local_size if event_descriptors else 0
    region = Region(region_bytes, slot_bytes, local_size, taken_now)
    if local_rank == 0:
        return _lead(meeting, region, heap, deadline, count)
    with _naming(f"local rank {local_rank}: local rank 0"):
        return _follow(meeting, local_rank, region, heap, deadline, count)


@contextlib.contextmanager
def _naming(who: str) -> Iterator[None]:
    """Add the peer to the message of a connection error."""
    what = "during the meeting of this host's ranks"
    try:
        yield
    except TimeoutError as error:
        raise TimeoutError(f"{who} did not answer {what} ({error})") from error
    except (ConnectionError, PermissionError) as error:
        raise ConnectionError(f"{who} closed its connection {what} ({error})") from error


def _lead(
    meeting: HostMeeting, region: Region, heap: HeapMemory, deadline: float, count: int
) -> HostLinks:
    local_size, region_bytes = region.local_size, region.bytes
    with (
        contextlib.ExitStack() as undo,
        contextlib.closing(Gathering(meeting, local_size > 1)) as gathering,
    ):
        memfd = _create_region(region)
        undo.callback(os.close, memfd)
        event_descriptors: list[int] = []
        for _ in range(count):
            event_descriptors.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
            undo.callback(os.close, event_descriptors[-1])
        members, cores = _gather(gathering, local_size, region_bytes, deadline)
        core_each = _time_for_all(local_size) and _core_each([_own_cores(), *cores])
        key = os.urandom(_KEY_BYTES)
        verdict = _VERDICT.pack(region_bytes, core_each, key)
        _share(members, memfd, event_descriptors, verdict, deadline)
        theirs = _exchange_heaps(members, heap, deadline, undo)
        undo.pop_all()
        all_heaps = [HeapMemory(bytes=heap.bytes), *theirs]
        return HostLinks(
            memfd, core_each, key, list(map(_detach, members)), all_heaps, event_descriptors
        )


def _own_cores() -> int:
    """Return the cores that this process may use, as a bit mask."""
    return sum(1 << core for core in os.sched_getaffinity(0) if core < _CORES)


def _time_for_all(ranks: int) -> bool:
    """Return whether our control group's quota is enough for one core per rank."""
    quota = own_quota()
    return quota is None or quota >= ranks


def _core_each(allowed: Sequence[int]) -> bool:
    """Return whether each rank can have a core of its own among those that it may use.

    No set of cores may have more ranks bound to it than it has cores.
    """
    places = {*allowed, functools.reduce(operator.or_, allowed)}
    return all(
        sum(cores & ~place == 0 for cores in allowed) <= place.bit_count() for place in places
    )


def _create_region(region: Region) -> int:
    memfd = memory_file.create("sirtaki", sealable=True)
    try:
        _allocate(memfd, region, 0)
        # Shrinking a mapped file would kill its readers with SIGBUS.
        memory_file.add_seals(memfd, memory_file.SHRINK | memory_file.GROW)
    except BaseException:
        os.close(memfd)
        raise
    return memfd


def _allocate(memfd: int, region: Region, local_rank: int) -> None:
    """Allocate a rank's memory now: a later touch without free memory ends with SIGBUS."""
    try:
        if local_rank == 0:
            os.ftruncate(memfd, region.bytes)
        for start, size in region.parts_of(local_rank):
            os.posix_fallocate(memfd, start, size)
    except OSError as error:
        raise OSError(
            error.errno,
            f"local rank {local_rank} ({socket.gethostname()}) cannot have its part of the "
            f"{region.bytes / 2**20:.1f} MiB "
            f"of shared memory that the ranks of this host need ({os.strerror(error.errno or 0)}); "
            "raise the memory limit of the container or job and `ulimit -f`, or start fewer ranks "
            "on this host",
        ) from error


def _gather(
    gathering: Gathering, local_size: int, region_bytes: int, deadline: float
) -> tuple[list[socket.socket], list[int]]:
    """Wait until every other local rank has come; return their connections and cores."""
    members: dict[int, socket.socket] = {}
    all_cores: list[int] = []
    while len(members) < local_size - 1:
        try:
            sock, hello = gathering.next(deadline)
        except TimeoutError:
            missing = sorted(set(range(1, local_size)) - set(members))
            raise TimeoutError(
                f"local rank 0: local ranks {missing} of {local_size} did not come in time"
            ) from None
        rank, bytes_, cores = _HELLO.unpack(hello)
        if rank in members or not 0 < rank < local_size:
            raise ValueError(
                f"local rank 0: a process came as local rank {rank}, which is "
                f"{'already here' if rank in members else f'not among my {local_size}'}"
            )
        members[rank] = sock
        if bytes_ != region_bytes:
            # The member then raises the same error.
            sock.sendall(_VERDICT.pack(region_bytes, False, b""))
            raise ValueError(_contradiction(rank, bytes_, region_bytes))
        all_cores.append(int.from_bytes(cores, "big"))
    return [members[rank] for rank in sorted(members)], all_cores


def _contradiction(local_rank: int, its: int, leaders: int) -> str:
    return (
        f"local rank {local_rank} wants {its} bytes of shared memory, local rank 0 {leaders}; "
        "install the same version for all ranks"
    )


def _share(
    members: Sequence[socket.socket],
    memfd: int,
    event_descriptors: Sequence[int],
    verdict: bytes,
    deadline: float,
) -> None:
    """Send region and event descriptors to every member."""
    for rank, sock in enumerate(members, 1):
        with _naming(f"local rank 0: local rank {rank}"):
            local_socket.set_deadline(sock, deadline)
            socket.send_fds(sock, [verdict], [memfd])
            for start in range(0, len(event_descriptors), _BATCH):
                socket.send_fds(sock, [_MORE], event_descriptors[start : start + _BATCH])


def _exchange_heaps(
    members: Sequence[socket.socket],
    own: HeapMemory,
    deadline: float,
    undo: contextlib.ExitStack,
) -> list[HeapMemory]:
    """Wait until each member has all that and has sent its heap; forward the others' heaps."""
    theirs: list[HeapMemory] = []
    for rank, sock in enumerate(members, 1):
        with _naming(f"local rank 0: local rank {rank}"):
            theirs.append(_receive_heap(sock, deadline))
        undo.callback(theirs[-1].close)
    for rank, sock in enumerate(members, 1):
        with _naming(f"local rank 0: local rank {rank}"):
            for other, heap in enumerate([own, *theirs]):
                _send_heap(sock, HeapMemory(bytes=heap.bytes) if other == rank else heap, deadline)
    return theirs


def _follow(
    meeting: HostMeeting,
    local_rank: int,
    region: Region,
    heap: HeapMemory,
    deadline: float,
    count: int,
) -> HostLinks:
    local_size, region_bytes = region.local_size, region.bytes
    with contextlib.ExitStack() as undo:
        sock = meeting.connect(deadline)
        undo.callback(sock.close)
        own_cores = _own_cores().to_bytes(_CORES // 8, "big")
        hello = _HELLO.pack(local_rank, region_bytes, own_cores)
        local_meeting.send(sock, hello, deadline)
        verdict, memfds = _receive(sock, _VERDICT.size, 1, deadline, undo)
        leaders, core_each, key = _VERDICT.unpack(verdict)
        if leaders != region_bytes:
            raise ValueError(_contradiction(local_rank, region_bytes, leaders))
        if not memfds or os.fstat(memfds[0]).st_size != region_bytes:
            raise ConnectionError("local rank 0 did not hand over the shared memory")
        _allocate(memfds[0], region, local_rank)
        event_descriptors: list[int] = []
        while len(event_descriptors) < count:
            _, more = _receive(sock, len(_MORE), _BATCH, deadline, undo)
            if not more:
                raise ConnectionError("local rank 0 did not hand over the event descriptors")
            event_descriptors += more
        _send_heap(sock, heap, deadline)
        all_heaps: list[HeapMemory] = []
        for _ in range(local_size):
            all_heaps.append(_receive_heap(sock, deadline))
            undo.callback(all_heaps[-1].close)
        undo.pop_all()
        return HostLinks(memfds[0], core_each, key, [_detach(sock)], all_heaps, event_descriptors)


def _receive(
    sock: socket.socket, count: int, most: int, deadline: float, undo: contextlib.ExitStack
) -> tuple[bytes, list[int]]:
    """Read `count` bytes and their descriptors, which `undo` closes."""
    data, descriptors = local_socket.receive_with_descriptors(sock, count, most, deadline)
    for descriptor in descriptors:
        undo.callback(os.close, descriptor)
    return data, descriptors


def _detach(sock: socket.socket) -> int:
    sock.setblocking(False)
    return sock.detach()


def _send_heap(sock: socket.socket, heap: HeapMemory, deadline: float) -> None:
    """Send the size of a heap, and its descriptor if it has one."""
    local_socket.set_deadline(sock, deadline)
    descriptors = [heap.descriptor] if heap.descriptor >= 0 else []
    socket.send_fds(sock, [_HEAP_BYTES.pack(heap.bytes)], descriptors)


def _receive_heap(sock: socket.socket, deadline: float) -> HeapMemory:
    """Return the heap sent by `_send_heap`; the descriptor belongs to the caller."""
    data, descriptors = local_socket.receive_with_descriptors(sock, _HEAP_BYTES.size, 1, deadline)
    return HeapMemory(descriptors[0] if descriptors else -1, _HEAP_BYTES.unpack(data)[0])
