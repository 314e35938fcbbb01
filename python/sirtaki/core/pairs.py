"""Messages from one rank to another, for tensors of any framework."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from sirtaki import _core
from sirtaki.core import handles
from sirtaki.core.collectives import Tensors
from sirtaki.core.dtypes import BYTES
from sirtaki.core.errors import MismatchError
from sirtaki.core.membership import number_of, rank_of
from sirtaki.core.process_sets import ProcessSet
from sirtaki.core.state import world_for_operation

T = TypeVar("T")

# In place of the rank that a message comes from.
ANY_SOURCE: Final = -1


class Pairs(Generic[T]):
    """Sends and receives, beside the collectives; ranks are always those of the world.

    All raise TypeError or ValueError for arguments that are wrong, before anything is sent, and
    HorovodInternalError without a world.
    """

    def __init__(self, tensors: Tensors[T]) -> None:
        self._tensors = tensors

    def send(self, tensor: T, dest: int, tag: int, process_set: ProcessSet) -> None:
        """Return once the tensor may be changed: it has arrived, or been kept for the receiver."""
        self._start_send(tensor, dest, tag, process_set, waits=True)

    def send_async(self, tensor: T, dest: int, tag: int, process_set: ProcessSet) -> int:
        """Start a send; its handle gives None."""
        engine, handle = self._start_send(tensor, dest, tag, process_set, waits=False)
        return handles.follow(engine, handle, lambda _: [None])

    def receive(self, output: T, source: int, tag: int, process_set: ProcessSet) -> int:
        """Fill the tensor with the next message that fits; return whose it is."""
        _engine, handle, size = self._start_receive(output, source, tag, process_set, waits=True)
        return _source_of(handle, size, tag)

    def receive_async(self, output: T, source: int, tag: int, process_set: ProcessSet) -> int:
        """Start a receive; its handle gives the rank whose message it is."""
        engine, handle, size = self._start_receive(output, source, tag, process_set, waits=False)
        return handles.follow(engine, handle, lambda done: [_source_of(done, size, tag)])

    def _start_send(
        self, tensor: T, dest: int, tag: int, process_set: ProcessSet, *, waits: bool
    ) -> tuple[_core.Engine, _core.Handle]:
        engine = world_for_operation().engine
        rank = rank_of("dest", dest, process_set)
        source = self._tensors.contiguous(tensor)
        address, size = self._memory(source)
        number = number_of(process_set)
        return engine, engine.send(address, size, rank, tag, number, waits, source)

    def _start_receive(
        self, output: T, source: int, tag: int, process_set: ProcessSet, *, waits: bool
    ) -> tuple[_core.Engine, _core.Handle, int]:
        engine = world_for_operation().engine
        rank = source if source == ANY_SOURCE else rank_of("source", source, process_set)
        address, size = self._memory(output)
        number = number_of(process_set)
        handle = engine.receive(address, size, rank, tag, number, waits, output)
        return engine, handle, size

    def _memory(self, tensor: T) -> tuple[int, int]:
        address, shape, dtype = self._tensors.view(tensor)
        size = BYTES[dtype]
        for extent in shape:
            size *= extent
        return address, size


def _source_of(handle: _core.Handle, size: int, tag: int) -> int:
    if handle.bytes != size:
        raise MismatchError(
            f"the message of rank {handle.source} with tag {tag} has {handle.bytes} bytes, fewer "
            f"than the {size} of the tensor, whose beginning it fills"
        )
    return handle.source
