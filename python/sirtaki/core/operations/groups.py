"""Handles whose result differs from the one tensor that the core returns for them.

The core knows a handle as an integer and returns a list of tensors for it. The caller may expect
a list, a pair, or its own tensor; and a group with several dtypes is several operations. The
steps that remain are kept here until `synchronize`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.operations import handles
from sirtaki.core.operations.collectives import Collectives

T = TypeVar("T")
R = TypeVar("R")


def parts(keys: Sequence[Hashable]) -> list[tuple[list[int], str]]:
    """Return the items of each key, and a suffix for names: "" if all items have one key.

    Args:
        keys: The items' keys, such as their data types.
    """
    places: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return [(where, f".{key}" if len(places) > 1 else "") for key, where in places.items()]


def part_name(name: str | None, suffix: str) -> str | None:
    """Return the name of one part of a group; a name that is no string is refused later."""
    return name + suffix if suffix and isinstance(name, str) else name


def by_key(
    items: Sequence[T],
    key: Callable[[T], Hashable],
    act: Callable[[list[T], str], Sequence[R]],
) -> list[R]:
    """Apply a function to the items of each key; return its results in the items' order.

    Args:
        items: Items with any keys, in any order.
        key: Returns the key of an item, such as its data type.
        act: Called with the items of a key, in the order of the first of each, and with a suffix
            for names, "" if all items have one key; returns one result for each.
    """
    results: dict[int, R] = {}
    for where, suffix in parts([key(item) for item in items]):
        done = act([items[place] for place in where], suffix)
        results.update(zip(where, done, strict=True))
    return [results[place] for place in range(len(items))]


class _Part(NamedTuple):
    """One of several operations that serve a group, and the indices of its tensors."""

    handle: int
    members: list[int]


class Groups(Generic[T]):
    """Groups of tensors, and final steps of operations.

    Args:
        collectives: Starts the operations.
        dtype_of: Returns the dtype of a tensor; its string ends with its name.
    """

    def __init__(self, collectives: Collectives[T], dtype_of: Callable[[T], Hashable]) -> None:
        self._collectives = collectives
        self._dtype_of = dtype_of

    def start(
        self,
        tensors: Sequence[T],
        name: str | None,
        start: Callable[[Sequence[T], str | None], int],
    ) -> int:
        """Start one operation for each dtype; return a handle for `wait`.

        start: Starts an operation on tensors of one dtype under a name, and returns its handle.
        """
        if len({self._dtype_of(tensor) for tensor in tensors}) <= 1:
            return start(tensors, name)
        split = parts([str(self._dtype_of(tensor)).rpartition(".")[2] for tensor in tensors])
        started = []
        for members, suffix in split:
            part = [tensors[i] for i in members]
            started.append(_Part(start(part, part_name(name, suffix)), members))
        handles.find(started[0].handle).parts = started
        return started[0].handle

    def wait(self, handle: int) -> list[T]:
        """Wait for an operation of `start` and return the core's tensors for it."""
        outputs: list[T] = self._conclude(handle, lambda outputs: outputs)
        return outputs

    def _conclude(self, handle: int, finish: Callable[[list[T]], Any]) -> Any:
        """Use up the handle once all is done, so that an interrupted wait can be repeated."""
        started = handles.find(handle).parts
        try:
            result = finish(handles.results(handle) if started is None else _results(started))
        except HorovodInternalError:
            handles.forget(handle)
            raise
        handles.forget(handle)
        return result

    def finish_with(self, handle: int, finish: Callable[[list[T]], Any]) -> int:
        """Make `synchronize(handle)` return `finish(outputs)` rather than the only output."""
        handles.find(handle).last = finish
        return handle

    def poll(self, handle: int) -> bool:
        """Return whether an operation is done. ValueError for an unknown handle."""
        started = handles.find(handle).parts
        if started is not None:
            return all(self._collectives.poll(part.handle) for part in started)
        return self._collectives.poll(handle)

    def synchronize(self, handle: int) -> Any:
        """Wait for an operation and return its result; errors as `handles.synchronize`."""
        return self._conclude(handle, handles.find(handle).last or _only)


def _only(outputs: list[T]) -> T:
    """Return the only output of an operation with one output."""
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
