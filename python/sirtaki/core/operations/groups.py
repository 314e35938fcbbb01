"""Handles whose result is not simply the one tensor that the core returns for them.

The core knows a handle as an integer and returns a list of tensors for it. What a caller expects
may be a list, a pair, or the tensor that was given; and a group with several dtypes is several
operations. What remains to be done then is kept here until `synchronize`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.operations import handles
from sirtaki.core.operations.collectives import Collectives
from sirtaki.core.operations.grouping import part_name, parts
from sirtaki.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True)
class _Part:
    """One operation of several that serve a group, and which of its tensors it has."""

    handle: int
    members: list[int]


class Groups(Generic[T]):
    """Groups of tensors, and last steps of operations.

    Args:
        collectives: What starts the operations.
        dtype_of: The dtype of a tensor; its text ends with its name.
    """

    def __init__(self, collectives: Collectives[T], dtype_of: Callable[[T], Hashable]) -> None:
        self._collectives = collectives
        self._dtype_of = dtype_of
        self._finish: dict[int, Callable[[list[T]], Any]] = {}
        self._parts: dict[int, list[_Part]] = {}

    def start(
        self,
        tensors: Sequence[T],
        name: str | None,
        start: Callable[[Sequence[T], str | None], int],
    ) -> int:
        """Start one operation, or one for each dtype there is; return a handle for `wait`.

        start: Starts an operation on tensors of one dtype under a name, and returns its handle.
        """
        split = parts([str(self._dtype_of(tensor)).rpartition(".")[2] for tensor in tensors])
        if len(split) <= 1:
            return start(tensors, name)
        started = []
        for members, suffix in split:
            part = [tensors[i] for i in members]
            started.append(_Part(start(part, part_name(name, suffix)), members))
        self._parts[started[0].handle] = started
        return started[0].handle

    def wait(self, handle: int) -> list[T]:
        """Wait for an operation of `start` and return the tensors the core has for it."""
        outputs: list[T] = self._conclude(handle, lambda outputs: outputs)
        return outputs

    def _conclude(self, handle: int, finish: Callable[[list[T]], Any]) -> Any:
        """Use up the handle once all is done, so that an interrupted wait can be repeated."""
        started = self._parts.get(handle)
        try:
            result = finish(handles.results(handle) if started is None else _results(started))
        except HorovodInternalError:
            self._forget(handle)
            raise
        self._forget(handle)
        return result

    def _forget(self, handle: int) -> None:
        started = self._parts.pop(handle, None)
        if started is None:
            handles.forget(handle)
        else:
            for part in started:
                handles.forget(part.handle)
        self._finish.pop(handle, None)

    def finish_with(self, handle: int, finish: Callable[[list[T]], Any]) -> int:
        """Have `synchronize(handle)` return `finish(outputs)` rather than the only output."""
        self._finish[handle] = finish
        return handle

    def poll(self, handle: int) -> bool:
        """Tell whether an operation is done. ValueError for an unknown handle."""
        started = self._parts.get(handle)
        if started is not None:
            return all(self._collectives.poll(part.handle) for part in started)
        return self._collectives.poll(handle)

    def synchronize(self, handle: int) -> Any:
        """Wait for an operation and return its result; errors as `handles.synchronize`."""
        return self._conclude(handle, self._finish.get(handle, _only))


def _only(outputs: list[T]) -> T:
    """Return the only output, of operations that have one."""
    return outputs[0]


def _results(started: list[_Part]) -> list[Any]:
    """Wait for all parts; return the outputs in the order of the group's tensors."""
    outputs: dict[int, Any] = {}
    failure: HorovodInternalError | None = None
    for part in started:
        try:
            outputs.update(zip(part.members, handles.results(part.handle), strict=True))
        except HorovodInternalError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return [outputs[i] for i in range(len(outputs))]
