"""Records a rank's operations, waits and spans in memory between two requests.

A thread reads the flight recorder ten times a second; the engine's only extra work is to read a
precise clock. Twice as often, the thread notes which line of the user's code the main thread
executes.
"""

from __future__ import annotations

import base64
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from sirtaki import _core
from sirtaki.core.tracing.spans import Record, Sink
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.threads import Lasting, start_thread
from sirtaki.rendezvous.world.membership import Topology

_PAUSE_SECONDS = 0.1
# Between two samples of the line, so that they do not align with the steps.
_LOOK_SECONDS = (0.025, 0.075)
_ENDING_SECONDS = 5.0
# Most bytes kept; older records are dropped.
_MOST_BYTES = 64 << 20
_MOST_SPANS = 200_000
# Most bytes of one answer.
_BYTES_OF_AN_ANSWER = 1 << 20
_SPANS_OF_AN_ANSWER = 20_000
# A shorter call did not wait.
_SHORTEST_WAIT_NS = 20_000

# Methods of the engine that wait.
_WAITS = ("wait", "send_and_wait", "receive_and_wait")

_Span = tuple[str, int, int, int]
_Any = TypeVar("_Any")


class Recorded(Protocol):
    """The recorded part of a world."""

    label: str
    engine: _core.Engine

    @property
    def key(self) -> str:
        """Return its name, the same on all ranks."""

    @property
    def topology(self) -> Topology:
        """Return this rank's place in the world."""


class Recording:
    """Records until `stop`; the records are taken piece by piece.

    Args:
        worlds: Returns those of this process.
    """

    def __init__(self, worlds: Callable[[], Iterable[Recorded]]) -> None:
        from sirtaki.questions.place import OwnLine  # few processes need it

        self._worlds = worlds
        self._next: weakref.WeakKeyDictionary[Recorded, tuple[int, list[int]]] = (
            weakref.WeakKeyDictionary()
        )
        self._drained: deque[tuple[dict[str, object], bytes]] = deque()
        self._bytes = 0
        self._dropped = 0
        self._spans: deque[_Span] = deque(maxlen=_MOST_SPANS)
        self._waits: deque[_Span] = deque(maxlen=_MOST_SPANS)
        self._lines: deque[tuple[str, int]] = deque(maxlen=_MOST_SPANS)
        self._own_line = OwnLine()
        self._own_waits = _WatchedWaits(self._waits)
        self.begun = _now()
        self._cpu = -time.process_time()
        self.ended: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._lasting = Lasting("the trace")
        self._drain()
        Sink.record = self._add_span
        self._end_ranges = watch_ranges(self._add_span)
        self._thread = start_thread(self._record, "sirtaki trace")

    def stop(self) -> None:
        """Stop recording; a second call does nothing."""
        if self.ended is not None:
            return
        Sink.record = None
        self._end_ranges()
        self._own_waits.end()
        self._end.set()
        self._thread.join(_ENDING_SECONDS)
        self._drain()
        self.ended = _now()
        self._cpu += time.process_time()
        for world in self._worlds():
            world.engine.be_precise(False)

    def take(self) -> dict[str, object]:
        """Return and forget the oldest records; ``more``: whether others remain.

        ``begun`` and ``ended``, or now, are times on the monotonic clock and since 1970. ``cpu``:
        seconds of processor time since. ``cores``: that this rank may use.

        ``operations`` are as `_core.decode_records` takes them, with the world that they are of.
        """
        with self._lock:
            found, size = [], 0
            while self._drained and size < _BYTES_OF_AN_ANSWER:
                world, records = self._drained.popleft()
                size += len(records)
                found.append({**world, "records": base64.b64encode(records).decode()})
            self._bytes -= size
        spans, waits, lines = _taken(self._spans), _taken(self._waits), _taken(self._lines)
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return {
            "begun": self.begun,
            "ended": self.ended or _now(),
            "operations": found,
            "spans": spans,
            "waits": waits,
            "lines": lines,
            "threads": {str(each[1]): names.get(each[1], "") for each in (*spans, *waits)},
            "main": threading.main_thread().ident,
            "calls": self._own_waits.calls,
            "cpu": self._cpu + (time.process_time() if self.ended is None else 0.0),
            "cores": len(os.sched_getaffinity(0)),
            "dropped": self._dropped,
            "more": bool(self._drained or self._spans or self._waits or self._lines),
        }

    def _add_span(self, name: str, thread: int, begun: int, ended: int) -> None:
        self._spans.append((name, thread, begun, ended))

    def _record(self) -> None:
        import random  # few processes need it

        pauses = random.Random()  # leaves the user's random numbers unchanged
        drained = time.monotonic()
        while not self._end.wait(pauses.uniform(*_LOOK_SECONDS)):
            with self._lasting:
                self._note_line()
                if time.monotonic() - drained >= _PAUSE_SECONDS:
                    self._drain()
                    drained = time.monotonic()

    def _note_line(self) -> None:
        if line := self._own_line.now():
            self._lines.append((line, time.monotonic_ns()))

    def _drain(self) -> None:
        for world in self._worlds():
            begins = world not in self._next
            place = self._next.get(world, (0, []))
            if begins:
                world.engine.be_precise(True)
            records, still_open, after, lost = world.engine.drain(place[0], place[1])
            self._dropped += lost
            self._next[world] = (after, still_open)
            if records and not begins:  # operations before the trace have coarse times
                self._keep(world, records)

    def _keep(self, world: Recorded, records: bytes) -> None:
        of = {"world": world.key, "label": world.label, "rank": world.topology.rank}
        of["size"] = world.topology.size
        with self._lock:
            self._drained.append((of, records))
            self._bytes += len(records)
            while self._bytes > _MOST_BYTES:
                self._bytes -= len(self._drained.popleft()[1])
                self._dropped += 1


