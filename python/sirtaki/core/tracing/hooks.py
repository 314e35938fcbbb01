"""Functions of the user's that hear of every operation, by way of cpp/ffi/sirtaki.h."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

from sirtaki import _core
from sirtaki.core.operations.dtypes import NAMES
from sirtaki.core.world.state import current_world

_KINDS = {number: name for name, number in _core.KINDS.items()}


class OperationEvent(NamedTuple):
    """What a hook is told of an operation.

    kind: such as ``allreduce``. name: the tensor's, "" where it was given none. bytes: of this
    rank's tensors. process_set: its number; 0: all ranks. error: what it failed with, else "".
    """

    kind: str
    name: str
    dtype: str
    bytes: int
    process_set: int
    error: str


Hook = Callable[[OperationEvent], object]


class _Event(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "dtype", "set", "status")),
        ("bytes", ctypes.c_int64),
        ("name", ctypes.c_char_p),
        ("message", ctypes.c_char_p),
    )


_Called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Event))


class _Hooks(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("before", _Called),
        ("after", _Called),
        ("abort", _Called),
        ("user", ctypes.c_void_p),
    )


_Add = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(_Hooks))
_Remove = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class _Table(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("version", ctypes.c_uint32),
        ("current", ctypes.CFUNCTYPE(ctypes.c_void_p)),
        ("retain_world", ctypes.c_void_p),
        ("release_world", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("others", ctypes.c_void_p * 17),  # from `rank` to `received`
        ("add_hooks", _Add),
        ("remove_hooks", _Remove),
    )


class Hooks:
    """Hooks that have been added; as a context they are removed at its end."""

    def __init__(self, hooks: _Hooks) -> None:
        # The engine calls what belongs to it, maybe after it was removed.
        self._hooks = hooks
        self._number = _with_world(lambda table, world: table.add_hooks(world, self._hooks))
        _kept.append(self)

    def remove(self) -> None:
        """Have no hook called for operations that end from now on; a second call does nothing."""
        number, self._number = self._number, 0
        if number:
            _with_world(lambda table, world: table.remove_hooks(world, number))

    def __enter__(self) -> Hooks:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


_kept: list[Hooks] = []


def add_hooks(
    before: Hook | None = None, after: Hook | None = None, abort: Hook | None = None
) -> Hooks:
    """Have functions called for every collective operation of this rank, until ``shutdown()``.

    What they raise is printed; the operation goes on. They must not wait for other operations.

    Args:
        before: Called when an operation begins, in the thread that asks for it.
        after: Called when one is done, by any thread, maybe after who waited for it has gone on.
        abort: Called in place of `after` when one has failed.

    Returns:
        What removes them.

    Raises:
        ValueError: Before ``init()``.
    """
    current_world()
    made = _Hooks(ctypes.sizeof(_Hooks), *(_called(each) for each in (before, after, abort)))
    return Hooks(made)


def _called(hook: Hook | None) -> Any:
    if hook is None:
        return _Called()

    def call(_: object, event: Any) -> None:
        hook(_told(event.contents))

    return _Called(call)


def _told(event: Any) -> OperationEvent:
    kind = _KINDS[event.kind]
    name = event.name.decode(errors="replace").removeprefix(f"{kind}.")
    error = event.message.decode(errors="replace")
    return OperationEvent(kind, name, NAMES[event.dtype], event.bytes, event.set, error)


def _with_world(do: Callable[[Any, int], Any]) -> Any:
    """Call with the table and the world of `init()`; without one do nothing."""
    table = ctypes.cast(_core.ffi_address(), ctypes.POINTER(_Table)).contents
    world = table.current()
    if not world:
        return 0
    try:
        return do(table, world)
    finally:
        table.release_world(world)
