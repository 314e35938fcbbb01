"""Reports an error of a training function, so that others do not wait for the process's end."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from sirtaki.core import elastic
from sirtaki.core.world import lifecycle

# How long a program may clean up, or catch the error and go on.
_PATIENCE_SECONDS = 0.4


def tell(error: BaseException, step: int) -> None:
    """Report an error to the driver, and leave the world if the program does not go on after it.

    Args:
        error: The error that the training function raised.
        step: How many commits the state had made.
    """
    if not elastic.is_elastic() or elastic.has_left():
        return
    elastic.report(error, step)
    # Without a thread the others wait for this process's end; the program's error is raised.
    with contextlib.suppress(RuntimeError):
        threading.Thread(
            target=_watch,
            args=(error, threading.current_thread()),
            name="sirtaki failing",
            daemon=True,
        ).start()


def _watch(error: BaseException, thread: threading.Thread) -> None:
    time.sleep(_PATIENCE_SECONDS)
    if thread.is_alive() and not any(each is error for each in _handled_by(thread)):
        return
    # The driver does not answer if all others have raised errors too.
    with contextlib.suppress(OSError):
        elastic.await_giving_up()
        lifecycle.abort(f"raised {type(error).__name__}: {error}")


def _handled_by(thread: threading.Thread) -> Iterator[BaseException]:
    """Yield the exceptions that a thread is handling, also in `finally` and on exit from `with`."""
    found = sys._current_exceptions().get(thread.ident or 0)
    # Before Python 3.12 this is a tuple of type, error and traceback.
    error = found[1] if isinstance(found, tuple) else found
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__context__
