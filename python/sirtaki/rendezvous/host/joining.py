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

from sirtaki.records import dataclass, field
from sirtaki.rendezvous.files import memory_file
from sirtaki.rendezvous.host import heaps
from sirtaki.rendezvous.host import meeting as local_meeting
from sirtaki.rendezvous.host.cpu_quota import own_quota
from sirtaki.rendezvous.host.heaps import HeapMemory
from sirtaki.rendezvous.host.meeting import Gathering, HostMeeting
from sirtaki.rendezvous.network import local_socket
from sirtaki.rendezvous.stores.store import Store

_HELLO = struct.Struct("!IQ1024s")  # local rank, bytes of the region, cores
_VERDICT = struct.Struct("!Q?")  # bytes of the leader's region, a core for each
_CORES = 8192
_NO_HEAP = HeapMemory()
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


@dataclass(frozen=True)
class Region:
    """The memory that the ranks of a host share.

    bytes: of all. slot_bytes: of one rank's slots, which lie at the end by local rank.
    """

    bytes: int
    slot_bytes: int
    local_size: int

    def parts_of(self, local_rank: int) -> list[tuple[int, int]]:
        """Return start and length of what a rank takes: its slots, and the first all but slots.

        A page lies near the cores of the process that takes it.
        """
        common = self.bytes - self.local_size * self.slot_bytes
        own = (common + local_rank * self.slot_bytes, self.slot_bytes)
        parts = [(0, common), own] if local_rank == 0 else [own]
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
    bells: bool = False,
    slot_bytes: int = 0,
) -> HostLinks:
    """Meet the other ranks of this host; every one of them calls it.

    prefix: of the store's keys, used once only, by this host only. region_bytes: size of the shared
    memory, equal on all. timeout: seconds. secret: the job's, where it has one. heap: what the
    others are to have of this rank's shared heap; its descriptor stays the caller's. bells: whether
    to have any, equal on all. slot_bytes: of the region's end, by local rank, what each rank takes
    itself, so that it lies near that one's cores.

    Returns the descriptors. Raises ValueError for contradicting arguments, OSError where the host
    has not so much memory, TimeoutError or ConnectionError naming the local ranks that did not
    come, died or gave up; then nothing stays open.
    """
    if not 0 <= local_rank < local_size:
        raise ValueError(f"local rank {local_rank} does not exist among {local_size} ranks")
    if region_bytes <= 0:
        raise ValueError(f"the shared region must have at least one byte, not {region_bytes}")
    deadline = time.monotonic() + timeout
    meeting = HostMeeting(store, f"{prefix}/leader", secret)
    count = local_size if bells else 0
    region = Region(region_bytes, slot_bytes, local_size)
    if local_rank == 0:
        return _lead(meeting, region, heap, deadline, count)
    with _naming(f"local rank {local_rank}: local rank 0"):
        return _follow(meeting, local_rank, region, heap, deadline, count)


@contextlib.contextmanager
def _naming(who: str) -> Iterator[None]:
    """Say in a failure of the connection whose it is."""
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
        bells: list[int] = []
        for _ in range(count):
            bells.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
            undo.callback(os.close, bells[-1])
        members, cores = _gather(gathering, local_size, region_bytes, deadline)
        core_each = _time_for_all(local_size) and _core_each([_own_cores(), *cores])
        _share(members, memfd, bells, _VERDICT.pack(region_bytes, core_each), deadline)
        theirs = _exchange_heaps(members, heap, deadline, undo)
        undo.pop_all()
        all_heaps = [HeapMemory(bytes=heap.bytes), *theirs]
        return HostLinks(memfd, core_each, list(map(_detach, members)), all_heaps, bells)


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


def _create_region(region: Region) -> int:
    memfd = memory_file.create("sirtaki", sealable=True)
    try:
        _allocate(memfd, region, 0)
        # Shrinking a mapped file kills its readers with SIGBUS; nobody may do it by accident.
        memory_file.add_seals(memfd, memory_file.SHRINK | memory_file.GROW)
    except BaseException:
        os.close(memfd)
        raise
    return memfd


def _allocate(memfd: int, region: Region, local_rank: int) -> None:
    """Take a rank's memory now: later, who touches what is not to be had ends with SIGBUS."""
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
            # Both sides then find the same contradiction.
            sock.sendall(_VERDICT.pack(region_bytes, False))
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
    bells: Sequence[int],
    verdict: bytes,
    deadline: float,
) -> None:
    """Hand region and bells to every member."""
    for rank, sock in enumerate(members, 1):
        with _naming(f"local rank 0: local rank {rank}"):
            local_socket.set_deadline(sock, deadline)
            socket.send_fds(sock, [verdict], [memfd])
            for start in range(0, len(bells), _BATCH):
                socket.send_fds(sock, [_MORE], bells[start : start + _BATCH])


def _exchange_heaps(
    members: Sequence[socket.socket],
    own: HeapMemory,
    deadline: float,
    undo: contextlib.ExitStack,
) -> list[HeapMemory]:
    """Wait until each member has all that, and hands over its heap; pass on the others' heaps."""
    theirs: list[HeapMemory] = []
    for rank, sock in enumerate(members, 1):
        with _naming(f"local rank 0: local rank {rank}"):
            theirs.append(heaps.receive(sock, deadline))
        undo.callback(theirs[-1].close)
    for rank, sock in enumerate(members, 1):
        with _naming(f"local rank 0: local rank {rank}"):
            for other, heap in enumerate([own, *theirs]):
                heaps.send(sock, HeapMemory(bytes=heap.bytes) if other == rank else heap, deadline)
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
        leaders, core_each = _VERDICT.unpack(verdict)
        if leaders != region_bytes:
            raise ValueError(_contradiction(local_rank, region_bytes, leaders))
        if not memfds or os.fstat(memfds[0]).st_size != region_bytes:
            raise ConnectionError("local rank 0 did not hand over the shared memory")
        _allocate(memfds[0], region, local_rank)
        bells: list[int] = []
        while len(bells) < count:
            _, more = _receive(sock, len(_MORE), _BATCH, deadline, undo)
            if not more:
                raise ConnectionError("local rank 0 did not hand over the bells")
            bells += more
        heaps.send(sock, heap, deadline)
        all_heaps: list[HeapMemory] = []
        for _ in range(local_size):
            all_heaps.append(heaps.receive(sock, deadline))
            undo.callback(all_heaps[-1].close)
        undo.pop_all()
        return HostLinks(memfds[0], core_each, [_detach(sock)], all_heaps, bells)


def _receive(
    sock: socket.socket, count: int, most: int, deadline: float, undo: contextlib.ExitStack
) -> tuple[bytes, list[int]]:
    """Read so many bytes and the descriptors with them, which `undo` closes."""
    data, descriptors = local_socket.receive_with_descriptors(sock, count, most, deadline)
    for descriptor in descriptors:
        undo.callback(os.close, descriptor)
    return data, descriptors


def _detach(sock: socket.socket) -> int:
    sock.setblocking(False)
    return sock.detach()
