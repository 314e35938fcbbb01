"""How a trace is shown: tracks with slices that lie in one another, and counters."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sirtaki.observe.trace.matching import match, match_messages
from sirtaki.observe.trace.model import Message, Operation, Rank, Span, Trace

_LANES = 1000
_MESSAGE_LANES = 100_000
_LEAST_BIN_NS = 10_000_000
_MOST_BINS = 2000


@dataclass
class Slice:
    """A stretch of a track.

    flow: the number of what links it to others, 0: nothing. arrives: it links at its end, not at
    its beginning, as what receives.
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
        """When what links it is there; within it, where it takes any time."""
        return max(self.begun, self.ended - 1) if self.arrives else self.begun


@dataclass
class Track:
    """Slices, each before those that lie in it."""

    rank: int
    number: int
    name: str
    slices: list[Slice]


@dataclass
class Counter:
    """Bytes a second, each from a time on until the next."""

    rank: int
    values: list[tuple[int, int]]


@dataclass
class Layout:
    """What is shown of a trace."""

    tracks: list[Track]
    counters: list[Counter]
    flows: dict[int, list[tuple[int, int, int]]]


def lay_out(trace: Trace) -> Layout:
    """Arrange a trace.

    Returns:
        Of each rank a track of every thread with spans or waits, and as many of operations and of
        messages as are under way at a time. `flows`: of each operation of several ranks when these
        have asked for it, in this order: (time, rank, track); of a message when it was sent and
        when it had come.
    """
    linked: list[Iterable[tuple[int, object]]] = [each.items() for each in match(trace.ranks)]
    linked += match_messages(trace.ranks)
    flow_of = {
        (rank, id(one)): number for number, ends in enumerate(linked, 1) for rank, one in ends
    }
    tracks: list[Track] = []
    for rank in trace.ranks:
        tracks += _threads(rank)
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
    # The main thread first.
    names = sorted(threads, key=lambda name: (name != rank.main, name))
    for number, name in enumerate(names, 1):
        slices = sorted(threads[name], key=lambda each: (each.begun, -each.ended))
        yield Track(rank.rank, number, name, slices)


def _slice(span: Span, category: str) -> Slice:
    return Slice(span.name, category, span.begun, span.ended)


def _lanes(rank: Rank, name: str, first: int, every: Iterable[list[Slice]]) -> Iterable[Track]:
    """Of what is under way at a time each has a track of its own; what lies in it comes with it."""
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
    """Of each stretch of time how many bytes operations and messages had a second on their way."""
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
