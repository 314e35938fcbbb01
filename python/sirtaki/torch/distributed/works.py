"""The works returned to PyTorch's callers."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from sirtaki import _core
from sirtaki.core.errors import CollectiveTimeoutError, PeerLostError
from sirtaki.rendezvous.threads import Lasting, start_thread
from sirtaki.torch.distributed.in_pytorch import PythonWork

Results = list[torch.Tensor]
_NO_LIMIT = timedelta(0)


def seconds_of(timeout: timedelta | None) -> float | None:
    """Return a time limit in seconds; None if PyTorch means no limit."""
    if timeout is None or timeout <= _NO_LIMIT:
        return None
    return timeout.total_seconds()


class Work(PythonWork):
    """A running operation of the engine.

    Args:
        engine: The engine of the group.
        handle: The operation.
        results: The tensors that the operation writes.
        finish: The remaining steps after the engine is done; called again if interrupted.
        timeout: Seconds after which a wait without a limit of its own gives up; None: never.
        what: The operation, for messages.
        announced: Whether the completions' thread concludes it; else only a waiting thread does.
    """

    def __init__(
        self,
        engine: _core.Engine,
        handle: _core.Handle,
        results: Results,
        finish: Callable[[_core.Handle], None] | None,
        timeout: float | None,
        what: str,
        *,
        announced: bool,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._handle = handle
        self._results = results
        self._finish = finish
        self._timeout = timeout
        self._what = what
        self._announced = announced
        self._lock = threading.Lock()
        self._concluded = False
        self._error: BaseException | None = None
        self._future: Future[Results] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end; raises the operation's error."""
        if not self._concluded:
            self._await(seconds_of(timeout))
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Wait for the end."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the operation has ended, successfully or not."""
        if not self._concluded and self._handle.done():
            self.conclude()
        return self._concluded

    def is_success(self) -> bool:
        """Return whether the operation has ended successfully."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Return the operation's error, if it has failed."""
        return self._error if self.is_completed() else None

    def result(self) -> Results:
        """Return the written tensors; waits."""
        self.wait()
        return self._results

    def get_future(self) -> Future[Results]:
        """Return a future of the written tensors."""
        with self._lock:
            if self._future is None:
                self._future = Future()
                if self._concluded:
                    self._tell(self._future)
                elif not self._announced:
                    threading.Thread(target=self.conclude, daemon=True).start()
            return self._future

    def source_rank(self) -> int:
        """Return the rank that sent the received message."""
        return self._handle.source

    _source_rank = source_rank

    def conclude(self) -> None:
        """Wait until the engine is done, and do the remaining steps."""
        if not self._handle.done():  # else it would count as a call that waited
            self._engine.wait(self._handle)
        with self._lock:
            if self._concluded:
                return
            self._error = self._outcome()
            self._finish = None
            self._concluded = True
            if self._future is not None:
                self._tell(self._future)

    def _outcome(self) -> Exception | None:
        """Return the operation's error."""
        # Programs look for the wording of Gloo's errors.
        try:
            self._handle.check()
        except CollectiveTimeoutError as error:
            return CollectiveTimeoutError(f"{self._what}: Timed out waiting ({error})")
        except PeerLostError as error:
            return PeerLostError(f"{self._what}: Connection closed by peer ({error})")
        except Exception as error:
            return error
        try:
            if self._finish is not None:
                self._finish(self._handle)
        except Exception as error:
            # Signal handlers run in this thread. Their exceptions propagate to the waiting caller,
            # and the next wait completes the work.
            if threading.current_thread() is threading.main_thread():
                raise
            return error
        return None

    def _group_limit(self) -> float | None:
        return self._timeout

    def _await(self, own_limit: float | None) -> None:
        limit = own_limit or self._group_limit()
        if not self._engine.wait(self._handle, limit, for_ever=own_limit is None):
            raise CollectiveTimeoutError(
                f"{self._what}: Timed out waiting {limit:g} s: not all ranks of the group have "
                "called it, or one is stuck in it"
            )
        self.conclude()

    def _tell(self, future: Future[Results]) -> None:
        if self._error is None:
            future.set_result(self._results)
        else:
            future.set_exception(self._error)  # type: ignore[arg-type]


class Receive(Work):
    """A message that this rank awaits, as long as anything refers to the work."""

    def __del__(self) -> None:
        """Leave the message to the next receive, unless it has arrived."""
        self._engine.withdraw(self._handle)


class Works(PythonWork):
    """Several operations that are awaited together."""

    def __init__(self, works: Sequence[dist.Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for all of them."""
        for work in self._works:
            work.wait(timeout or _NO_LIMIT)
        return True

    def synchronize(self) -> None:
        """Wait for all of them."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether all of them have ended."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Return whether all of them have ended well."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> BaseException | None:
        """Return the error of the first that failed."""
        return next((e for e in (work.exception() for work in self._works) if e), None)

    def result(self) -> Results:
        """Return the tensors that all of them write; waits."""
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self) -> Future[Results]:
        """Return a future of the tensors that all of them write."""
        all_done = torch.futures.collect_all([work.get_future() for work in self._works])
        joined: Future[Results] = all_done.then(
            lambda futures: [t for future in futures.value() for t in future.value()]
        )
        return joined


class Completions:
    """Threads that conclude works without a waiter, so that their futures get values.

    Callbacks of a future run here, and may wait for another work; then another thread takes over.
    """

    def __init__(self) -> None:
        self.queue = _core.Completions()
        self._pending: dict[int, Callable[[], Any]] = {}
        self._early: set[int] = set()
        # Reentrant: the garbage collector may close a group while this lock is held.
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._lasting = Lasting("the thread that ends operations")
        self._add_thread()

    def number(self) -> int:
        """Return the number with which to submit an operation."""
        return next(self._numbers)

    def expect(self, number: int, conclude: Callable[[], Any]) -> None:
        """Call `conclude` once the operation of this number is done."""
        with self._lock:
            if number not in self._early:
                self._pending[number] = conclude
                return
            self._early.remove(number)
        conclude()

    def close(self) -> None:
        """End the threads: they must not need the interpreter when it exits."""
        self.queue.close()
        for thread in self._threads:
            thread.join()
        self._pending.clear()

    def _add_thread(self) -> None:
        self._idle += 1
        try:
            self._threads.append(start_thread(self._run, "sirtaki-completions"))
        except OSError:
            self._idle -= 1
            raise

    def _run(self) -> None:
        while numbers := self.queue.take():
            with self._lock:
                self._idle -= 1
                if self._idle == 0:
                    # If no thread can start, the next operations wait for this one's callbacks.
                    with contextlib.suppress(OSError):
                        self._add_thread()
                found = [(number, self._pending.pop(number, None)) for number in numbers]
                self._early.update(number for number, conclude in found if conclude is None)
            for _, conclude in found:
                if conclude is not None:
                    with self._lasting:
                        conclude()
            with self._lock:
                self._idle += 1
