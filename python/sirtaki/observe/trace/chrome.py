"""Traces as JSON of Chrome's trace events, for chrome://tracing and Perfetto."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from sirtaki.observe.trace.layout import Layout, Slice, lay_out
from sirtaki.observe.trace.model import Message, Operation, Rank, Span, Trace
from sirtaki.rendezvous.words import parse_json

_Event = dict[str, Any]
# Of what is written under "sirtaki".
FORMAT = 2
# Of a rank, beside what becomes events.
_HEAD = ("rank", "host", "pid", "begun", "ended", "main", "lost", "calls", "cpu", "cores")


class NoTrace(ValueError):
    """A file contains no trace of ours; the message explains why."""


def to_json(trace: Trace) -> Iterator[str]:
    """Return the trace as JSON, piece by piece."""
    layout = lay_out(trace)
    # An operation that was open when a rank began to record had begun before.
    begins = (each.begun for track in layout.tracks for each in track.slices[:1])
    began = min((trace.begun, *begins))
    ranks = [{name: getattr(one, name) for name in _HEAD} for one in trace.ranks]
    head = {
        "displayTimeUnit": "ms",
        "otherData": {
            "sirtaki": {"format": FORMAT, "job": trace.job, "began": began, "ranks": ranks}
        },
    }
    before = f'{_dumped(head)[:-1]},"traceEvents":['
    for event in chain(_titles(trace, layout), _events(layout, began)):
        yield before + _dumped(event)
        before = ",\n"
    yield "]}" if before == ",\n" else f"{before}]}}"


def _dumped(whole: object) -> str:
    return json.dumps(whole, separators=(",", ":"))


def _titles(trace: Trace, layout: Layout) -> Iterable[_Event]:
    for one in trace.ranks:
        name = f"rank {one.rank} ({one.host}, process {one.pid})"
        yield _title(one.rank, 0, "process_name", name)
        event = _title(one.rank, 0, "process_sort_index", "")
        yield {**event, "args": {"sort_index": one.rank}}
    for track in layout.tracks:
        yield _title(track.rank, track.number, "thread_name", track.name)
        event = _title(track.rank, track.number, "thread_sort_index", "")
        yield {**event, "args": {"sort_index": track.number}}


def _title(rank: int, track: int, what: str, name: str) -> _Event:
    return {"name": what, "ph": "M", "pid": rank, "tid": track, "args": {"name": name}}


def _events(layout: Layout, began: int) -> Iterable[_Event]:
    for track in layout.tracks:
        place = {"pid": track.rank, "tid": track.number}
        for each in track.slices:
            yield _slice(each, began) | place
    for number, places in layout.flows.items():
        for turn, (at, rank, track_number) in enumerate(places):
            last = turn == len(places) - 1
            yield {
                "name": "link",
                "cat": "flow",
                "ph": "s" if turn == 0 else "f" if last else "t",
                "bp": "e",
                "id": number,
                "ts": _micros(at - began),
                "pid": rank,
                "tid": track_number,
            }
    for counter in layout.counters:
        for at, value in counter.values:
            yield {
                "name": "bytes a second",
                "ph": "C",
                "ts": _micros(at - began),
                "pid": counter.rank,
                "args": {"bytes": value},
            }


def _slice(one: Slice, began: int) -> _Event:
    event = {
        "name": one.name,
        "cat": one.category,
        "ph": "X",
        "ts": _micros(one.begun - began),
        "dur": _micros(one.ended - one.begun),
    }
    return event | {"args": one.details} if one.details else event


def _micros(nanoseconds: int) -> float:
    return round(nanoseconds / 1000, 3)


def from_json(text: str) -> Trace:
    """Parse a trace written by `to_json`.

    Raises:
        NoTrace: The text is not such a trace, or one of another version.
    """
    try:
        whole = parse_json(text)
        ours = whole["otherData"]["sirtaki"]
        written = ours.get("format", 1)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise NoTrace(f"no trace that sirtaki has written ({error!r})") from None
    if written != FORMAT:
        raise NoTrace(
            f"a trace of another version of Sirtaki, in format {written!r}, where this one reads "
            f"{FORMAT}: record it again"
        )
    try:
        events: dict[int, list[_Event]] = defaultdict(list)
        for event in whole["traceEvents"]:
            events[event["pid"]].append(event)
        ranks = [_rank(one, events[one["rank"]], ours["began"]) for one in ours["ranks"]]
        return Trace(str(ours["job"]), ranks)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise NoTrace(f"no trace that sirtaki has written ({error!r})") from None


def _rank(head: Mapping[str, Any], events: Iterable[_Event], began: int) -> Rank:
    rank = Rank(**{name: head[name] for name in _HEAD})
    rank.cpu, rank.cores = float(rank.cpu), int(rank.cores)
    threads: dict[int, str] = {}
    for event in events:
        if event["name"] == "thread_name" and event["ph"] == "M":
            threads[event["tid"]] = event["args"]["name"]
        if event["ph"] != "X" or event["cat"] == "stage":
            continue
        begun = began + round(event["ts"] * 1000)
        ended = begun + round(event["dur"] * 1000)
        if event["cat"] == "operation":
            rank.operations.append(_operation(event["args"], begun, ended))
        elif event["cat"] == "message":
            rank.messages.append(_message(event["args"], begun, ended))
        else:
            of_category = {"span": rank.spans, "wait": rank.waits, "line": rank.lines}
            of_category[event["cat"]].append(
                Span(event["name"], threads[event["tid"]], begun, ended)
            )
    return rank


def _message(details: Mapping[str, Any], begun: int, ended: int) -> Message:
    return Message(
        world=details["world"],
        set=details["process_set"],
        sequence=details["sequence"],
        sends=bool(details["sends"]),
        own=details["own"],
        peer=details["peer"],
        tag=details["tag"],
        bytes=details["bytes"],
        failed=bool(details["failed"]),
        begun=begun,
        ended=ended,
    )


def _operation(details: Mapping[str, Any], submitted: int, ended: int) -> Operation:
    return Operation(
        number=details["number"],
        world=details["world"],
        set=details["process_set"],
        kind=details["kind"],
        name=details["tensor"],
        dtype=details["dtype"],
        bytes=details["bytes"],
        failed=bool(details["failed"]),
        submitted=submitted,
        agreed=submitted + details["agreed_ns"],
        begun=submitted + details["begun_ns"],
        ended=ended,
    )
