"""Reads the output of a job's processes and shows it."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import time
from collections.abc import Callable, Iterator
from functools import partial

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.output.first_error import PATIENCE_SECONDS, Errors
from sirtaki.launch.output.output import Outputs, RankStream
from sirtaki.launch.output.progress import Progress
from sirtaki.launch.processes.events import Event
from sirtaki.launch.processes.frames import STREAMS

_READ_BYTES = 1 << 16


class Streams:
    """The streams of all processes.

    outputs: opens them. selector: watches the local ones; the keys' data are called when they are
    readable. progress: hidden before output is shown. failed: called when output cannot be written.
    """

    def __init__(
        self,
        outputs: Outputs,
        selector: selectors.BaseSelector,
        progress: Progress,
        failed: Callable[[BrokenPipeError | LaunchError], None],
    ) -> None:
        self._outputs = outputs
        self._selector = selector
        self._progress = progress
        self._failed = failed
        self._errors = outputs.errors or Errors()
        self._streams: dict[tuple[int, str], RankStream] = {}
        self._held: dict[RankStream, float] = {}
        self._remote: dict[object, list[int]] = {}

    def open(self, event: Event, host: object) -> None:
        """Open the streams of a started process; read them if it is local."""
        if not event.streams:
            self._remote.setdefault(host, []).append(event.rank)
        for name in STREAMS:
            with self._writing():
                self._streams[event.rank, name] = self._outputs.open(event.rank, name)
        for name, descriptor in zip(STREAMS, event.streams, strict=False):
            stream = self._streams.get((event.rank, name))
            if stream is None:
                os.close(descriptor)
                continue
            os.set_blocking(descriptor, False)
            self._selector.register(
                descriptor, selectors.EVENT_READ, partial(self._forward, descriptor, stream)
            )

    def write(self, rank: int, name: str, data: bytes) -> None:
        """Show output of a process on another host."""
        stream = self._streams.get((rank, name))
        if stream is not None:
            self._write(stream, data)

    def end(self, host: object) -> None:
        """End the streams of the processes of another host that has gone."""
        for rank in self._remote.pop(host, ()):
            for name in STREAMS:
                self.write(rank, name, b"")

    def due(self) -> list[float]:
        """Return when (time.monotonic()) `settle` has to be called."""
        due = self._errors.due()
        return [*self._held.values(), *([] if due is None else [due])]

    def settle(self, now: float) -> None:
        """Show lines that were held back for more that did not come."""
        for stream in [stream for stream, due in self._held.items() if due <= now]:
            del self._held[stream]
            with self._writing():
                stream.release()
        for sentence in self._errors.say(now):
            self._outputs.say(sentence)

    def drain(self) -> None:
        """Show the output that dead processes left in their pipes."""
        for key in self._read_here():
            while key.data():
                pass
        for stream in self._streams.values():
            self._write(stream, b"")
        self.settle(math.inf)

    def close(self) -> None:
        """Stop reading."""
        for key in self._read_here():
            os.close(key.data.args[0])

    def _read_here(self) -> list[selectors.SelectorKey]:
        keys = self._selector.get_map().values()
        return [key for key in keys if isinstance(key.data, partial)]

    def _forward(self, descriptor: int, stream: RankStream) -> bool:
        """Show available output; False when there is none yet, or the stream has ended."""
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(descriptor)
            os.close(descriptor)
        self._write(stream, data)
        return bool(data)

    def _write(self, stream: RankStream, data: bytes) -> None:
        """Show output; empty data ends the stream."""
        with self._writing():
            if data:
                self._progress.end()
                stream.write(data)
            else:
                stream.finish()
        self._held.pop(stream, None)
        if stream.holds:
            self._held[stream] = time.monotonic() + PATIENCE_SECONDS

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (BrokenPipeError, LaunchError) as error:
            self._failed(error)
