"""The layout of a trace: tracks with nested slices, and counters."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sirtaki.observe.trace.matching import match, match_messages
from sirtaki.observe.trace.model import LINES, Message, Operation, Rank, Span, Trace

# The number of a rank's first track of a kind.
_LINE_TRACK = 999
_LANES = 1000
_MESSAGE_LANES = 100_000
_LEAST_BIN_NS = 10_000_000
_MOST_BINS = 2000


@dataclass
class Slice:
    """A slice of a track.

    flow: the number of the flow that links it to others, 0: none. arrives: the link is at its end,
    as for a receive, not at its beginning.
    """

    name: str
    category: str
    begun: int
    ended: int
    details: dict[str, int | str] = field(default_factory=dict)
    flow: int = 0
    arrives: bool = False

    @property
    def linked(self) -> int:
        """The time of its link, which is within the slice unless that is empty."""
        return max(self.begun, self.ended - 1) if self.arrives else self.begun


@dataclass
class Track:
    """Slices, each before those nested in it."""

    rank: int
    number: int
    name: str
    slices: list[Slice]


@dataclass
class Counter:
    """Bytes per second, each from its time until the next."""

    rank: int
    values: list[tuple[int, int]]


@dataclass
class Layout:
    """The tracks, counters and flows of a trace."""

    tracks: list[Track]
    counters: list[Counter]
    flows: dict[int, list[tuple[int, int, int]]]


def lay_out(trace: Trace) -> Layout:
    """Arrange a trace.

    Returns:
        For each rank a track of every thread with spans or waits, one of the lines that it was seen
        in, and as many tracks of operations and of messages as are in flight at a time. `flows`:
        for each operation of several ranks the times of their submissions, in order: (time, rank,
        track); for a message the times of sending and arrival.
    """
    linked: list[Iterable[tuple[int, object]]] = [each.items() for each in match(trace.ranks)]
    linked += match_messages(trace.ranks)
    flow_of = {
        (rank, id(one)): number for number, ends in enumerate(linked, 1) for rank, one in ends
    }
    tracks: list[Track] = []
    for rank in trace.ranks:
        tracks += _threads(rank)
        if rank.lines:
            seen = [_slice(line, "line") for line in rank.lines]
            tracks.append(Track(rank.rank, _LINE_TRACK, LINES, seen))
        operations = (_slices(one, flow_of.get((rank.rank, id(one)), 0)) for one in rank.operations)
        tracks += _lanes(rank, "operations", _LANES, operations)
        messages = ([_message(one, flow_of.get((rank.rank, id(one)), 0))] for one in rank.messages)
        tracks += _lanes(rank, "messages", _MESSAGE_LANES, messages)
    flows: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for track in tracks:
        for each in track.slices:
            if each.flow:
                flows[each.flow].append((each.linked, track.rank, track.number))
    counters = [Counter(one.rank, _bytes_a_second(one)) for one in trace.ranks]
    return Layout(tracks, counters, {number: sorted(of) for number, of in flows.items()})


def _threads(rank: Rank) -> Iterable[Track]:
    threads: dict[str, list[Slice]] = {}
    for category, spans in (("span", rank.spans), ("wait", rank.waits)):
        for span in spans:
            threads.setdefault(span.thread, []).append(_slice(span, category))
    # The main thread comes first.
    names = sorted(threads, key=lambda name: (name != rank.main, name))
    for number, name in enumerate(names, 1):
        slices = sorted(threads[name], key=lambda each: (each.begun, -each.ended))
        yield Track(rank.rank, number, name, slices)


def _slice(span: Span, category: str) -> Slice:
    return Slice(span.name, category, span.begun, span.ended)


def _lanes(rank: Rank, name: str, first: int, every: Iterable[list[Slice]]) -> Iterable[Track]:
    """Put slices in flight at the same time on different tracks, with their nested slices."""
    free: list[tuple[int, int]] = []
    lanes: list[list[Slice]] = []
    for slices in sorted(every, key=lambda each: each[0].begun):
        if free and free[0][0] <= slices[0].begun:
            _, lane = heapq.heappop(free)
        else:
            lane = len(lanes)
            lanes.append([])
        heapq.heappush(free, (slices[0].ended, lane))
        lanes[lane] += slices
    for number, found in enumerate(lanes):
        title = name if number == 0 else f"{name} {number + 1}"
        yield Track(rank.rank, first + number, title, found)


def _slices(one: Operation, flow: int) -> list[Slice]:
    details: dict[str, int | str] = {
        "number": one.number,
        "kind": one.kind,
        "tensor": one.name,
        "dtype": one.dtype,
        "bytes": one.bytes,
        "process_set": one.set,
        "world": one.world,
        "failed": int(one.failed),
        "agreed_ns": one.agreed - one.submitted,
        "begun_ns": one.begun - one.submitted,
    }
    whole = Slice(one.title, "operation", one.submitted, one.ended, details, flow)
    stages = (
        ("waits for other ranks", one.submitted, one.agreed),
        ("waits for other operations", one.agreed, one.begun),
        ("moves data", one.begun, one.ended),
    )
    parts = [Slice(name, "stage", begun, ended) for name, begun, ended in stages if ended > begun]
    return [whole, *parts]


def _message(one: Message, flow: int) -> Slice:
    details: dict[str, int | str] = {
        "sends": int(one.sends),
        "own": one.own,
        "peer": one.peer,
        "tag": one.tag,
        "bytes": one.bytes,
        "sequence": one.sequence,
        "process_set": one.set,
        "world": one.world,
        "failed": int(one.failed),
    }
    return Slice(one.title, "message", one.begun, one.ended, details, flow, not one.sends)


def _bytes_a_second(rank: Rank) -> list[tuple[int, int]]:
    """Return the bytes per second of operations and messages in flight, from each time on."""
    length = rank.ended - rank.begun
    moved: list[Operation | Message] = [*rank.operations, *rank.messages]
    if length <= 0 or not moved:
        return []
    width = max(_LEAST_BIN_NS, -(-length // _MOST_BINS))
    bins = [0.0] * (length // width + 1)
    for one in moved:
        begun, ended = one.begun - rank.begun, max(one.ended, one.begun + 1) - rank.begun
        for number in range(max(0, begun // width), min(len(bins), (ended - 1) // width + 1)):
            shared = min(ended, (number + 1) * width) - max(begun, number * width)
            bins[number] += one.bytes * shared / (ended - begun)
    values = [
        (rank.begun + number * width, round(count * 1e9 / width))
        for number, count in enumerate(bins)
    ]
    return [*values, (rank.ended, 0)]
