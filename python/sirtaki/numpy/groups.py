"""Operations on several NumPy arrays at once.

A group is reduced or moved only after all ranks have passed all of its arrays. The arrays may
differ in shape and dtype. The asynchronous forms return one handle, whose result is a list;
arguments and errors are those of the forms for one array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sirtaki.core.operations.collectives import Collectives
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.operations.reduction import Combination, check_reduction
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.numpy.arrays import TENSORS, Array, check_array, dtype_of
from sirtaki.numpy.ops import GROUPS, check_in_place

_ops: Collectives[Array] = Collectives(TENSORS)


def grouped_allreduce_async(
    arrays: Sequence[Array],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_allreduce`; return its handle."""
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _start_reducing(arrays, name, reduction, in_place=False)


def grouped_allreduce(
    arrays: Sequence[Array],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Return the reductions of several arrays; otherwise like `allreduce`."""
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return GROUPS.wait(_start_reducing(arrays, name, reduction, in_place=False, waits=True))


def grouped_allreduce_async_(
    arrays: Sequence[Array],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_allreduce_`; return its handle."""
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _start_reducing(arrays, name, reduction, in_place=True)


def grouped_allreduce_(
    arrays: Sequence[Array],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Reduce several arrays in place and return them; otherwise like `allreduce_`."""
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return GROUPS.wait(_start_reducing(arrays, name, reduction, in_place=True, waits=True))


def _start_reducing(
    arrays: Sequence[Array],
    name: str | None,
    reduction: Combination,
    *,
    in_place: bool,
    waits: bool = False,
) -> int:
    for array in arrays:
        check_reduction(reduction[0], dtype_of(check_array(array)))
        if in_place:
            check_in_place(array)

    def start(part: Sequence[Array], part_name: str | None) -> int:
        outputs = part if in_place else None
        return _ops.allreduce_async(part, outputs, part_name, reduction, waits)

    return _start(arrays, name, start, waits)


def grouped_allgather_async(
    arrays: Sequence[Array],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_allgather`; return its handle."""
    return _start_gathering(arrays, name, process_set)


def grouped_allgather(
    arrays: Sequence[Array],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Return the result of `allgather` for each of several arrays."""
    return GROUPS.wait(_start_gathering(arrays, name, process_set, waits=True))


def _start_gathering(
    arrays: Sequence[Array], name: str | None, process_set: ProcessSet, waits: bool = False
) -> int:
    def start(part: Sequence[Array], part_name: str | None) -> int:
        return _ops.allgather_async(part, part_name, process_set, waits)

    return _start(arrays, name, start, waits)


def grouped_reducescatter_async(
    arrays: Sequence[Array],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start `grouped_reducescatter`; return its handle."""
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return _start_scattering(arrays, name, reduction)


def grouped_reducescatter(
    arrays: Sequence[Array],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Return the result of `reducescatter` for each of several arrays."""
    reduction = (op, prescale_factor, postscale_factor, process_set)
    return GROUPS.wait(_start_scattering(arrays, name, reduction, waits=True))


def _start_scattering(
    arrays: Sequence[Array], name: str | None, reduction: Combination, waits: bool = False
) -> int:
    def start(part: Sequence[Array], part_name: str | None) -> int:
        return _ops.reducescatter_async(part, part_name, reduction, waits)

    return _start(arrays, name, start, waits)


def _start(
    arrays: Sequence[Array],
    name: str | None,
    start: Callable[[Sequence[Array], str | None], int],
    waits: bool,
) -> int:
    handle = GROUPS.start(arrays, name, start)
    return handle if waits else GROUPS.finish_with(handle, list)
