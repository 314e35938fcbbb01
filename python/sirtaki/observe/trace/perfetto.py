"""Traces as Perfetto's protobuf messages, encoded here, so that no package is needed."""

from __future__ import annotations

from collections.abc import Iterable

from sirtaki.observe.trace.layout import Layout, Slice, Track, lay_out
from sirtaki.observe.trace.model import Trace

_VARINT, _FIXED64, _BYTES = 0, 1, 2
# Field numbers in Perfetto's messages.
_PACKET = 1
_TIMESTAMP, _SEQUENCE, _EVENT, _FLAGS, _DESCRIPTOR = 8, 10, 11, 13, 60
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER = 1, 2, 3, 4, 5, 8
_PROCESS_PID, _PROCESS_NAME = 1, 6
_UNIT, _UNIT_SIZE_BYTES = 3, 3
_TYPE, _TRACK, _CATEGORY, _EVENT_NAME, _VALUE, _FLOWS, _ANNOTATION = 9, 11, 22, 23, 30, 47, 4
_ANNOTATION_NAME, _ANNOTATION_INT, _ANNOTATION_TEXT = 10, 4, 6
_BEGIN, _END, _COUNT = 1, 2, 4
_STATE_CLEARED = 1
_ONE_SEQUENCE = 1
# The numbers of a rank's tracks begin at this times the rank.
_TRACKS_OF_A_RANK = 1 << 20
_COUNTER_TRACK = _TRACKS_OF_A_RANK - 1


def to_protobuf(trace: Trace) -> bytes:
    """Return the trace as a message `Trace` with a packet for each event."""
    layout = lay_out(trace)
    packets = [*_descriptors(trace, layout)]
    events = [event for track in layout.tracks for event in _events(track)]
    for counter in layout.counters:
        track = _uuid(counter.rank, _COUNTER_TRACK)
        for at, value in counter.values:
            body = _number(_TYPE, _COUNT) + _number(_TRACK, track) + _number(_VALUE, value)
            events.append((at, body))
    events.sort(key=lambda event: event[0])  # stable: events of one time keep their order
    packets += [_number(_TIMESTAMP, at) + _message(_EVENT, body) for at, body in events]
    first, *others = packets
    first += _number(_FLAGS, _STATE_CLEARED)
    sequence = _number(_SEQUENCE, _ONE_SEQUENCE)
    return b"".join(_message(_PACKET, packet + sequence) for packet in (first, *others))


def _descriptors(trace: Trace, layout: Layout) -> Iterable[bytes]:
    for one in trace.ranks:
        # Processes of two hosts may have the same id.
        process = _number(_PROCESS_PID, one.rank + 1)
        process += _text(_PROCESS_NAME, f"rank {one.rank} ({one.host}, process {one.pid})")
        body = _number(_UUID, _uuid(one.rank, 0)) + _message(_PROCESS, process)
        yield _message(_DESCRIPTOR, body)
    for track in layout.tracks:
        yield _message(_DESCRIPTOR, _child(track.rank, track.number, track.name))
    for counter in layout.counters:
        body = _child(counter.rank, _COUNTER_TRACK, "bytes a second")
        yield _message(_DESCRIPTOR, body + _message(_COUNTER, _number(_UNIT, _UNIT_SIZE_BYTES)))


def _child(rank: int, number: int, name: str) -> bytes:
    own, parent = _uuid(rank, number), _uuid(rank, 0)
    return _number(_UUID, own) + _number(_PARENT, parent) + _text(_NAME, name)


def _uuid(rank: int, number: int) -> int:
    return (rank + 1) * _TRACKS_OF_A_RANK + number


def _events(track: Track) -> Iterable[tuple[int, bytes]]:
    """Return the begins and ends of a track's slices, in order."""
    place = _number(_TRACK, _uuid(track.rank, track.number))
    end = _number(_TYPE, _END) + place
    opened: list[tuple[int, bytes]] = []
    for each in track.slices:
        while opened and opened[-1][0] <= each.begun:
            yield opened.pop()
        until = each.ended if not opened else min(each.ended, opened[-1][0])
        opened.append((until, end + _flow(each) if each.arrives else end))
        yield each.begun, _begin(each) + place
    while opened:
        yield opened.pop()


def _flow(one: Slice) -> bytes:
    if not one.flow:
        return b""
    return _varint(_FLOWS << 3 | _FIXED64) + one.flow.to_bytes(8, "little")


def _begin(one: Slice) -> bytes:
    body = _number(_TYPE, _BEGIN) + _text(_CATEGORY, one.category) + _text(_EVENT_NAME, one.name)
    if not one.arrives:
        body += _flow(one)
    for name, value in one.details.items():
        note = _text(_ANNOTATION_NAME, name)
        if isinstance(value, int):
            note += _number(_ANNOTATION_INT, value)
        else:
            note += _text(_ANNOTATION_TEXT, value)
        body += _message(_ANNOTATION, note)
    return body


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(body)) + body


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode(errors="replace"))
