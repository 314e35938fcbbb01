"""Threads that survive errors in a turn of their loop, such as a lack of descriptors or memory."""

from __future__ import annotations

import contextlib
import errno
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

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
