"""Calls a training function again in each new world, and tells others of the error that ends it."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sirtaki.core import elastic, heartbeat
from sirtaki.core.errors import HorovodInternalError, HostsUpdatedInterrupt, MismatchError
from sirtaki.core.world import lifecycle
from sirtaki.elastic.state import State
from sirtaki.frameworks import frameworks

T = TypeVar("T")
# Frameworks pass our errors on as text within their own.
_LOST = ("PeerLostError", "CollectiveTimeoutError", "HorovodInternalError")
_MISMATCH = "MismatchError"
# Schedulers and users send the first to end a process, the second to warn of its end.
_SIGNALS = ("SIGTERM", "SIGUSR1")

# How long a program may clean up, or catch the error and go on.
_PATIENCE_SECONDS = 0.4


def run_fn(func: Callable[..., T], reset: Callable[[], object]) -> Callable[..., T]:
    """Make a training function go on in a new world when processes are lost or hosts come or go.

    Mirrors ``horovod.common.elastic.run_fn``.

    Args:
        func: Its first argument is the `State`. It is called again after each reset.
        reset: Leaves the old world and joins the next one.

    Returns:
        A function with the same arguments, which returns what `func` returns. It raises what `func`
        raises, except for the loss of a peer and `HostsUpdatedInterrupt`; outside of elastic jobs,
        where there is no new world, it raises these too.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> T:
        elastic.listen(lambda *update: state.on_hosts_updated(*update))
        try:
            with _leaving_on_signals():
                return _call(functools.partial(func, state, *args, **kwargs), state, reset)
        finally:
            elastic.listen(None)

    return wrapper


def _call(func: Callable[[], T], state: State, reset: Callable[[], object]) -> T:
    """Call the training function in one world after another until it returns."""
    begin = state.sync
    while True:
        try:
            begin()
            return func()
        except HostsUpdatedInterrupt as interrupt:
            _require_elastic(interrupt)
            begin = functools.partial(_begin_again, state, reset, interrupt.skip_sync)
        except BaseException as error:
            if not isinstance(error, Exception) or not is_loss(error):
                if isinstance(error, Exception):
                    state.on_failure(error)
                tell_failure(error, state._commits)
                raise
            _require_elastic(error)
            _say(error)
            state.restore()
            begin = functools.partial(_begin_again, state, reset, False)


def _begin_again(state: State, reset: Callable[[], object], skips_sync: bool) -> None:
    """Go on in the next world; a peer may be lost here too."""
    # Host updates from now on concern the next world.
    state.forget_host_updates()
    reset()
    state.on_reset()
    # Newcomers have no state, even if the driver did not expect any when it interrupted us.
    if not skips_sync or elastic.has_newcomers():
        state.sync()


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Make a training function survive lost processes; a decorator.

    Args:
        func: Its first argument is a `State`, whose ``commit()`` it calls now and then. It is
            called again in each new world, and goes on from the last commit.

    Returns:
        A function with the same arguments; see `run_fn`.
    """
    return run_fn(func, join_next_world)


def join_next_world() -> None:
    """Leave the world and join the next one."""
    lifecycle.shutdown()
    lifecycle.init()


def is_loss(error: BaseException) -> bool:
    """Return whether an error means that a peer was lost: ours, or a framework's version of it.

    A `MismatchError` is a fault of the program.
    """
    chain = list(_chain(error))
    if any(isinstance(each, MismatchError) for each in chain):
        return False
    if any(isinstance(each, HorovodInternalError) for each in chain):
        return True
    texts = [str(each) for each in chain if _is_of_framework(each)]
    return any(any(word in text for word in _LOST) and _MISMATCH not in text for text in texts)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)


def _is_of_framework(error: BaseException) -> bool:
    package = type(error).__module__.partition(".")[0]
    return any(package in each.errors for each in frameworks().values())


def _require_elastic(error: BaseException) -> None:
    if not elastic.is_elastic():
        raise error


def _say(error: BaseException) -> None:
    # A framework may put its own text before ours.
    lines = str(error).splitlines() or [type(error).__name__]
    text = next((line for line in lines if any(word in line for word in _LOST)), lines[0])
    print(f"sirtaki: {text}; joining the next world", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _leaving_on_signals() -> Iterator[None]:
    """Leave on signals that the program does not handle itself, and report that to the driver."""
    taken = []
    if elastic.is_elastic():
        # Only the main thread may set handlers.
        with contextlib.suppress(ValueError):
            for number in (getattr(signal, name) for name in _SIGNALS):
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, _Handler(os.getpid()))
                    taken.append(number)
        elastic.say_training(taken)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            for number in taken:
                signal.signal(number, signal.SIG_DFL)


class _Handler:
    """Handles a signal. pid: of the process that leaves; its children inherit the handler."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __call__(self, number: int, _frame: object) -> None:
        if os.getpid() == self._pid and not heartbeat.is_ending():
            elastic.leave(number)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def tell_failure(error: BaseException, step: int) -> None:
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
