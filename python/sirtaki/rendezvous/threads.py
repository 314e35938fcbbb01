"""Threads that last, a registry that they share, and a queue to a thread that polls descriptors."""

from __future__ import annotations

import contextlib
import errno
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import weakref

T = TypeVar("T")
R = TypeVar("R")

# A loop that fails in every turn must not use a whole processor.
_PAUSE_SECONDS = 0.05
_MOST_SAID = 16


class Lasting:
    """A context for each turn of a thread's loop: an error ends only that turn.

    Args:
        what: The subject of the message, which is printed once for each kind of error.
        say: Prints the message; default: standard error.
    """

    def __init__(self, what: str, say: Callable[[str], object] | None = None) -> None:
        self._what = what
        self._say = say or _to_stderr
        self._said: set[str] = set()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self.note(error)
        time.sleep(_PAUSE_SECONDS)
        return True

    def note(self, error: BaseException) -> None:
        """Report an error after which the thread goes on, unless it was reported before."""
        said = f"{type(error).__name__} {error.errno if isinstance(error, OSError) else ''}"
        known = said in self._said or len(self._said) >= _MOST_SAID
        if known or not threading.main_thread().is_alive():  # shutdown causes many errors
            return
        self._said.add(said)
        with contextlib.suppress(OSError, ValueError):
            self._say(f"{self._what} goes on after {type(error).__name__}: {error}")


def _to_stderr(line: str) -> None:
    """Print a message for the user of this process."""
    print(f"sirtaki: {line}", file=sys.stderr, flush=True)


def start_thread(
    target: Callable[..., object], name: str, arguments: tuple[object, ...] = ()
) -> threading.Thread:
    """Start a daemon thread. Raises OSError if the system cannot start one more."""
    thread = threading.Thread(target=target, name=name, args=arguments, daemon=True)
    begin(thread)
    return thread


def begin(thread: threading.Thread) -> None:
    """Start an existing thread object. Raises OSError as `start_thread` does."""
    try:
        thread.start()
    except RuntimeError as error:
        # Not EAGAIN, for which Python raises BlockingIOError, as for a socket without data.
        raise OSError(errno.ENOMEM, f"{error} (ulimit -u, or a limit of processes)") from None


def in_threads(function: Callable[[T], R], items: Sequence[T], at_once: int) -> list[R]:
    """Call a function for each item, many at once, in as many threads as can be started.

    Args:
        function: Called with each item; its error is raised here after all calls have ended.
        items: This thread works too, and alone if no other can be started.
        at_once: The most calls at a time.

    Returns:
        The results, in the order of the items.
    """
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    results: dict[int, R] = {}
    errors: list[BaseException] = []
    for number in range(len(items)):
        left.put(number)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                number = left.get_nowait()
                try:
                    results[number] = function(items[number])
                except BaseException as error:
                    errors.append(error)

    threads = []
    with contextlib.suppress(OSError):
        for _ in range(min(at_once, len(items)) - 1):
            threads.append(start_thread(work, "sirtaki one of many"))
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]


class Living(Generic[T]):
    """A set of weakly referenced objects, by identity.

    Unlike `weakref.WeakSet` it may change during an iteration, which yields the objects that were
    in it at the start.
    """

    def __init__(self) -> None:
        self._all: tuple[weakref.ref[T], ...] = ()
        self._lock = threading.Lock()

    def add(self, item: T) -> None:
        """Add an object."""
        import weakref  # a launcher needs none

        self._replace(item, (weakref.ref(item),))

    def discard(self, item: T) -> None:
        """Remove an object if it is in the set."""
        self._replace(item, ())

    def _replace(self, item: T, added: tuple[weakref.ref[T], ...]) -> None:
        with self._lock:
            others = [ref for ref in self._all if ref() is not None and ref() is not item]
            self._all = (*others, *added)

    def __iter__(self) -> Iterator[T]:
        return iter([item for ref in self._all if (item := ref()) is not None])


class Inbox(Generic[T]):
    """A queue that a selector can wait on: `fileno` is readable when `take` has something."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        # Sockets, because `put` after `close` could write to a reused descriptor of a pipe.
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that is readable when `take` has something."""
        return self._reader.fileno()

    def put(self, item: T) -> None:
        """Add an item, from any thread; it is lost once the inbox is closed."""
        self._items.put(item)
        with contextlib.suppress(OSError):  # full, and so readable, or closed
            self._writer.send(b"!")

    def take(self) -> Iterator[T]:
        """Yield the items."""
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(1 << 16)
        while not self._items.empty():
            yield self._items.get()

    def close(self) -> None:
        """Close the sockets."""
        self._reader.close()
        self._writer.close()
