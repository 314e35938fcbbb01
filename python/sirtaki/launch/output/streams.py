"""The output of a job's processes, from where it is read to where it is shown."""

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

    outputs: opens them. selector: watches those that are read here; the keys' data are called when
    they are readable. progress: gives way to what is printed. failed: told when something cannot be
    written.
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

    def open(self, event: Event) -> None:
        """Open the streams of a process that has started; where it is local, read them."""
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
        """Show what a process elsewhere has printed."""
        stream = self._streams.get((rank, name))
        if stream is not None:
            self._write(stream, data)

    def due(self) -> list[float]:
        """When (time.monotonic()) `settle` has something to do."""
        due = self._errors.due()
        return [*self._held.values(), *([] if due is None else [due])]

    def settle(self, now: float) -> None:
        """Show what waited for more that did not come."""
        for stream in [stream for stream, due in self._held.items() if due <= now]:
            del self._held[stream]
            with self._writing():
                stream.release()
        for sentence in self._errors.say(now):
            self._outputs.say(sentence)

    def drain(self) -> None:
        """Pass on what dead processes left in their pipes."""
        for key in self._read_here():
            while key.data():
                pass
        for stream in self._streams.values():
            self._write(stream, b"")
        self.settle(math.inf)

    def close(self) -> None:
        """Read no more."""
        for key in self._read_here():
            os.close(key.data.args[0])

    def _read_here(self) -> list[selectors.SelectorKey]:
        keys = self._selector.get_map().values()
        return [key for key in keys if isinstance(key.data, partial)]

    def _forward(self, descriptor: int, stream: RankStream) -> bool:
        """Pass on what has been printed; False when there is nothing (yet, or any more)."""
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
        """Show what has been printed; nothing is the end of the stream."""
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
