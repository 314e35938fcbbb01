"""The collectives, for tensors of any framework with a small adapter."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from sirtaki import _core
from sirtaki.core.operations import codes, handles
from sirtaki.core.operations.reduction import Combination, check_reduction, check_scattered
from sirtaki.core.world.participants import number_of, rank_of
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.core.world.state import world_for_operation
from sirtaki.core.world.world import World

T = TypeVar("T")

# Scripts may name operations by their steps.
_MOST_KNOWN = 4096


class Tensors(Protocol[T]):
    """The interface that a framework implements."""

    def view(self, tensor: T) -> tuple[int, tuple[int, ...], int]:
        """Return (data pointer, shape, dtype code); TypeError or ValueError if not supported."""

    def contiguous(self, tensor: T) -> T:
        """Return the tensor itself if contiguous, else a contiguous copy."""

    def empty_like(self, tensor: T) -> T:
        """Return a new contiguous tensor of the same shape and dtype."""

    def from_buffer(self, buffer: object, like: T, shape: tuple[int, ...]) -> T:
        """Return a tensor of the dtype of `like` over the buffer, without copying."""

    def splits(self, splits: object) -> list[int]:
        """Return splits of any type as a list; ValueError unless they are 1-D integers."""

    def wrap_splits(self, received: list[int], like: object) -> T:
        """Return received splits as a tensor of the same type as `like`."""


class Done(Protocol):
    """The outcome of a finished operation."""

    @property
    def received_splits(self) -> list[int]:
        """Alltoall: the number of rows from each member."""


class Collectives(Generic[T]):
    """Every operation starts asynchronously and returns a handle for `synchronize`.

    All raise TypeError or ValueError for arguments that are invalid on this rank alone, before
    anything is sent, and HorovodInternalError without a world. A list of tensors is one operation.
    ``waits``: the caller synchronizes next, so its thread makes the progress.
    """

    def __init__(
        self,
        tensors: Tensors[T],
        world: Callable[[], World] = world_for_operation,
        places: _core.Places | None = None,
    ) -> None:
        """Take the framework's tensors and the function that returns the world of an operation.

        `places`: where the core finds tensors by itself, if the framework says so.
        """
        self._tensors = tensors
        self._world = world
        self._places = places

    def allreduce_async(
        self,
        tensors: Sequence[T],
        outputs: Sequence[T] | None,
        name: str | None,
        reduction: Combination,
        waits: bool = False,
        codec: int = codes.NO_CODEC,
    ) -> int:
        """Reduce over all members; `outputs` None makes new tensors.

        `outputs` may be `tensors` itself, if all of them are contiguous.

        codec: the format in which float32 numbers are sent; see `codecs`.
        """
        world = self._world()
        in_place = outputs is tensors
        inputs = tensors if in_place else [self._tensors.contiguous(tensor) for tensor in tensors]
        pointers, shapes, dtype = self._views(inputs)
        if outputs is None:
            outputs = [self._tensors.empty_like(tensor) for tensor in inputs]
        if in_place or all(map(operator.is_, inputs, outputs)):
            targets = pointers
        else:
            targets, target_shapes, target_dtype = self._views(outputs)
            if shapes != target_shapes or dtype != target_dtype:
                raise ValueError("outputs must have the shapes and dtype of the inputs")
        op, prescale_factor, postscale_factor, process_set = reduction
        check_reduction(op, dtype)
        # Bypasses `_start`, which takes a microsecond more.
        request = _core.Request(
            codes.ALLREDUCE,
            name=full_name("allreduce", name),
            dtype=dtype,
            reduce=op,
            set=number_of(process_set),
            prescale=prescale_factor,
            postscale=postscale_factor,
            codec=codec,
            shapes=shapes,
            inputs=pointers,
            outputs=targets,
            waits=waits,
        )
        if in_place and self._places is not None and (key := request.key) is not None:
            if len(world.known) >= _MOST_KNOWN:
                world.known.clear()
            known = _core.Known(request, self._places, tensors)
            world.known[name] = known, reduction, codec, key
        return self._submit(world, request, inputs, outputs, lambda _: list(outputs))

    def allreduce_again(
        self,
        tensors: list[T],
        name: str | None,
        reduction: Combination,
        waits: bool = False,
        codec: int = codes.NO_CODEC,
    ) -> int | None:
        """Do the same as `allreduce_async` in place, if an earlier call fits; else return None.

        It fits if only the memory of the tensors differs.
        """
        world = self._world()
        earlier = world.known.get(name)
        if earlier is None:
            return None
        known, combination, its_codec, key = earlier
        if combination != reduction or its_codec != codec or key[1] != reduction[3].process_set_id:
            return None
        return handles.start_known(world.engine, known, key, tensors, waits)

    def allgather_async(
        self,
        tensors: Sequence[T],
        name: str | None,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Concatenate the members' tensors along the first dimension, which may differ."""
        return self._start_gathering("allgather", tensors, name, process_set, waits=waits)

    def reducescatter_async(
        self,
        tensors: Sequence[T],
        name: str | None,
        reduction: Combination,
        waits: bool = False,
    ) -> int:
        """Reduce, and give each member its block of rows; the first members get one extra row."""
        op, prescale_factor, postscale_factor, process_set = reduction
        check_scattered(op)
        for tensor in tensors:
            check_reduction(op, self._tensors.view(tensor)[2])
        return self._start_gathering(
            "reducescatter",
            tensors,
            name,
            process_set,
            reduce=op,
            prescale=prescale_factor,
            postscale=postscale_factor,
            waits=waits,
        )

    def _start_gathering(
        self,
        verb: str,
        tensors: Sequence[T],
        name: str | None,
        process_set: ProcessSet,
        **details: Any,
    ) -> int:
        """Start an operation whose outputs the engine allocates."""
        world = self._world()
        inputs = [self._tensors.contiguous(tensor) for tensor in tensors]
        pointers, shapes, dtype = self._views(inputs)
        require_rows(verb, shapes)
        details.update(dtype=dtype, shapes=shapes, inputs=pointers)
        return self._start(
            world,
            verb,
            name,
            process_set,
            inputs,
            (),
            lambda done: self._outputs(done, inputs),
            **details,
        )

    def broadcast_async(
        self,
        tensor: T,
        output: T | None,
        root_rank: int,
        name: str | None,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Give every member the root's tensor; `root_rank` is always a rank of the world."""
        world = self._world()
        root = rank_of("root_rank", root_rank, process_set)
        source = self._tensors.contiguous(tensor)
        pointers, shapes, dtype = self._views([source])
        target = self._tensors.empty_like(source) if output is None else output
        return self._start(
            world,
            "broadcast",
            name,
            process_set,
            [source],
            [target],
            lambda _: [target],
            dtype=dtype,
            root=root,
            shapes=shapes,
            inputs=pointers,
            outputs=[self._tensors.view(target)[0]],
            waits=waits,
        )

    def alltoall_async(
        self,
        tensor: T,
        splits: object,
        name: str | None,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Send rows to every member; return the received rows and their number by sender."""
        world = self._world()
        source = self._tensors.contiguous(tensor)
        pointers, shapes, dtype = self._views([source])
        require_rows("alltoall", shapes)
        rows = self._rows_to_members(splits, shapes[0], members_of(world, process_set))

        def finish(done: Done) -> list[T]:
            received = self._tensors.wrap_splits(done.received_splits, splits)
            return [*self._outputs(done, [source]), received]

        return self._start(
            world,
            "alltoall",
            name,
            process_set,
            [source],
            (),
            finish,
            dtype=dtype,
            shapes=shapes,
            splits=rows,
            inputs=pointers,
            waits=waits,
        )

    def _start(
        self,
        world: World,
        verb: str,
        name: str | None,
        process_set: ProcessSet,
        sources: Sequence[Any],
        targets: Sequence[Any],
        finish: Callable[[Any], list[Any]],
        **details: Any,
    ) -> int:
        """Start the operation that `details` describe, into the caller's tensors if given.

        verb: the core's name of the operation, and the prefix of its name among the ranks.
        """
        request = _core.Request(
            _core.KINDS[verb],
            name=full_name(verb, name),
            set=number_of(process_set),
            **details,
        )
        return self._submit(world, request, sources, targets, finish)

    def _submit(
        self,
        world: World,
        request: _core.Request,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        finish: Callable[[Any], list[Any]],
    ) -> int:
        """Submit an operation; `outputs` are the caller's own, if given."""
        return handles.start(world.engine, request, (inputs, outputs), finish)

    def _rows_to_members(self, splits: object, shape: tuple[int, ...], members: int) -> list[int]:
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
        engine = self._world().engine
        request = _core.Request(codes.BARRIER, set=number_of(process_set), waits=True)
        handles.synchronize(handles.start(engine, request, (), lambda _: []))

    def join(self, process_set: ProcessSet, *, on_device: bool = False) -> int:
        """Contribute zeros to the others' allreduces until all join; return the last rank.

        `on_device`: this rank's accelerator also takes part.
        """
        world = self._world()
        engine = world.engine
        world.joins += 1
        number = number_of(process_set)
        request = _core.Request(codes.JOIN, name=f"join.{number}", set=number, waits=True)
        if on_device:
            request.launch_as(0)
        [last] = handles.synchronize(handles.start(engine, request, (), lambda done: [done.value]))
        return int(last)

    @staticmethod
    def poll(handle: int) -> bool:
        """Return whether the operation is done. ValueError for an unknown handle."""
        return handles.poll(handle)

    @staticmethod
    def synchronize(handle: int) -> list[Any]:
        """Wait and return the results; ValueError for an unknown handle."""
        return handles.synchronize(handle)

    def _views(self, tensors: Sequence[T]) -> tuple[list[int], list[tuple[int, ...]], int]:
        if not tensors:
            raise ValueError("the list of tensors is empty")
        if len(tensors) == 1:
            pointer, shape, dtype = self._tensors.view(tensors[0])
            return [pointer], [shape], dtype
        pointers, shapes, dtypes = zip(*map(self._tensors.view, tensors), strict=True)
        if len(set(dtypes)) != 1:
            raise ValueError("the tensors of a group must have one dtype")
        return list(pointers), list(shapes), dtypes[0]

    def _outputs(self, done: Any, inputs: Sequence[T]) -> list[T]:
        return [
            self._tensors.from_buffer(buffer, like, shape)
            for (buffer, shape), like in zip(done.outputs(), inputs, strict=True)
        ]


def full_name(verb: str, name: str | None) -> str:
    """Return the operation's name among the ranks; "" matches by order."""
    if name is None:
        return ""
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    return f"{verb}.{name}"


def require_rows(verb: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise ValueError for tensors without dimensions, which cannot be split among ranks."""
    if () in shapes:
        raise ValueError(f"{verb} needs rows, but got a tensor without dimensions")


def members_of(world: World, process_set: ProcessSet) -> int:
    """Return the number of ranks in the set."""
    return len(process_set.ranks) if process_set.ranks is not None else world.topology.size
