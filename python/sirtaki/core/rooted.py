"""The collectives whose result only the root has, or whose input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sirtaki import _core
from sirtaki.core import handles, kinds
from sirtaki.core.collectives import Collectives, full_name, members_of
from sirtaki.core.membership import number_of, rank_of
from sirtaki.core.process_sets import ProcessSet
from sirtaki.core.reduce_ops import Adasum
from sirtaki.core.reduction import check_op
from sirtaki.core.state import world_for_operation

T = TypeVar("T")


class RootedCollectives(Collectives[T]):
    """As `Collectives`; `root_rank` is always a rank of the world."""

    def reduce_async(
        self,
        tensor: T,
        root_rank: int,
        *,
        name: str | None,
        op: int,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Give the root what allreduce would give all; the others get None."""
        world = world_for_operation()
        root = rank_of("root_rank", root_rank, process_set)
        check_op(op)
        if op == Adasum:
            raise ValueError("reduce does not support Adasum")
        source = self._tensors.contiguous(tensor)
        target = self._tensors.empty_like(source)
        pointers, shapes, dtype = self._views([source])
        request = _core.Request(
            kinds.REDUCE,
            name=full_name("reduce", name),
            dtype=dtype,
            reduce=op,
            root=root,
            set=number_of(process_set),
            prescale=prescale_factor,
            postscale=postscale_factor,
            shapes=shapes,
            inputs=pointers,
            outputs=[self._tensors.view(target)[0]],
            waits=waits,
        )
        result = target if world.topology.rank == root else None
        return handles.start(world.engine, request, [source, target], lambda _: [result])

    def gather_async(
        self,
        tensor: T,
        root_rank: int,
        *,
        name: str | None,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Give the root what allgather would give all; the others get None."""
        world = world_for_operation()
        root = rank_of("root_rank", root_rank, process_set)
        source = self._tensors.contiguous(tensor)
        pointers, shapes, dtype = self._views([source])
        request = _core.Request(
            kinds.GATHER,
            name=full_name("gather", name),
            dtype=dtype,
            root=root,
            set=number_of(process_set),
            shapes=shapes,
            inputs=pointers,
            waits=waits,
        )
        receives = world.topology.rank == root
        return handles.start(
            world.engine,
            request,
            [source],
            lambda done: self._outputs(done, [source]) if receives else [None],
        )

    def scatter_async(
        self,
        output: T,
        tensors: Sequence[T] | None,
        root_rank: int,
        *,
        name: str | None,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Give member i the root's tensor i, in `output`; the others' `tensors` are not looked at.

        Raises:
            ValueError: The root has not one tensor like `output` for each member.
        """
        world = world_for_operation()
        root = rank_of("root_rank", root_rank, process_set)
        targets, shapes, dtype = self._views([output])
        sources: list[T] = []
        pointers: list[int] = []
        if world.topology.rank == root:
            members = members_of(world, process_set)
            if tensors is None or len(tensors) != members:
                given = 0 if tensors is None else len(tensors)
                raise ValueError(
                    f"the root scatters one tensor to each of {members} ranks, not {given}"
                )
            sources = [self._tensors.contiguous(tensor) for tensor in tensors]
            pointers, source_shapes, source_dtype = self._views(sources)
            if source_dtype != dtype or any(shape != shapes[0] for shape in source_shapes):
                raise ValueError("scattered tensors must have the shape and dtype of the output")
        request = _core.Request(
            kinds.SCATTER,
            name=full_name("scatter", name),
            dtype=dtype,
            root=root,
            set=number_of(process_set),
            shapes=shapes,
            inputs=pointers,
            outputs=targets,
            waits=waits,
        )
        return handles.start(world.engine, request, [output, sources], lambda _: [output])
