"""Support for our works and groups in PyTorch's C++ code and its compiler."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C import _dynamo

# Its stubs do not declare it as a base class.
_ProcessGroup: Any = dist.ProcessGroup


class PythonWork(dist.Work):
    """A work implemented in Python.

    C++ code that receives one keeps only its C++ half: once Python drops the work, that half has
    none of our methods, and a wait for it never ends. So C++ receives a C++ work that keeps the
    whole object alive.
    """

    def boxed(self) -> Any:
        """Return TorchScript's form of a work."""
        return dist.Work.boxed(_whole(self))


class _Hand(_ProcessGroup):  # type: ignore[misc]
    """A group that passes one work to C++ as a whole, as Python groups do."""

    def __init__(self, work: dist.Work) -> None:
        super().__init__(0, 1)
        self._work = work

    def barrier(self, opts: Any = None) -> dist.Work:
        """Return the work."""
        return self._work


def _whole(work: dist.Work) -> dist.Work:
    return _ProcessGroup.barrier(_Hand(work)) if isinstance(work, PythonWork) else work


def _takes_whole_works(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def function(*arguments: Any, **named: Any) -> Any:
        given = {name: _whole(argument) for name, argument in named.items()}
        return theirs(*map(_whole, arguments), **given)

    return function


def serve_works() -> None:
    """Make every PyTorch function that takes a Python work keep ours whole."""
    for owner, name in ((c10d, "_register_work"), (c10d.Reducer, "_set_forward_pass_work_handle")):
        theirs = getattr(owner, name, None)
        if theirs is not None:
            setattr(owner, name, _takes_whole_works(theirs))


def run_untraced(*classes: type) -> None:
    """Make programs run by torch.compile call the methods of classes untraced.

    PyTorch's C++ code calls them during such programs, for example when DDP rebuilds its buckets.
    All their callees are left untraced, too.
    """
    for class_ in classes:
        for code in _codes_of(class_):
            _leave_alone(code)


def _leave_alone(code: types.CodeType) -> None:
    frames: Any = _dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    elif hasattr(frames, "skip_code"):  # the interface of older PyTorch versions
        frames.skip_code(code)


def _codes_of(class_: type) -> Iterator[types.CodeType]:
    """Yield the code of all methods of ours, and of functions nested in them."""
    for base in class_.__mro__:
        if not base.__module__.startswith("sirtaki."):
            continue
        for member in vars(base).values():
            function = getattr(member, "fget", None) or member
            while inspect.isfunction(function):
                yield from _with_inner(function.__code__)
                function = getattr(function, "__wrapped__", None)


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)