class _WatchedWaits:
    """Notes when threads wait in the engine, by wrapping its methods.

    calls: how often a thread has requested a result, whether or not it had to wait.
    """

    def __init__(self, waits: deque[_Span]) -> None:
        self.calls = 0
        self._waits = waits
        engine: Any = _core.Engine
        self._submit = _core.Engine.submit
        self._own = {name: getattr(engine, name) for name in _WAITS}
        engine.submit = self._timed_submit()
        for name in _WAITS:
            setattr(engine, name, self._timed(self._own[name]))

    def end(self) -> None:
        """Restore the original methods."""
        engine: Any = _core.Engine
        engine.submit = self._submit
        for name, method in self._own.items():
            setattr(engine, name, method)

    def _timed(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        note = self._note

        def timed(engine: _core.Engine, *arguments: Any, **named: Any) -> Any:
            begun = time.monotonic_ns()
            try:
                return wait(engine, *arguments, **named)
            finally:
                note(begun)

        return timed

    def _timed_submit(self) -> Callable[..., _core.Handle]:
        submit, note = self._submit, self._note

        def timed(engine: _core.Engine, request: _core.Request, keep: object) -> _core.Handle:
            if not request.waits:
                return submit(engine, request, keep)
            begun = time.monotonic_ns()
            try:
                return submit(engine, request, keep)
            finally:
                note(begun)

        return timed

    def _note(self, begun: int) -> None:
        ended = time.monotonic_ns()
        self.calls += 1
        if ended - begun >= _SHORTEST_WAIT_NS:
            self._waits.append(("wait", threading.get_ident(), begun, ended))


def _taken(spans: deque[_Any]) -> list[_Any]:
    return [spans.popleft() for _ in range(min(len(spans), _SPANS_OF_AN_ANSWER))]


def _now() -> tuple[int, int]:
    """Return the time on the monotonic clock and since 1970."""
    return time.monotonic_ns(), time.time_ns()


class _Current:
    """The current or last recording."""

    recording: Recording | None = None


def answers(worlds: Callable[[], Iterable[Recorded]]) -> Mapping[Question, Callable[[], object]]:
    """Return the handlers of the questions of `sirtaki trace`.

    Args:
        worlds: Returns those of this process.
    """
    return {
        Question.TRACE_START: lambda: _start(worlds),
        Question.TRACE_STOP: _stop,
        Question.TRACE_TAKE: _take,
    }


def _start(worlds: Callable[[], Iterable[Recorded]]) -> dict[str, object]:
    now = _Current.recording
    if now is not None and now.ended is None:
        seconds = (time.monotonic_ns() - now.begun[0]) * 1e-9
        return {"refused": f"a trace has run for {seconds:.0f} s"}
    _Current.recording = Recording(worlds)
    return {}


def _stop() -> dict[str, object]:
    now = _Current.recording
    if now is None or now.ended is not None:
        return {"refused": "no trace runs"}
    now.stop()
    return {}


def _take() -> dict[str, object]:
    if _Current.recording is None:
        return {"refused": "no trace has run"}
    return _Current.recording.take()


def watch_ranges(record: Record) -> Callable[[], None]:
    """Record profiler ranges from now on, even without a profiler; do nothing without PyTorch.

    Args:
        record: Called with each range.

    Returns:
        A function that ends it.
    """
    profiler = sys.modules.get("torch.autograd.profiler")
    ranges: Any = getattr(profiler, "record_function", None)
    if ranges is None:
        return lambda: None
    enter, leave = ranges.__enter__, ranges.__exit__
    begun: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def timed_enter(one: Any) -> Any:
        begun[one] = time.monotonic_ns()
        return enter(one)

    def timed_leave(one: Any, *error: Any) -> Any:
        since = begun.pop(one, 0)
        if since:
            record(str(one.name), threading.get_ident(), since, time.monotonic_ns())
        return leave(one, *error)

    def end() -> None:
        ranges.__enter__, ranges.__exit__ = enter, leave

    ranges.__enter__, ranges.__exit__ = timed_enter, timed_leave
    return end
