"""Integer handles of operations in flight, shared by all front ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sirtaki import _core


@dataclass(slots=True)
class _Pending:
    """An operation in flight; `keep` are tensors that must live until it is done."""

    engine: _core.Engine
    handle: _core.Handle
    keep: object
    finish: Callable[[_core.Handle], list[Any]]
    key: tuple[str, int] | None  # to be refused meanwhile
    news: int  # of `_news`, when it was started
    polled: bool = False


_pending: dict[int, _Pending] = {}
# The latest operation of each name in each process set.
_by_key: dict[tuple[str, int], int] = {}
# How often the script has heard that some operation is done.
_news = 0
_abandoned: list[object] = []
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
        keep: Tensors that must live until the operation is done, whether or not the caller keeps
            the handle.
        finish: Turns the finished operation into its results; may hold further tensors.

    Raises:
        ValueError: An operation in flight has this name.
    """
    key = None if request.waits else request.key
    if key is not None:
        _require_unused(engine, key)
    try:
        handle = engine.submit(request)
    except KeyboardInterrupt:
        _abandoned.append((keep, finish))  # the engine may still read and write them
        raise
    number = follow(engine, handle, keep, finish, key)
    if key is not None:
        _by_key[key] = number
    return number


def follow(
    engine: _core.Engine,
    handle: _core.Handle,
    keep: object,
    finish: Callable[[_core.Handle], list[Any]],
    key: tuple[str, int] | None = None,
) -> int:
    """Return a new handle for what has been started already; arguments as `start`."""
    number = next(_numbers)
    _pending[number] = _Pending(engine, handle, keep, finish, key, _news)
    return number


def abandon(keep: object) -> None:
    """Keep tensors for ever: a wait for what uses them was interrupted."""
    _abandoned.append(keep)


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

    Raises:
        ValueError: No operation in flight has this handle.
        HorovodInternalError: The operation failed; the subclass and message say how.
    """
    global _news
    pending = _find(handle)
    try:
        pending.engine.wait(pending.handle)
    finally:
        if pending.handle.done():
            _news += 1
            _pending.pop(handle, None)
            if pending.key is not None and _by_key.get(pending.key) == handle:
                del _by_key[pending.key]
    return pending.finish(pending.handle)


def _find(handle: int) -> _Pending:
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"handle {handle} was synchronized already or never existed")
    return pending
