"""Calling a training function again in each new world."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sirtaki.core import elastic
from sirtaki.core.errors import HorovodInternalError, HostsUpdatedInterrupt, MismatchError
from sirtaki.core.world import lifecycle
from sirtaki.elastic import leaving
from sirtaki.elastic.state import State

T = TypeVar("T")
# Frameworks pass on our errors as texts within their own.
_LOST = ("PeerLostError", "CollectiveTimeoutError", "HorovodInternalError", "lost peer rank")
_MISMATCH = "MismatchError"


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
            with leaving.on_signals():
                return _call(functools.partial(func, state, *args, **kwargs), state, reset)
        finally:
            elastic.listen(None)

    return wrapper


def _call(func: Callable[[], T], state: State, reset: Callable[[], object]) -> T:
    """Call the training function in one world after the other, until it returns."""
    begin = state.sync
    while True:
        try:
            begin()
            return func()
        except HostsUpdatedInterrupt as interrupt:
            _require_elastic(interrupt)
            begin = functools.partial(_begin_again, state, reset, interrupt.skip_sync)
        except Exception as error:
            if not is_loss(error):
                elastic.report(error, state._commits)
                raise
            _require_elastic(error)
            _say(error)
            state.restore()
            begin = functools.partial(_begin_again, state, reset, False)


def _begin_again(state: State, reset: Callable[[], object], skips_sync: bool) -> None:
    """Go on in the next world; a peer may be lost here too."""
    # What is said of hosts from now on is about the next world.
    state.forget_host_updates()
    reset()
    state.on_reset()
    # Newcomers have no state, whatever the driver thought when it interrupted us.
    if not skips_sync or elastic.has_newcomers():
        state.sync()


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Make a training function outlive lost processes; a decorator.

    Args:
        func: Its first argument is a `State`, whose ``commit()`` it calls now and then. It is
            called again in each new world, and goes on from what was committed last.

    Returns:
        A function with the same arguments; see `run_fn`.
    """
    return run_fn(func, join_next_world)


def join_next_world() -> None:
    """Leave the world and join the next one."""
    lifecycle.shutdown()
    lifecycle.init()


def is_loss(error: BaseException) -> bool:
    """Tell whether an error means that a peer was lost: ours, or what a framework made of it.

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
    return type(error).__module__.partition(".")[0] in ("tensorflow", "jax", "jaxlib", "keras")


def _require_elastic(error: BaseException) -> None:
    if not elastic.is_elastic():
        raise error


def _say(error: BaseException) -> None:
    text = str(error).partition("\n")[0]
    print(f"sirtaki: {text}; joining the next world", file=sys.stderr, flush=True)
