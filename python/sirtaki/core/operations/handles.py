"""Integer handles of operations in flight, shared by all front ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from sirtaki import _core
from sirtaki.core.errors import HorovodInternalError


class _Pending:
    """An operation in flight.

    key: to be refused meanwhile. news: of `_news`, when it was started. succeeded: `start` has
    waited for it.
    """

    __slots__ = ("engine", "finish", "handle", "key", "news", "polled", "succeeded")

    def __init__(
        self,
        engine: _core.Engine,
        handle: _core.Handle,
        finish: Callable[[_core.Handle], list[Any]],
        key: tuple[str, int] | None,
        news: int,
        succeeded: bool,
    ) -> None:
        self.engine = engine
        self.handle = handle
        self.finish = finish
        self.key = key
        self.news = news
        self.succeeded = succeeded
        self.polled = False


_pending: dict[int, _Pending] = {}
# The latest operation of each name in each process set.
_by_key: dict[tuple[str, int], int] = {}
# How often the script has heard that some operation is done.
_news = 0
_numbers = itertools.count()


def start(
    engine: _core.Engine,
    request: _core.Request,
    keep: object,
    finish: Callable[[_core.Handle], list[Any]],
) -> int:
    """Submit an operation; return a new handle.

    Args:
        engine: The engine of the world.
        request: What is to be done; used up.
        keep: Tensors that the operation reads and writes: the engine keeps them until it is done,
            whatever becomes of the handle.
        finish: Turns the finished operation into its results; may be called again.

    Raises:
        ValueError: An operation in flight has this name.
    """
    waits = request.waits
    key = None if waits else request.key
    if key is not None:
        _require_unused(engine, key)
    number = follow(engine, engine.submit(request, keep), finish, key, waits)
    if key is not None:
        _by_key[key] = number
    return number


def follow(
    engine: _core.Engine,
    handle: _core.Handle,
    finish: Callable[[_core.Handle], list[Any]],
    key: tuple[str, int] | None = None,
    succeeded: bool = False,
) -> int:
    """Return a new handle for what has been started already; arguments as `start`.

    succeeded: Whether it is done, without an error.
    """
    number = next(_numbers)
    _pending[number] = _Pending(engine, handle, finish, key, _news, succeeded)
    return number


def _require_unused(engine: _core.Engine, key: tuple[str, int]) -> None:
    """Refuse a name again that the script cannot know to be free.

    The engine refuses names of operations that run; whether one still runs is a matter of luck,
    and ranks that differ in it would wait for each other.
    """
    earlier = _pending.get(_by_key.get(key, -1))
    if earlier is not None and earlier.news == _news and earlier.engine is engine:
        verb, _, name = key[0].partition(".")
        raise ValueError(
            f"{verb} {name!r}: a tensor with the same name as another tensor that is currently "
            "being processed; give every operation in flight a name of its own, or wait for the "
            "first"
        )


def poll(handle: int) -> bool:
    """Tell whether the operation is done, successfully or not.

    The first answer is False: scripts take True at once for a sign that nothing is asynchronous.

    Raises:
        ValueError: No operation in flight has this handle.
        HorovodInternalError: This process was forked from the rank that started the operation.
    """
    global _news
    pending = _find(handle)
    pending.engine.require_own_process()
    done = pending.polled and pending.handle.done()
    pending.polled = True
    _news += done
    return done


def synchronize(handle: int) -> list[Any]:
    """Wait for the operation and return its results; the handle is used up.

    What a signal handler raises meanwhile leaves the handle as it was.

    Raises:
        ValueError: No operation in flight has this handle.
        HorovodInternalError: The operation failed; the subclass and message say how.
    """
    try:
        outputs = results(handle)
    except HorovodInternalError:
        forget(handle)
        raise
    forget(handle)
    return outputs


def results(handle: int) -> list[Any]:
    """Do what `synchronize` does, but leave the handle usable until `forget`."""
    pending = _find(handle)
    done = pending.handle
    if not pending.succeeded:
        pending.engine.wait(done)
        done.check()
    return pending.finish(done)


def forget(handle: int) -> None:
    """Use up the handle, if its operation is done."""
    global _news
    pending = _pending.get(handle)
    if pending is None or not (pending.succeeded or pending.handle.done()):
        return
    _news += 1
    if pending.key is not None and _by_key.get(pending.key) == handle:
        del _by_key[pending.key]
    _pending.pop(handle, None)


def _find(handle: int) -> _Pending:
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"handle {handle} was synchronized already or never existed")
    return pending
