"""The collectives with a result, or an input, on the root alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sirtaki.core.operations.collectives import Collectives, members_of, require_rows
from sirtaki.core.operations.reduce_ops import Adasum
from sirtaki.core.operations.reduction import Combination, check_reduction
from sirtaki.core.world.participants import rank_of
from sirtaki.core.world.process_sets import ProcessSet

T = TypeVar("T")


class RootedCollectives(Collectives[T]):
    """As `Collectives`; `root_rank` is always a rank of the world."""

    def reduce_async(
        self,
        tensor: T,
        root_rank: int,
        name: str | None,
        reduction: Combination,
        waits: bool = False,
    ) -> int:
        """Give the root the result of an allreduce; the others get None."""
        world = self._world()
        op, prescale_factor, postscale_factor, process_set = reduction
        root = rank_of("root_rank", root_rank, process_set)
        if op == Adasum:
            raise ValueError("reduce does not support Adasum")
        source = self._tensors.contiguous(tensor)
        pointers, shapes, dtype = self._views([source])
        check_reduction(op, dtype)
        target = self._tensors.empty_like(source)
        result = target if world.topology.rank == root else None
        return self._start(
            world,
            "reduce",
            name,
            process_set,
            (source,),
            (target,),
            lambda _: [result],
            dtype=dtype,
            reduce=op,
            root=root,
            prescale=prescale_factor,
            postscale=postscale_factor,
            shapes=shapes,
            inputs=pointers,
            outputs=[self._tensors.view(target)[0]],
            waits=waits,
        )

    def gather_async(
        self,
        tensor: T,
        root_rank: int,
        name: str | None,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Give the root the result of an allgather; the others get None."""
        world = self._world()
        root = rank_of("root_rank", root_rank, process_set)
        source = self._tensors.contiguous(tensor)
        pointers, shapes, dtype = self._views([source])
        require_rows("gather", shapes)
        receives = world.topology.rank == root
        return self._start(
            world,
            "gather",
            name,
            process_set,
            (source,),
            (),
            lambda done: self._outputs(done, [source]) if receives else [None],
            dtype=dtype,
            root=root,
            shapes=shapes,
            inputs=pointers,
            waits=waits,
        )

    def scatter_async(
        self,
        output: T,
        tensors: Sequence[T] | None,
        root_rank: int,
        name: str | None,
        process_set: ProcessSet,
        waits: bool = False,
    ) -> int:
        """Give member i the root's tensor i, in `output`; the others' `tensors` are ignored.

        Raises:
            ValueError: The root does not have one tensor like `output` for each member.
        """
        world = self._world()
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
        return self._start(
            world,
            "scatter",
            name,
            process_set,
            (sources,),
            (output,),
            lambda _: [output],
            dtype=dtype,
            root=root,
            shapes=shapes,
            inputs=pointers,
            outputs=targets,
            waits=waits,
        )
