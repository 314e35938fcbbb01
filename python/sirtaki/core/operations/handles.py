"""Integer handles of operations in flight, shared by all front ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from sirtaki import _core
from sirtaki.core.errors import HorovodInternalError


class Pending:
    """An operation in flight, and everything kept for it, so that nothing outlives its world.

    key: refused for other operations meanwhile. news: the value of `_news` at its start. succeeded:
    `start` has waited for it. last, parts: used by `Groups`.
    """

    __slots__ = (
        "engine",
        "finish",
        "handle",
        "key",
        "last",
        "news",
        "parts",
        "polled",
        "succeeded",
    )

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
        self.last: Callable[[list[Any]], Any] | None = None
        self.parts: list[Any] | None = None


_pending: dict[int, Pending] = {}
# The latest operation of each name in each process set.
_by_key: dict[tuple[str, int], int] = {}
# How often the script has learned that an operation is done.
_news = 0
_numbers = itertools.count()
# Errors of operations that nobody had waited for when the last world was shut down. A handle
# raises its error once: an elastic job continues after it and must not meet it again.
_failures: dict[int, tuple[type[Exception], str]] = {}


def start(
    engine: _core.Engine,
    request: _core.Request,
    keep: object,
    finish: Callable[[_core.Handle], list[Any]],
) -> int:
    """Submit an operation; return a new handle.

    Args:
        engine: The engine of the world.
        request: The request, which is used up.
        keep: Tensors that the operation reads and writes: the engine keeps them until it is done,
            regardless of the handle.
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


def start_known(
    engine: _core.Engine,
    known: _core.Known,
    key: tuple[str, int],
    tensors: list[Any],
    waits: bool,
) -> int | None:
    """Do the same as `start` for an operation on tensors that hold its results later.

    Returns:
        A new handle; None if the tensors are not like those that the operation is known by.
    """
    if key in _by_key and not waits:
        _require_unused(engine, key)
    handle = known.submit(engine, tensors, waits)
    if handle is None:
        return None
    number = next(_numbers)
    if not waits:
        _by_key[key] = number
    held = None if waits else key
    _pending[number] = Pending(engine, handle, lambda _: tensors, held, _news, waits)
    return number


def follow(
    engine: _core.Engine,
    handle: _core.Handle,
    finish: Callable[[_core.Handle], list[Any]],
    key: tuple[str, int] | None = None,
    succeeded: bool = False,
) -> int:
    """Return a new handle for an operation already started; arguments as `start`.

    succeeded: Whether it has finished without an error.
    """
    number = next(_numbers)
    _pending[number] = Pending(engine, handle, finish, key, _news, succeeded)
    return number


def _require_unused(engine: _core.Engine, key: tuple[str, int]) -> None:
    """Refuse the reuse of a name that the script cannot know to be free.

    The engine refuses names of running operations. Whether one still runs depends on timing, and
    ranks that see it differently would wait for each other.
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
    """Return whether the operation is done, successfully or not.

    The first result is False: scripts take an immediate True as a sign of synchronous operations.

    Raises:
        ValueError: No operation in flight has this handle.
        HorovodInternalError: This process was forked from the rank that started the operation.
    """
    global _news
    pending = find(handle)
    pending.engine.require_own_process()
    done = pending.polled and pending.handle.done()
    pending.polled = True
    _news += done
    return done


def synchronize(handle: int) -> list[Any]:
    """Wait for the operation and return its results; the handle is used up.

    An exception from a signal handler meanwhile leaves the handle unchanged.

    Raises:
        ValueError: No operation in flight has this handle.
        HorovodInternalError: The operation failed, see the subclass and message, or its world
            was shut down.
    """
    try:
        outputs = results(handle)
    except HorovodInternalError:
        forget(handle)
        raise
    forget(handle)
    return outputs


def results(handle: int) -> list[Any]:
    """Do the same as `synchronize`, but leave the handle usable until `forget`."""
    pending = find(handle)
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
    _drop(handle, pending)
    for part in pending.parts or ():
        forget(part.handle)


def end(engine: _core.Engine) -> None:
    """Release objects that a closed engine has not delivered, since nothing else would."""
    _failures.clear()
    for handle, pending in list(_pending.items()):
        if pending.engine is engine:
            _failures[handle] = _failure(handle, pending)
            _drop(handle, pending)


def _failure(handle: int, pending: Pending) -> tuple[type[Exception], str]:
    try:
        pending.handle.check()
    except Exception as error:  # without its traceback, which would keep the objects alive
        return type(error), str(error)
    return HorovodInternalError, _shut_down(handle)


def _drop(handle: int, pending: Pending) -> None:
    if pending.key is not None and _by_key.get(pending.key) == handle:
        del _by_key[pending.key]
    _pending.pop(handle, None)


def find(handle: int) -> Pending:
    """Return the record of an operation in flight; errors as `synchronize`."""
    pending = _pending.get(handle)
    if pending is not None:
        return pending
    if handle in _failures:
        kind, text = _failures.pop(handle)
        raise kind(text)
    raise ValueError(f"handle {handle} was synchronized already or never existed")


def _shut_down(handle: int) -> str:
    return (
        f"wait for operations before shutdown(): handle {handle} is of a world that was shut down"
    )
