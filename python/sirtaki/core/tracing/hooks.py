"""User functions that are called for every operation, through cpp/ffi/sirtaki.h."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

from sirtaki import _core
from sirtaki.core.operations import codes
from sirtaki.core.world.state import current_world


class OperationEvent(NamedTuple):
    """An operation, as passed to a hook.

    kind: such as ``allreduce``. name: the tensor's, "" without one. bytes: of this rank's tensors.
    process_set: its number; 0: all ranks. error: the message of its failure, else "".
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
    """Hooks that have been added; as a context, removes them at its end."""

    def __init__(self, hooks: _Hooks) -> None:
        # The engine may still call them after their removal.
        self._hooks = hooks
        self._number = _with_world(lambda table, world: table.add_hooks(world, self._hooks))
        _kept.append(self)

    def remove(self) -> None:
        """Stop calling hooks for operations that end from now on; a second call does nothing."""
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
    """Add functions that are called for every collective of this rank, until ``shutdown()``.

    Their exceptions are printed; the operation goes on. They must not wait for operations.

    Args:
        before: Called when an operation begins, in the thread that submits it.
        after: Called when one is done, from any thread, possibly after the waiting thread resumes.
        abort: Called in place of `after` when one has failed.

    Returns:
        The added hooks, which can be removed.

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
    kind = codes.KIND_NAMES[event.kind]
    name = event.name.decode(errors="replace").removeprefix(f"{kind}.")
    error = event.message.decode(errors="replace")
    return OperationEvent(kind, name, codes.DTYPE_NAMES[event.dtype], event.bytes, event.set, error)


def _with_world(do: Callable[[Any, int], Any]) -> Any:
    """Call with the table and the world of `init()`; do nothing without a world."""
    table = ctypes.cast(_core.ffi_address(), ctypes.POINTER(_Table)).contents
    world = table.current()
    if not world:
        return 0
    try:
        return do(table, world)
    finally:
        table.release_world(world)
