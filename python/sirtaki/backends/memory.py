"""Streams of memory segments, and contiguous memory to send them from or receive them in."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# (address, bytes) of each piece of memory, read or written one after the other.
Stream = list[tuple[int, int]]

# Longer scratch buffers are freed after every operation.
_KEPT_BYTES = 64 << 20
# Smaller segments are copied together to save calls.
_SMALL_BYTES = 1 << 20


@dataclass(frozen=True)
class Run:
    """Segments `first` to `last` (exclusive) of a stream; `offset` skips the start of one."""

    first: int
    last: int
    offset: int
    bytes: int

    def of(self, stream: Stream) -> Stream:
        """Return these segments of a stream with the layout that the run was made for."""
        if self.last - self.first == 1:
            return [(stream[self.first][0] + self.offset, self.bytes)]
        return stream[self.first : self.last]


def runs(stream: Stream, most: int) -> Iterator[Run]:
    """Cut a stream into runs: small neighbouring segments together, large segments in parts.

    Args:
        stream: Only segment lengths matter, so members with equal layouts get equal runs.
        most: The maximum bytes of a run.
    """
    first = held = 0
    for index, (_, size) in enumerate(stream):
        if size < _SMALL_BYTES and held + size <= most:
            held += size
            continue
        if held:
            yield Run(first, index, 0, held)
        first, held = index + 1, 0
        if size < _SMALL_BYTES:
            first, held = index, size
            continue
        for offset in range(0, size, most):
            yield Run(index, index + 1, offset, min(most, size - offset))
    if held:
        yield Run(first, len(stream), 0, held)


def total(stream: Stream) -> int:
    """Return the bytes of all segments."""
    return sum(size for _, size in stream)


def pack(stream: Stream, target: int) -> None:
    """Copy a stream to contiguous memory at `target`."""
    for address, size in stream:
        ctypes.memmove(target, address, size)
        target += size


def unpack(source: int, stream: Stream) -> None:
    """Copy contiguous memory at `source` to a stream."""
    for address, size in stream:
        ctypes.memmove(address, source, size)
        source += size


def view(address: int, size: int) -> NDArray[np.uint8]:
    """Return the memory as an array that does not own it."""
    if size == 0:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class Scratch:
    """Reusable memory, one buffer for each purpose."""

    def __init__(self) -> None:
        self._held: dict[str, NDArray[np.uint8]] = {}

    def address(self, purpose: str, size: int) -> int:
        """Return the address of at least `size` bytes; this purpose's earlier contents are lost."""
        held = self._held.get(purpose)
        if held is None or held.nbytes < size:
            held = self._held[purpose] = np.empty(max(size, 64), np.uint8)
        return held.ctypes.data

    def trim(self) -> None:
        """Free buffers that are too large to keep."""
        for purpose in [key for key, held in self._held.items() if held.nbytes > _KEPT_BYTES]:
            del self._held[purpose]


@dataclass(frozen=True)
class Block:
    """The streams of all members in one block of memory: its address and each member's part."""

    address: int
    counts: list[int]
    offsets: list[int]
    in_place: bool

    @property
    def bytes(self) -> int:
        """The length of the block."""
        return sum(self.counts)


def block(streams: Sequence[Stream], scratch: Scratch, purpose: str) -> Block:
    """Lay out the streams of all members in one block, in place if they are adjacent."""
    counts = [total(stream) for stream in streams]
    offsets = [sum(counts[:member]) for member in range(len(counts))]
    segments = [segment for stream in streams for segment in stream if segment[1]]
    start = segments[0][0] if segments else 0
    end = start
    for address, size in segments:
        if address != end:
            place = scratch.address(purpose, sum(counts))
            return Block(place, counts, offsets, in_place=False)
        end += size
    return Block(start, counts, offsets, in_place=True)


def fill(made: Block, streams: Sequence[Stream]) -> None:
    """Copy the streams into their block unless they are already there."""
    if not made.in_place:
        pack([segment for stream in streams for segment in stream], made.address)


def empty(made: Block, streams: Sequence[Stream]) -> None:
    """Copy the block to its streams unless they are already there."""
    if not made.in_place:
        unpack(made.address, [segment for stream in streams for segment in stream])


def slices(count: int, members: int) -> list[int]:
    """Divide `count` elements among the members; the first ones get one more."""
    each, rest = divmod(count, members)
    return [each + (member < rest) for member in range(members)]
