"""A rank records its operations, waits and spans from one question to another, in memory.

A thread reads the flight recorder ten times a second: the engine does nothing for it, except that
it reads a precise clock meanwhile.
"""

from __future__ import annotations

import base64
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sirtaki import _core
from sirtaki.core.tracing.spans import Sink
from sirtaki.core.tracing.torch_ranges import watch_ranges

if TYPE_CHECKING:
    from sirtaki.core.world.world import World

_PAUSE_SECONDS = 0.1
_ENDING_SECONDS = 5.0
# What is kept; of more the latest.
_MOST_BYTES = 64 << 20
_MOST_SPANS = 200_000
# What one answer brings.
_BYTES_OF_AN_ANSWER = 1 << 20
_SPANS_OF_AN_ANSWER = 20_000
# A shorter wait was none.
_SHORTEST_WAIT_NS = 20_000

# Methods of the engine that wait.
_WAITS = ("wait", "send_and_wait", "receive_and_wait")

_Span = tuple[str, int, int, int]


class Recording:
    """Records from now on until `stop`; what it has is taken piece by piece.

    Args:
        worlds: Returns those of this process.
    """

    def __init__(self, worlds: Callable[[], Iterable[World]]) -> None:
        self._worlds = worlds
        self._next: weakref.WeakKeyDictionary[World, tuple[int, list[int]]] = (
            weakref.WeakKeyDictionary()
        )
        self._drained: deque[tuple[dict[str, object], bytes]] = deque()
        self._bytes = 0
        self._dropped = 0
        self._spans: deque[_Span] = deque(maxlen=_MOST_SPANS)
        self._waits: deque[_Span] = deque(maxlen=_MOST_SPANS)
        self._own_waits = _WatchedWaits(self._waits)
        self.begun = _now()
        self.ended: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._drain()
        Sink.record = self._add_span
        self._end_ranges = watch_ranges(self._add_span)
        self._thread = threading.Thread(target=self._record, name="sirtaki trace", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Record nothing more; a second call does nothing."""
        if self.ended is not None:
            return
        Sink.record = None
        self._end_ranges()
        self._own_waits.end()
        self._end.set()
        self._thread.join(_ENDING_SECONDS)
        self._drain()
        self.ended = _now()
        for world in self._worlds():
            world.engine.be_precise(False)

    def take(self) -> dict[str, object]:
        """Return the oldest of what is recorded, and forget it; ``more``: whether there is more.

        ``begun`` and ``ended``, or now, are times on the monotonic clock and since 1970.

        ``operations`` are as `_core.decode_records` takes them, with the world that they are of.
        """
        with self._lock:
            found, size = [], 0
            while self._drained and size < _BYTES_OF_AN_ANSWER:
                world, records = self._drained.popleft()
                size += len(records)
                found.append({**world, "records": base64.b64encode(records).decode()})
            self._bytes -= size
        spans, waits = _taken(self._spans), _taken(self._waits)
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return {
            "begun": self.begun,
            "ended": self.ended or _now(),
            "operations": found,
            "spans": spans,
            "waits": waits,
            "threads": {str(each[1]): names.get(each[1], "") for each in (*spans, *waits)},
            "main": threading.main_thread().ident,
            "calls": self._own_waits.calls,
            "dropped": self._dropped,
            "more": bool(self._drained or self._spans or self._waits),
        }

    def _add_span(self, name: str, thread: int, begun: int, ended: int) -> None:
        self._spans.append((name, thread, begun, ended))

    def _record(self) -> None:
        while not self._end.wait(_PAUSE_SECONDS):
            self._drain()

    def _drain(self) -> None:
        for world in self._worlds():
            begins = world not in self._next
            place = self._next.get(world, (0, []))
            if begins:
                world.engine.be_precise(True)
            records, still_open, after, lost = world.engine.drain(place[0], place[1])
            self._dropped += lost
            self._next[world] = (after, still_open)
            if records and not begins:  # what ended before the trace had coarse times
                self._keep(world, records)

    def _keep(self, world: World, records: bytes) -> None:
        of = {"world": world.key, "label": world.label, "rank": world.topology.rank}
        of["size"] = world.topology.size
        with self._lock:
            self._drained.append((of, records))
            self._bytes += len(records)
            while self._bytes > _MOST_BYTES:
                self._bytes -= len(self._drained.popleft()[1])
                self._dropped += 1


class _WatchedWaits:
    """Notes when threads of this process wait in the engine, by methods in place of its own.

    calls: how often one has asked for a result, whether or not it had to wait.
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
        """Put back what was there."""
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


def _taken(spans: deque[_Span]) -> list[_Span]:
    return [spans.popleft() for _ in range(min(len(spans), _SPANS_OF_AN_ANSWER))]


def _now() -> tuple[int, int]:
    """Return the time on the monotonic clock, and since 1970."""
    return time.monotonic_ns(), time.time_ns()


class _Current:
    """What is being recorded, or was at last."""

    recording: Recording | None = None


def answers(worlds: Callable[[], Iterable[World]]) -> Mapping[str, Callable[[], object]]:
    """Return what answers the questions of `sirtaki trace`.

    Args:
        worlds: Returns those of this process.
    """
    return {
        "trace start": lambda: _start(worlds),
        "trace stop": _stop,
        "trace take": _take,
    }


def _start(worlds: Callable[[], Iterable[World]]) -> dict[str, object]:
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
