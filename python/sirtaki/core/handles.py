"""Integer handles of operations in flight, shared by all front ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from sirtaki import _core


class _Pending(NamedTuple):
    """An operation in flight; `keep` are tensors that must live until it is done."""

    engine: _core.Engine
    handle: _core.Handle
    keep: object
    finish: Callable[[_core.Handle], list[Any]]


_pending: dict[int, _Pending] = {}
_abandoned: list[object] = []
_numbers = itertools.count()


def start(
    engine: _core.Engine,
    request: tuple[Any, ...],
    keep: object,
    finish: Callable[[_core.Handle], list[Any]],
) -> int:
    """Submit an operation; return a new handle.

    Args:
        engine: The engine of the world.
        request: The arguments of ``Engine.submit``.
        keep: Tensors that must live until the operation is done, whether or not the caller keeps
            the handle.
        finish: Turns the finished operation into its results; may hold further tensors.
    """
    try:
        handle = engine.submit(*request)
    except KeyboardInterrupt:
        _abandoned.append((keep, finish))  # the engine may still read and write them
        raise
    number = next(_numbers)
    _pending[number] = _Pending(engine, handle, keep, finish)
    return number


def poll(handle: int) -> bool:
    """Tell whether the operation is done, successfully or not.

    Raises:
        ValueError: No operation in flight has this handle.
    """
    return _find(handle).handle.done()


def synchronize(handle: int) -> list[Any]:
    """Wait for the operation and return its results; the handle is used up.

    Raises:
        ValueError: No operation in flight has this handle.
        HorovodInternalError: The operation failed; the subclass and message say how.
    """
    pending = _find(handle)
    try:
        pending.engine.wait(pending.handle)
    finally:
        if pending.handle.done():
            _pending.pop(handle, None)
    return pending.finish(pending.handle)


def _find(handle: int) -> _Pending:
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"handle {handle} was synchronized already or never existed")
    return pending
