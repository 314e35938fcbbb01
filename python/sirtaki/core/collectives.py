"""The collectives, for tensors of any framework that supplies a small adapter."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from sirtaki import _core
from sirtaki.core import handles, kinds
from sirtaki.core.dtypes import FLOATING
from sirtaki.core.membership import number_of, rank_of
from sirtaki.core.process_sets import ProcessSet
from sirtaki.core.reduce_ops import Adasum
from sirtaki.core.reduction import check_op
from sirtaki.core.state import world_for_operation
from sirtaki.core.world import World

T = TypeVar("T")


class Tensors(Protocol[T]):
    """What a framework supplies."""

    def view(self, tensor: T) -> tuple[int, tuple[int, ...], int]:
        """Return (data pointer, shape, dtype code); TypeError or ValueError if not supported."""

    def contiguous(self, tensor: T) -> T:
        """Return the tensor itself if contiguous, else a contiguous copy."""

    def empty_like(self, tensor: T) -> T:
        """Return a new contiguous tensor of the same shape and dtype."""

    def from_buffer(self, buffer: object, like: T, shape: tuple[int, ...]) -> T:
        """Return a tensor of the dtype of `like` over the buffer, without copying."""

    def splits(self, splits: object) -> list[int]:
        """Return splits of any kind as a list; ValueError if they are not 1-D integers."""

    def wrap_splits(self, received: list[int], like: object) -> T:
        """Return received splits as a tensor of the kind of `like`."""


class Collectives(Generic[T]):
    """Every operation starts asynchronously and returns a handle for `synchronize`.

    All raise TypeError or ValueError for arguments that are wrong on this rank alone, before
    anything is sent, and HorovodInternalError without a world. A list of tensors is one operation.
    ``waits`` says that the caller synchronizes next, so its thread makes the progress.
    """

    def __init__(self, tensors: Tensors[T]) -> None:
        self._tensors = tensors

    def allreduce_async(
        self,
        tensors: Sequence[T],
        outputs: Sequence[T] | None,
        *,
        name: str | None,
        op: int,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Reduce over all members; `outputs` may be the inputs, None makes new tensors."""
        world = world_for_operation()
        inputs = [self._tensors.contiguous(tensor) for tensor in tensors]
        if outputs is None:
            outputs = [self._tensors.empty_like(tensor) for tensor in inputs]
        pointers, shapes, dtype = self._views(inputs)
        if all(map(operator.is_, inputs, outputs)):
            targets = pointers
        else:
            targets, target_shapes, target_dtype = self._views(outputs)
            if shapes != target_shapes or dtype != target_dtype:
                raise ValueError("outputs must have the shapes and dtype of the inputs")
        check_op(op)
        if op == Adasum and dtype not in FLOATING:
            raise ValueError("Adasum needs floating point tensors")
        request = _core.Request(
            kinds.ALLREDUCE,
            name=full_name("allreduce", name),
            dtype=dtype,
            reduce=op,
            set=number_of(process_set),
            prescale=prescale_factor,
            postscale=postscale_factor,
            shapes=shapes,
            inputs=pointers,
            outputs=targets,
            waits=waits,
        )
        return handles.start(world.engine, request, inputs, lambda _: list(outputs))

    def allgather_async(
        self,
        tensors: Sequence[T],
        *,
        name: str | None,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Concatenate the members' tensors along the first dimension, which may differ."""
        return self._gathering(kinds.ALLGATHER, "allgather", tensors, name, process_set, waits)

    def reducescatter_async(
        self,
        tensors: Sequence[T],
        *,
        name: str | None,
        op: int,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Reduce, and give each member its block of rows; the first members get one row more."""
        check_op(op)
        for tensor in tensors:
            if not self._tensors.view(tensor)[1]:
                raise ValueError("reducescatter needs rows to scatter, but got a scalar")
        scale = (prescale_factor, postscale_factor)
        return self._gathering(
            kinds.REDUCESCATTER, "reducescatter", tensors, name, process_set, waits, op, scale
        )

    def _gathering(
        self,
        kind: int,
        verb: str,
        tensors: Sequence[T],
        name: str | None,
        process_set: ProcessSet,
        waits: bool,
        op: int = 0,
        scale: tuple[float, float] = (1.0, 1.0),
    ) -> int:
        """Start an operation whose outputs the engine allocates."""
        world = world_for_operation()
        inputs = [self._tensors.contiguous(tensor) for tensor in tensors]
        pointers, shapes, dtype = self._views(inputs)
        request = _core.Request(
            kind,
            name=full_name(verb, name),
            dtype=dtype,
            reduce=op,
            set=number_of(process_set),
            prescale=scale[0],
            postscale=scale[1],
            shapes=shapes,
            inputs=pointers,
            waits=waits,
        )
        return handles.start(
            world.engine, request, inputs, lambda done: self._outputs(done, inputs)
        )

    def broadcast_async(
        self,
        tensor: T,
        output: T | None,
        root_rank: int,
        *,
        name: str | None,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Give every member the root's tensor; `root_rank` is always a rank of the world."""
        world = world_for_operation()
        root = rank_of("root_rank", root_rank, process_set)
        source = self._tensors.contiguous(tensor)
        target = self._tensors.empty_like(source) if output is None else output
        pointers, shapes, dtype = self._views([source])
        request = _core.Request(
            kinds.BROADCAST,
            name=full_name("broadcast", name),
            dtype=dtype,
            root=root,
            set=number_of(process_set),
            shapes=shapes,
            inputs=pointers,
            outputs=[self._tensors.view(target)[0]],
            waits=waits,
        )
        return handles.start(world.engine, request, [source], lambda _: [target])

    def alltoall_async(
        self,
        tensor: T,
        splits: object,
        *,
        name: str | None,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Send rows to every member; results: the received rows, their number by sender."""
        world = world_for_operation()
        source = self._tensors.contiguous(tensor)
        pointers, shapes, dtype = self._views([source])
        rows = self._rows_to_members(splits, shapes[0], members_of(world, process_set))
        request = _core.Request(
            kinds.ALLTOALL,
            name=full_name("alltoall", name),
            dtype=dtype,
            set=number_of(process_set),
            shapes=shapes,
            splits=rows,
            inputs=pointers,
            waits=waits,
        )

        def finish(done: _core.Handle) -> list[T]:
            received = self._tensors.wrap_splits(done.received_splits, splits)
            return [*self._outputs(done, [source]), received]

        return handles.start(world.engine, request, [source], finish)

    def _rows_to_members(self, splits: object, shape: tuple[int, ...], members: int) -> list[int]:
        if not shape:
            return [0] * members  # the sequencer rejects scalars on all ranks alike
        if splits is None:
            if shape[0] % members:
                raise ValueError(
                    f"alltoall without splits needs a first dimension divisible by {members} "
                    f"ranks, not {shape[0]}"
                )
            return [shape[0] // members] * members
        rows = self._tensors.splits(splits)
        if len(rows) != members:
            raise ValueError(f"splits has {len(rows)} entries for {members} ranks")
        if min(rows) < 0:
            raise ValueError(f"splits={rows} has a negative entry")
        if sum(rows) > shape[0]:
            raise ValueError(f"splits={rows} sum to more than the first dimension, {shape[0]}")
        return rows

    def barrier(self, process_set: ProcessSet) -> None:
        """Return once every member has called it."""
        engine = world_for_operation().engine
        request = _core.Request(kinds.BARRIER, set=number_of(process_set), waits=True)
        handles.synchronize(handles.start(engine, request, (), lambda _: []))

    def join(self, process_set: ProcessSet) -> int:
        """Contribute zeros to the others' allreduces until all join; return the last rank."""
        engine = world_for_operation().engine
        number = number_of(process_set)
        request = _core.Request(kinds.JOIN, name=f"join.{number}", set=number, waits=True)
        [last] = handles.synchronize(handles.start(engine, request, (), lambda done: [done.value]))
        return int(last)

    @staticmethod
    def poll(handle: int) -> bool:
        """Tell whether the operation is done. ValueError for an unknown handle."""
        return handles.poll(handle)

    @staticmethod
    def synchronize(handle: int) -> list[Any]:
        """Wait and return the results; ValueError for an unknown handle."""
        return handles.synchronize(handle)

    def _views(self, tensors: Sequence[T]) -> tuple[list[int], list[tuple[int, ...]], int]:
        if not tensors:
            raise ValueError("an empty list of tensors")
        if len(tensors) == 1:
            pointer, shape, dtype = self._tensors.view(tensors[0])
            return [pointer], [shape], dtype
        pointers, shapes, dtypes = zip(*map(self._tensors.view, tensors), strict=True)
        if len(set(dtypes)) != 1:
            raise ValueError("the tensors of a group must have one dtype")
        return list(pointers), list(shapes), dtypes[0]

    def _outputs(self, done: _core.Handle, inputs: Sequence[T]) -> list[T]:
        return [
            self._tensors.from_buffer(buffer, like, shape)
            for (buffer, shape), like in zip(done.outputs(), inputs, strict=True)
        ]


def full_name(verb: str, name: str | None) -> str:
    """Return the name of an operation among the ranks; "": matched by order."""
    if name is None:
        return ""
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    return f"{verb}.{name}"


def members_of(world: World, process_set: ProcessSet) -> int:
    """Return how many ranks the set has."""
    return len(process_set.ranks) if process_set.ranks is not None else world.topology.size
