"""What our works and groups need where PyTorch's C++ code and its compiler handle them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch._C import _dynamo

# Its stubs do not know that it can be derived from.
_ProcessGroup: Any = dist.ProcessGroup


class PythonWork(dist.Work):
    """A work that is written in Python.

    C++ code that is given one keeps its C++ half alone: when nothing in Python has the work any
    more, the half knows none of our methods, and a wait for it never ends. What is given to C++ is
    therefore a work of C++ that keeps the whole.
    """

    def boxed(self) -> Any:
        """Return what TorchScript takes for a work."""
        return dist.Work.boxed(_whole(self))


class _Hand(_ProcessGroup):  # type: ignore[misc]
    """A group from which C++ takes a work, as from any group in Python: whole."""

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
    """Let every function of PyTorch that takes a work from Python take ours whole."""
    for owner, name in ((c10d, "_register_work"), (c10d.Reducer, "_set_forward_pass_work_handle")):
        theirs = getattr(owner, name, None)
        if theirs is not None:
            setattr(owner, name, _takes_whole_works(theirs))


def run_untraced(*classes: type) -> None:
    """Let a program that torch.compile runs call the methods of classes as they are.

    PyTorch's C++ code calls them in the midst of it, as when DDP makes its buckets anew. With them
    all that they call is left alone.
    """
    for class_ in classes:
        for code in _codes_of(class_):
            _leave_alone(code)


def _leave_alone(code: types.CodeType) -> None:
    frames: Any = _dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    elif hasattr(frames, "skip_code"):  # as older versions of PyTorch have it
        frames.skip_code(code)


def _codes_of(class_: type) -> Iterator[types.CodeType]:
    """Find the code of all methods that are ours, and of the functions in them."""
    for base in class_.__mro__:
        if not base.__module__.startswith("sirtaki."):
            continue
        for member in vars(base).values():
            function = inspect.unwrap(getattr(member, "fget", None) or member)
            if inspect.isfunction(function):
                yield from _with_inner(function.__code__)


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)
