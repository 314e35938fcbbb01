"""The collectives of a set of ranks on their accelerators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from sirtaki.core.operations import codes
from sirtaki.torch.device.arithmetic import Arithmetic, arithmetic_of
from sirtaki.torch.device.operation import Agreed, rows_of


class InnerGroup:
    """Runs operations in one of PyTorch's process groups.

    Args:
        backend: The group's backend.
        averages: Whether it can average floats itself.
    """

    def __init__(self, backend: Any, averages: bool) -> None:
        self._backend = backend
        self._averages = averages
        self._gather_whole = _method(backend, "all_gather_single", "_allgather_base")
        self._scatter_whole = _method(backend, "reduce_scatter_single", "_reduce_scatter_base")
        self._exchange = _method(backend, "all_to_all_single", "alltoall_base")
        self._runs: dict[int, Callable[[Sequence[Agreed]], None]] = {
            codes.ALLREDUCE: self._allreduce,
            codes.ALLGATHER: self._allgather,
            codes.BROADCAST: self._broadcast,
            codes.ALLTOALL: self._alltoall,
            codes.REDUCESCATTER: self._reducescatter,
            codes.BARRIER: lambda batch: None,
        }

    def run(self, batch: Sequence[Agreed]) -> None:
        """Put operations of one kind on the current stream, coalesced if the group supports it."""
        with torch.no_grad():
            self._runs[batch[0].launch.kind](batch)

    def abort(self) -> None:
        """End running operations, from any thread."""
        _method(self._backend, "abort", "_abort")()

    def close(self) -> None:
        """Close the group in order; no operation is running."""
        _method(self._backend, "shutdown", "_shutdown")()

    @contextmanager
    def _together(self) -> Iterator[Callable[[dist.Work], None]]:
        """Coalesce the operations started within, and make the stream wait for them."""
        works: list[dist.Work] = []
        if not getattr(self._backend, "supports_coalescing", False):
            yield works.append
        else:
            self._backend._start_coalescing()
            yield lambda work: None
            works.append(self._backend._end_coalescing())
        for work in works:
            work.wait()

    def _arithmetic(self, batch: Sequence[Agreed]) -> Arithmetic:
        launch = batch[0].launch
        return arithmetic_of(
            launch.reduce,
            launch.prescale,
            launch.postscale,
            batch[0].operation.inputs[0].dtype,
            batch[0].size,
            self._averages,
        )

    def _allreduce(self, batch: Sequence[Agreed]) -> None:
        arithmetic = self._arithmetic(batch)
        pairs = [
            (source, target)
            for agreed in batch
            for source, target in zip(
                agreed.operation.inputs, agreed.operation.outputs, strict=True
            )
            if source.numel()
        ]
        carried = [arithmetic.carried(source, target) for source, target in pairs]
        if len(carried) == 1:
            options = _options(c10d.AllreduceOptions, reduceOp=arithmetic.operator)
            self._backend.allreduce(carried, options).wait()
        elif carried:
            options = _options(c10d.AllreduceCoalescedOptions, reduceOp=arithmetic.operator)
            self._backend.allreduce_coalesced(carried, options).wait()
        for reduced, (_, target) in zip(carried, pairs, strict=True):
            arithmetic.deliver(reduced, target)

    def _allgather(self, batch: Sequence[Agreed]) -> None:
        with self._together() as add:
            for agreed in batch:
                operation = agreed.operation
                pairs = zip(operation.inputs, operation.outputs, strict=True)
                for i, (source, target) in enumerate(pairs):
                    self._gather(source, target, agreed.rows(i), agreed.rank, add)

    def _gather(
        self,
        source: torch.Tensor,
        target: torch.Tensor,
        rows: list[int],
        rank: int,
        add: Callable[[dist.Work], None],
    ) -> None:
        if not target.numel():
            return
        if len(set(rows)) == 1:
            add(self._gather_whole(_raw(target), _raw(source)))
            return
        # Members contribute different numbers of rows: each broadcasts its own in turn.
        parts = target.split(rows)
        parts[rank].copy_(source)
        for member, part in enumerate(parts):
            if part.numel():
                add(self._broadcast_raw(part, member))

    def _broadcast(self, batch: Sequence[Agreed]) -> None:
        with self._together() as add:
            for agreed in batch:
                operation = agreed.operation
                for source, target in zip(operation.inputs, operation.outputs, strict=True):
                    if agreed.rank == agreed.root and target is not source:
                        target.copy_(source)
                    if target.numel():
                        add(self._broadcast_raw(target, agreed.root))

    def _broadcast_raw(self, tensor: torch.Tensor, root: int) -> dist.Work:
        options = _options(c10d.BroadcastOptions, rootRank=root)
        work: dist.Work = self._backend.broadcast([_raw(tensor)], options)
        return work

    def _alltoall(self, batch: Sequence[Agreed]) -> None:
        for agreed in batch:
            (source,), (target,) = agreed.operation.inputs, agreed.operation.outputs
            row = source.element_size() * math.prod(source.shape[1:])
            sent = [rows * row for rows in agreed.sent_rows()]
            received = [rows * row for rows in agreed.rows(0)]
            raw = _raw(source)[: sum(sent)]
            self._exchange(_raw(target), raw, received, sent).wait()

    def _reducescatter(self, batch: Sequence[Agreed]) -> None:
        arithmetic = self._arithmetic(batch)
        delivered = []
        with self._together() as add:
            for agreed in batch:
                operation = agreed.operation
                for source, target in zip(operation.inputs, operation.outputs, strict=True):
                    if source.numel():
                        reduced = self._scatter(source, agreed, arithmetic, add)
                        delivered.append((reduced, target))
        for reduced, target in delivered:
            arithmetic.deliver(reduced, target)

    def _scatter(
        self,
        source: torch.Tensor,
        agreed: Agreed,
        arithmetic: Arithmetic,
        add: Callable[[dist.Work], None],
    ) -> torch.Tensor:
        """Return this rank's part of the sum of the ranks' tensors."""
        carried = arithmetic.carried(source, torch.empty_like(source))
        parts = carried.split(rows_of(source.shape[0], agreed.size))
        if source.shape[0] % agreed.size == 0:
            options = _options(c10d.ReduceScatterOptions, reduceOp=arithmetic.operator)
            own = torch.empty_like(parts[0])
            add(self._scatter_whole(own, carried, options))
            return own
        # Members receive different numbers of rows: each receives its own in turn.
        for member, part in enumerate(parts):
            if part.numel():
                root = _options(c10d.ReduceOptions, reduceOp=arithmetic.operator, rootRank=member)
                add(self._backend.reduce([part], root))
        result: torch.Tensor = parts[agreed.rank]
        return result


def _options(kind: Any, **fields: Any) -> Any:
    """Return the options of an operation."""
    options = kind()
    for name, value in fields.items():
        setattr(options, name, value)
    return options


def _method(backend: Any, *names: str) -> Callable[..., Any]:
    """Return the method under the first of these names that this PyTorch version has."""
    for name in names:
        if hasattr(backend, name):
            found: Callable[..., Any] = getattr(backend, name)
            return found
    return lambda: None  # older versions of Gloo have none


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's bytes, since data that is only moved may have unsupported types."""
    return tensor.reshape(-1).view(torch.uint8)
