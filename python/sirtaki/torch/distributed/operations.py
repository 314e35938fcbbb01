"""The operations of a group, with the signatures that `torch.distributed` calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from sirtaki import _core
from sirtaki.core.operations import codes, reduce_ops
from sirtaki.torch.distributed import buffers
from sirtaki.torch.distributed.buffers import Buffer, GroupReduction, reduction_of
from sirtaki.torch.distributed.interface.forms import (
    INPUT,
    INPUT_LISTS,
    INPUTS,
    OUTPUT,
    OUTPUT_LISTS,
    OUTPUTS,
    SPLITS,
    TENSORS,
    takes,
)
from sirtaki.torch.distributed.works import Completions, Results, Work, Works, seconds_of

# The engine fails overdue operations itself, with an error that names the missing ranks.
_ENGINE_SECONDS = 5.0

Tensors = Sequence[torch.Tensor]
Finish = Callable[[], None]


class Operations:
    """The operations of a group; a derived class implements the meeting.

    All of them return a work and write to the given tensors. An error that this rank can detect
    alone raises ValueError or TypeError before anything is sent; a disagreement on shapes or types
    raises MismatchError on all ranks, from the work.
    """

    _engine: _core.Engine
    _completions: Completions
    _timeout: float | None
    _group_rank: int
    _group_size: int
    _sequence = 0

    # ---- Reductions ----

    @takes(c10d.AllreduceOptions, [TENSORS], "op")
    def allreduce(self, tensors: Tensors, opts: Any) -> dist.Work:
        """Reduce over all ranks, in place."""
        listed = list(tensors)
        if len(listed) == 1 and listed[0].layout is not torch.strided:
            return self._allreduce_sparse(listed[0], reduction_of(opts.reduceOp))
        return self._reduce(codes.ALLREDUCE, listed, opts)

    @takes(c10d.AllreduceCoalescedOptions, [TENSORS])
    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> dist.Work:
        """Reduce several tensors over all ranks, in place."""
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in tensors:
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
        works = [self._reduce(codes.ALLREDUCE, part, opts) for part in by_dtype.values()]
        return works[0] if len(works) == 1 else Works(works)

    @takes(c10d.ReduceOptions, [TENSORS], "root", "op")
    def reduce(self, tensors: Tensors, opts: Any) -> dist.Work:
        """Reduce over all ranks; only the root's tensor receives the result."""
        return self._reduce(codes.REDUCE, [tensors[opts.rootTensor]], opts, opts.rootRank)

    @takes(c10d.AllreduceOptions, [TENSORS])
    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> dist.Work:
        """Sum a sparse tensor over all ranks, in place."""
        return self._allreduce_sparse(tensors[0], reduction_of(opts.reduceOp))

    def _allreduce_sparse(self, tensor: torch.Tensor, reduction: GroupReduction) -> dist.Work:
        """Sum a sparse tensor over all ranks, in place; the number of elements may differ.

        Raises:
            ValueError: It is not in coordinate format, or the operator is not the sum.
        """
        if tensor.layout is not torch.sparse_coo:
            raise ValueError(f"all_reduce takes dense tensors and sparse COO, not {tensor.layout}")
        if reduction != GroupReduction(reduce_ops.Sum):
            raise ValueError("all_reduce of sparse tensors can only sum")
        own = tensor.coalesce()
        gathered: dict[str, torch.Tensor] = {}

        def gather(name: str, part: torch.Tensor) -> dist.Work:
            """Collect the rows of all ranks."""
            source = buffers.source(part)
            opts = c10d.AllgatherOptions()
            shape = tuple(source.memory.shape)
            request = self._request(
                codes.ALLGATHER, opts, dtype=source.dtype, shapes=[shape], inputs=[source.address]
            )

            def take(done: _core.Handle) -> None:
                ((data, shape),) = done.outputs()
                rows = torch.empty(shape, dtype=part.dtype)
                if rows.numel():
                    rows = torch.frombuffer(data, dtype=part.dtype).view(shape).clone()
                gathered[name] = rows
                if len(gathered) == 2:
                    _add_up(tensor, **gathered)

            return self._start(request, opts, [tensor], source, [], checked=take)

        return Works([gather("indices", own.indices().t()), gather("values", own.values())])

    def _reduce(self, kind: int, tensors: Tensors, opts: Any, root: int = 0) -> Work:
        reduction = reduction_of(opts.reduceOp)
        parts = [buffers.in_place(buffers.reducible(tensor, reduction.op)) for tensor in tensors]
        request = self._request(
            kind,
            opts,
            dtype=parts[0].dtype,
            reduce=reduction.op,
            root=root,
            prescale=reduction.factor,
            shapes=[tuple(part.memory.shape) for part in parts],
            inputs=[part.address for part in parts],
            outputs=[part.address for part in parts],
        )
        gives_back = kind == codes.ALLREDUCE or root == self._group_rank
        return self._start(request, opts, tensors, parts, parts if gives_back else [])

    @takes(c10d.ReduceScatterOptions, [OUTPUTS, INPUT_LISTS], "op")
    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        """Reduce, and give every rank its own one of the tensors."""
        self._check_count("reduce_scatter", inputs[0])
        op = reduction_of(opts.reduceOp).op
        parts = [buffers.reducible(tensor, op) for tensor in inputs[0]]
        return self._scatter_reduced(outputs[0], buffers.joined(parts), opts)

    @takes(c10d.ReduceScatterOptions, [OUTPUT, INPUT])
    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Work:
        """Reduce, and give every rank one of as many equal parts as there are ranks."""
        if tensor.numel() != output.numel() * self._group_size:
            raise ValueError(
                f"reduce_scatter: the input has {tensor.numel()} elements, but {self._group_size} "
                f"ranks want {output.numel()} each"
            )
        source = buffers.source(buffers.reducible(tensor, reduction_of(opts.reduceOp).op))
        return self._scatter_reduced(output, source, opts)

    def _scatter_reduced(self, output: torch.Tensor, whole: Buffer, opts: Any) -> Work:
        reduction = reduction_of(opts.reduceOp)
        result = buffers.target(output)
        request = self._request(
            codes.REDUCESCATTER,
            opts,
            dtype=whole.dtype,
            reduce=reduction.op,
            prescale=reduction.factor,
            shapes=[(self._group_size, whole.elements // self._group_size)],
            inputs=[whole.address],
            results=[result.place],
        )
        return self._start(request, opts, [output], (whole, result), [result])

    @takes(c10d.ReduceScatterOptions, [OUTPUTS, INPUTS])
    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any
    ) -> dist.Work:
        """Do `reduce_scatter_single` for several tensors."""
        pairs = zip(outputs, inputs, strict=True)
        return Works([self.reduce_scatter_single(*pair, opts) for pair in pairs])

    # ---- Data movement ----

    @takes(c10d.BroadcastOptions, [TENSORS], "root")
    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Give every rank the root's tensor."""
        tensor = tensors[opts.rootTensor]
        is_root = opts.rootRank == self._group_rank
        part = buffers.source(tensor) if is_root else buffers.target(tensor)
        request = self._request(
            codes.BROADCAST,
            opts,
            dtype=part.dtype,
            root=opts.rootRank,
            shapes=[tuple(part.memory.shape)],
            inputs=[part.address],
            outputs=[part.address],
        )
        return self._start(request, opts, tensors, part, [] if is_root else [part])

    @takes(c10d.AllgatherOptions, [OUTPUT_LISTS, INPUTS])
    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Give every rank the tensors of all ranks."""
        self._check_count("all_gather", outputs[0])
        room, hand_out = buffers.room_for(outputs[0])
        return self._gather(inputs[0], room, opts, list(outputs[0]), hand_out)

    @takes(c10d.AllgatherOptions, [OUTPUT, INPUT])
    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Work:
        """Give every rank the tensors of all ranks, concatenated in one tensor."""
        if output.numel() != tensor.numel() * self._group_size:
            raise ValueError(
                f"all_gather: the output has {output.numel()} elements, but {self._group_size} "
                f"ranks give {tensor.numel()} each"
            )
        result = buffers.target(output)
        return self._gather(tensor, result, opts, [output], result.give_back)

    def _gather(
        self, tensor: torch.Tensor, room: Buffer, opts: Any, results: Results, finish: Finish
    ) -> Work:
        own = buffers.source(tensor)
        request = self._request(
            codes.ALLGATHER,
            opts,
            dtype=own.dtype,
            shapes=[(1, own.elements)],
            inputs=[own.address],
            results=[room.place],
        )
        return self._start(request, opts, results, (own, room), [], finish)

    @takes(c10d.AllgatherOptions, [OUTPUT_LISTS, INPUTS])
    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any
    ) -> dist.Work:
        """Do `allgather` for several tensors; `outputs` has a list of them for every rank."""
        by_tensor = zip(*outputs, strict=True)
        pairs = zip(by_tensor, inputs, strict=True)
        return Works([self.allgather([out], [tensor], opts) for out, tensor in pairs])

    @takes(c10d.AllgatherOptions, [OUTPUTS, INPUTS])
    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any
    ) -> dist.Work:
        """Do `all_gather_single` for several tensors."""
        pairs = zip(outputs, inputs, strict=True)
        return Works([self.all_gather_single(*pair, opts) for pair in pairs])

    @takes(c10d.GatherOptions, [OUTPUT_LISTS, INPUTS], "root")
    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Give the root the tensors of all ranks."""
        own = buffers.source(inputs[0])
        is_root = opts.rootRank == self._group_rank
        results: list[torch.Tensor] = []
        room, hand_out = own, _nothing
        if is_root:
            results = list(outputs[0])
            self._check_count("gather", results)
            room, hand_out = buffers.room_for(results)
        request = self._request(
            codes.GATHER,
            opts,
            dtype=own.dtype,
            root=opts.rootRank,
            shapes=[(1, own.elements)],
            inputs=[own.address],
            results=[room.place],
        )
        return self._start(request, opts, results, (own, room), [], hand_out)

    @takes(c10d.GatherOptions, [OUTPUT, INPUT], "root")
    def gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Work:
        """Give the root the tensors of all ranks, concatenated in one tensor."""
        parts: list[torch.Tensor] = []
        if opts.rootRank == self._group_rank:
            if output.numel() != tensor.numel() * self._group_size:
                raise ValueError(
                    f"gather: the output has {output.numel()} elements, but {self._group_size} "
                    f"ranks give {tensor.numel()} each"
                )
            parts = list(output.detach().view(self._group_size, *tensor.shape).unbind())
        return self.gather([parts], [tensor], opts)

    @takes(c10d.ScatterOptions, [OUTPUTS, INPUT_LISTS], "root")
    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        """Give every rank one of the root's tensors."""
        result = buffers.target(outputs[0])
        parts: list[Buffer] = []
        if opts.rootRank == self._group_rank:
            self._check_count("scatter", inputs[0])
            parts = [buffers.source(tensor) for tensor in inputs[0]]
            self._check_scattered(result, parts)
        request = self._request(
            codes.SCATTER,
            opts,
            dtype=result.dtype,
            root=opts.rootRank,
            shapes=[(result.elements,)],
            inputs=[part.address for part in parts],
            outputs=[result.address],
        )
        return self._start(request, opts, outputs, (result, parts), [result])

    @takes(c10d.AllToAllOptions, [OUTPUT, INPUT, *SPLITS])
    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any,
    ) -> Work:
        """Send every rank its rows of the input, and receive rows from every rank."""
        own, result = buffers.source(tensor), buffers.target(output)
        sent = self._elements(own.memory, input_splits, "input")
        wanted = self._elements(result.memory, output_splits, "output")
        return self._exchange(own, result, sent, wanted, opts, [output], result.give_back)

    @takes(c10d.AllToAllOptions, [OUTPUTS, INPUTS])
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """Send a tensor to every rank, and receive one from every rank."""
        self._check_count("all_to_all", inputs)
        self._check_count("all_to_all", outputs)
        room, hand_out = buffers.room_for(outputs)
        sent = [tensor.numel() for tensor in inputs]
        wanted = [tensor.numel() for tensor in outputs]
        own = buffers.joined(inputs)
        return self._exchange(own, room, sent, wanted, opts, list(outputs), hand_out)

    def _exchange(
        self,
        own: Buffer,
        room: Buffer,
        sent: list[int],
        wanted: list[int],
        opts: Any,
        results: Results,
        finish: Finish,
    ) -> Work:
        request = self._request(
            codes.ALLTOALL,
            opts,
            dtype=own.dtype,
            shapes=[(own.elements,)],
            splits=sent,
            inputs=[own.address],
            results=[room.place],
        )

        def check(handle: _core.Handle) -> None:
            if handle.received_splits != wanted:
                raise ValueError(
                    f"all_to_all: rank {self._group_rank} expects {wanted} elements from the "
                    f"ranks of the group, but was sent {handle.received_splits}"
                )
            finish()

        return self._start(request, opts, results, (own, room), [], checked=check)

    # ---- Aliases for PyTorch up to 2.12 ----

    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
    gather_into_tensor = gather_single

    # ---- Barriers ----

    @takes(c10d.BarrierOptions, ())
    def barrier(self, opts: Any) -> Work:
        """Wait until all ranks have arrived."""
        return self._start(self._request(codes.BARRIER, opts), opts, [], None, [])

    # ---- Shared steps ----

    def _request(self, kind: int, opts: Any, **fields: Any) -> tuple[_core.Request, int]:
        """Return the request, and its number for the thread that concludes works; 0: none."""
        self._require_open()
        self._sequence += 1
        if not getattr(opts, "asyncOp", True):
            return _core.Request(kind, **fields), 0
        number = self._completions.number()
        queue = self._completions.queue
        return _core.Request(kind, completions=queue, number=number, **fields), number

    def _start(
        self,
        numbered: tuple[_core.Request, int],
        opts: Any,
        results: Tensors,
        keep: object,
        written: Sequence[Buffer],
        finish: Finish | None = None,
        checked: Callable[[_core.Handle], None] | None = None,
    ) -> Work:
        request, number = numbered
        handle = self._engine.submit(request, keep)

        def conclude(done: _core.Handle) -> None:
            for buffer in written:
                buffer.give_back()
            if finish is not None:
                finish()
            if checked is not None:
                checked(done)

        timeout = seconds_of(getattr(opts, "timeout", None)) or self._timeout
        if timeout is not None:
            timeout += _ENGINE_SECONDS
        what = type(opts).__name__.removesuffix("Options").lower()
        work = Work(
            self._engine,
            handle,
            list(results),
            conclude,
            timeout,
            what,
            announced=number != 0,
        )
        if number:
            self._completions.expect(number, work.conclude)
        return work

    def _require_open(self) -> None:
        """Raise an error if the group has been destroyed."""
        raise NotImplementedError

    def _check_count(self, what: str, tensors: Tensors) -> None:
        if len(tensors) != self._group_size:
            raise ValueError(
                f"{what} needs one tensor for each of the {self._group_size} ranks of the group, "
                f"but got {len(tensors)}"
            )

    @staticmethod
    def _check_scattered(result: Buffer, parts: Sequence[Buffer]) -> None:
        for part in parts:
            if part.elements != result.elements or part.dtype != result.dtype:
                raise ValueError(
                    f"scatter: a tensor of {part.elements} elements of {part.memory.dtype} cannot "
                    f"go where {result.elements} of {result.memory.dtype} are expected"
                )

    def _elements(self, tensor: torch.Tensor, splits: Sequence[int], what: str) -> list[int]:
        """Return the number of elements for or from each rank; without splits, all are equal."""
        size = self._group_size
        rows = tensor.shape[0] if tensor.dim() > 0 else 1
        if not splits:
            if rows % size:
                raise ValueError(
                    f"all_to_all: {rows} rows of the {what} cannot be divided among {size} ranks"
                )
            return [tensor.numel() // size] * size
        if len(splits) != size or sum(splits) != rows:
            raise ValueError(
                f"all_to_all: splits {list(splits)} do not divide {rows} rows of the {what} among "
                f"{size} ranks"
            )
        row = tensor.numel() // rows if rows else 0
        return [split * row for split in splits]


def _nothing() -> None:
    """Finish an operation with nothing left to do."""


def _add_up(tensor: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> None:
    summed = torch.sparse_coo_tensor(indices.t(), values, tensor.shape).coalesce()
    with torch.no_grad():
        tensor.copy_(summed)
