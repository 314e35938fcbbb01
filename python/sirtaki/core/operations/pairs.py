"""Messages from one rank to another, for tensors of any framework."""

from __future__ import annotations

from math import prod
from typing import Final, Generic, TypeVar

from sirtaki import _core
from sirtaki.core.errors import MismatchError
from sirtaki.core.operations import handles
from sirtaki.core.operations.codes import DTYPE_BYTES
from sirtaki.core.operations.collectives import Tensors
from sirtaki.core.world.participants import number_of, rank_of
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.core.world.state import world_for_operation

T = TypeVar("T")

# Address, bytes, peer rank, tag and process set of a message.
_Place = tuple[int, int, int, int, int]

# In place of the sender's rank.
ANY_SOURCE: Final = -1


class Pairs(Generic[T]):
    """Sends and receives, beside the collectives; ranks are always world ranks.

    All raise TypeError or ValueError for invalid arguments, before anything is sent, and
    HorovodInternalError without a world.
    """

    def __init__(self, tensors: Tensors[T]) -> None:
        self._tensors = tensors

    def send(self, tensor: T, dest: int, tag: int, process_set: ProcessSet) -> None:
        """Return once the tensor may be changed: it has arrived or is buffered for the receiver."""
        source = self._tensors.contiguous(tensor)
        engine, place = self._place(source, "dest", dest, tag, process_set)
        engine.send_and_wait(*place, source)

    def send_async(self, tensor: T, dest: int, tag: int, process_set: ProcessSet) -> int:
        """Start a send; its handle returns None."""
        source = self._tensors.contiguous(tensor)
        engine, place = self._place(source, "dest", dest, tag, process_set)
        return handles.follow(engine, engine.send(*place, source), lambda _: [None])

    def receive(self, output: T, source: int, tag: int, process_set: ProcessSet) -> int:
        """Fill the tensor with the next matching message; return its sender."""
        engine, place = self._place(output, "source", source, tag, process_set)
        return _source_of(*engine.receive_and_wait(*place, output), place)

    def receive_async(self, output: T, source: int, tag: int, process_set: ProcessSet) -> int:
        """Start a receive; its handle returns the sender's rank."""
        engine, place = self._place(output, "source", source, tag, process_set)
        handle = engine.receive(*place, output)
        return handles.follow(
            engine, handle, lambda done: [_source_of(done.source, done.bytes, place)]
        )

    def _place(
        self, tensor: T, name: str, rank: int, tag: int, process_set: ProcessSet
    ) -> tuple[_core.Engine, _Place]:
        """Return the engine, and its description of the message."""
        engine = world_for_operation().engine
        if rank != ANY_SOURCE or name != "source":
            rank = rank_of(name, rank, process_set)
        address, shape, dtype = self._tensors.view(tensor)
        size = DTYPE_BYTES[dtype] * prod(shape)
        return engine, (address, size, rank, tag, number_of(process_set))


def _source_of(source: int, received: int, place: _Place) -> int:
    _address, size, _rank, tag, _set = place
    if received != size:
        raise MismatchError(
            f"the message of rank {source} with tag {tag} has {received} bytes, fewer than the "
            f"{size} of the tensor, whose beginning it fills"
        )
    return source
