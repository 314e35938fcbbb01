"""An accelerator whose streams do nothing before they must.

What is put on a stream runs when somebody waits for an event behind it, and not before: who forgets
to wait reads what was there. Its tensors are CPU tensors, and its process group is Gloo.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

# Streams are emptied by whoever waits, one thread at a time.
_RUNNING = threading.RLock()


class Event:
    """A place on a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.reached = False
        stream.put(self._reach)

    def _reach(self) -> None:
        self.reached = True

    def await_reached(self) -> None:
        """Run the stream up to here."""
        with _RUNNING:
            while not self.reached:
                self._stream.step()


class Stream:
    """Work that is done in order: when it is waited for, or at once."""

    def __init__(self, eager: bool) -> None:
        self._eager = eager
        self._work: deque[Callable[[], None]] = deque()

    def put(self, work: Callable[[], None]) -> None:
        """Add to what is to be done."""
        if self._eager:
            work()
        else:
            self._work.append(work)

    def step(self) -> None:
        """Do the first of what is to be done."""
        self._work.popleft()()


class FakeDevice:
    """A device that every tensor is on, except where a test says otherwise.

    Args:
        identity: What it is called.
        eager: Whether its streams do things at once, for tests that compute on tensors themselves.
        patience: Seconds that its group waits for members.
    """

    backend = "gloo"
    averages = False

    def __init__(self, identity: str, eager: bool = False, patience: float = 60.0) -> None:
        self._identity = identity
        self._patience = timedelta(seconds=patience)
        self._streams = {"user": Stream(eager), "side": Stream(eager)}
        self.on_host = False
        self.captures = False
        self.groups = 0

    # ---- What the adapter asks ----

    def holds(self, tensor: torch.Tensor) -> bool:
        return not self.on_host

    def identity(self) -> str:
        return self._identity

    def make_group(
        self, store: dist.Store, rank: int, size: int, timeout: timedelta
    ) -> dist.ProcessGroup:
        self.groups += 1
        return dist.ProcessGroupGloo(store, rank, size, timeout=self._patience)

    def capturing(self) -> bool:
        return self.captures

    def current(self) -> Stream:
        return self._streams["user"]

    def side(self) -> Stream:
        return self._streams["side"]

    def record(self, stream: Stream) -> Event:
        return Event(stream)

    def completed(self, event: Event) -> bool:
        return event.reached

    def wait(self, stream: Stream, event: Event) -> None:
        stream.put(event.await_reached)

    def launch(self, work: Callable[[], None]) -> None:
        self.side().put(work)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.full(tuple(shape), 77, dtype=torch.float64).to(dtype)

    def share(self, tensors: Sequence[torch.Tensor], stream: Stream) -> None:
        pass

    def finish(self) -> None:
        Event(self.side()).await_reached()

    # ---- What a test does ----

    def compute(self, work: Callable[[], object]) -> None:
        """Put something on the stream on which the script computes."""
        self.current().put(lambda: void(work()))

    def tensor(self, values: torch.Tensor) -> torch.Tensor:
        """Return a tensor that will hold these values once the script's stream has come there."""
        result = torch.full_like(values, 0)
        self.compute(lambda: result.copy_(values))
        return result

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what a tensor holds after all that the script has put on its stream."""
        Event(self.current()).await_reached()
        return tensor.clone()

    @contextmanager
    def host_tensors(self) -> Iterator[None]:
        """Take tensors for what they are."""
        self.on_host = True
        try:
            yield
        finally:
            self.on_host = False


def void(_: object) -> None:
    """Return nothing."""
