"""Every pattern of sends and receives that is legal, at every size, with exact values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import sirtaki as hvd
from sirtaki.core.world.state import current_world

GIB = 1 << 30
# The longest message that goes unasked has 65536 bytes.
SIZES = (0, 1, 1000, 16_384, 65_536, 65_537, 5_000_000)
BLOCK = 65_521  # prime, so that a message shifted by any power of two is another one


def block(source: int, tag: int) -> np.ndarray:
    return (np.arange(BLOCK) * 31 + source * 7 + tag).astype(np.uint8)


def blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    return (array[start : start + BLOCK] for start in range(0, len(array), BLOCK))


def message(source: int, tag: int, size: int) -> np.ndarray:
    array = np.empty(size, np.uint8)
    for piece in blocks(array):
        piece[:] = block(source, tag)[: len(piece)]
    return array


def expect(array: np.ndarray, source: int, tag: int) -> None:
    wanted = block(source, tag)
    assert all(np.array_equal(piece, wanted[: len(piece)]) for piece in blocks(array))


def around(shift: int) -> int:
    return (hvd.rank() + shift) % hvd.size()


# ---- The patterns ----


def ring(size: int) -> None:
    received = np.empty(size, np.uint8)
    handle = hvd.irecv(received, source=around(-1), tag=3)
    hvd.send(message(hvd.rank(), 3, size), dest=around(1), tag=3)
    assert hvd.synchronize(handle) == around(-1)
    expect(received, around(-1), 3)


def crossing(size: int) -> None:
    """Everybody sends to everybody."""
    received = [np.empty(size, np.uint8) for _ in range(hvd.size())]
    handles = [hvd.irecv(array, source=rank) for rank, array in enumerate(received)]
    mine = message(hvd.rank(), 0, size)
    sends = [hvd.isend(mine, dest=rank) for rank in range(hvd.size())]
    assert [hvd.synchronize(handle) for handle in handles] == list(range(hvd.size()))
    assert [hvd.synchronize(handle) for handle in sends] == [None] * hvd.size()
    for rank, array in enumerate(received):
        expect(array, rank, 0)


def sent_before_received(size: int) -> None:
    """Nobody has posted a receive when both begin to send."""
    handle = hvd.isend(message(hvd.rank(), 2, size), around(1), tag=2)
    hvd.barrier()
    received = np.empty(size, np.uint8)
    assert hvd.recv(received, around(-1), tag=2) == around(-1)
    expect(received, around(-1), 2)
    hvd.synchronize(handle)


def out_of_order(size: int) -> None:
    tags = (1, 0) if size == GIB else (3, 1, 0, 2)
    sends = [hvd.isend(message(hvd.rank(), tag, size), around(1), tag) for tag in sorted(tags)]
    received = np.empty(size, np.uint8)
    for tag in tags:
        assert hvd.recv(received, around(-1), tag) == around(-1)
        expect(received, around(-1), tag)
    for handle in sends:
        hvd.synchronize(handle)


def any_source(size: int) -> None:
    handle = hvd.isend(message(hvd.rank(), 5, size), 0, tag=5)
    if hvd.rank() == 0:
        received = np.empty(size, np.uint8)
        sources = []
        for _ in range(hvd.size()):
            sources.append(hvd.recv(received, tag=5))
            expect(received, sources[-1], 5)
        assert sorted(sources) == list(range(hvd.size()))
    hvd.synchronize(handle)


def to_oneself(size: int) -> None:
    hvd.send(message(hvd.rank(), 1, size), hvd.rank(), tag=1)
    received = np.empty(size, np.uint8)
    assert hvd.recv(received, hvd.rank(), tag=1) == hvd.rank()
    expect(received, hvd.rank(), 1)


PATTERNS = (ring, crossing, sent_before_received, out_of_order, any_source, to_oneself)


def free_memory() -> int:
    """What programs can have, the page cache included."""
    (kib,) = re.findall(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.M)
    return int(kib) * 1024


def has_room_for_gib() -> bool:
    """Whether it is the one time: at two ranks of our launcher, who agree on the memory."""
    if hvd.size() != 2 or current_world().config.start.by != "horovodrun":
        return False
    return bool(hvd.broadcast(np.array(free_memory()), 0) > 8 * GIB)


@pytest.mark.parametrize("size", [*SIZES, pytest.param(GIB, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_legal_pattern_arrives(pattern: Callable[[int], None], size: int) -> None:
    if size == GIB and not has_room_for_gib():
        pytest.skip("needs two ranks and 8 GiB")
    pattern(size)
    hvd.barrier()
