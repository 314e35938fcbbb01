"""The operations of a group, in the form in which `torch.distributed` calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from sirtaki import _core
from sirtaki.core.operations import kinds
from sirtaki.torch.distributed import buffers, sparse
from sirtaki.torch.distributed.buffers import Buffer
from sirtaki.torch.distributed.reductions import reduction_of
from sirtaki.torch.distributed.works import Completions, Results, Work, Works, seconds_of

# The engine ends by itself what takes longer than the group allows, and names who is missing.
_ENGINE_SECONDS = 5.0

Tensors = Sequence[torch.Tensor]
Finish = Callable[[], None]


class Operations:
    """Every operation of a group; what derives from it says where the group comes from.

    All of them return a work and write to the tensors that they are given. A mistake that this rank
    can see raises ValueError or TypeError before anything is sent; ranks that disagree on shapes or
    types get MismatchError all alike, from the work.
    """

    _engine: _core.Engine
    _completions: Completions
    _timeout: float | None
    _group_rank: int
    _group_size: int

    # ---- Reductions ----

    def allreduce(self, tensors: Tensors | torch.Tensor, opts: Any = None) -> dist.Work:
        """Reduce over all ranks, in place."""
        listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        opts = c10d.AllreduceOptions() if opts is None else opts
        if len(listed) == 1 and listed[0].layout is not torch.strided:
            return sparse.allreduce(self, listed[0], reduction_of(opts.reduceOp))
        return self._reduce(kinds.ALLREDUCE, listed, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """Reduce several tensors over all ranks, in place."""
        opts = c10d.AllreduceCoalescedOptions() if opts is None else opts
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in tensors:
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
        works = [self._reduce(kinds.ALLREDUCE, part, opts) for part in by_dtype.values()]
        return works[0] if len(works) == 1 else Works(works)

    def reduce(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """Reduce over all ranks; only the root's tensor gets the result."""
        opts = c10d.ReduceOptions() if opts is None else opts
        return self._reduce(kinds.REDUCE, [tensors[opts.rootTensor]], opts, opts.rootRank)

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
        gives_back = kind == kinds.ALLREDUCE or root == self._group_rank
        return self._start(request, opts, tensors, parts, parts if gives_back else [])

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """Reduce, and give every rank one of the tensors: its own."""
        opts = c10d.ReduceScatterOptions() if opts is None else opts
        self._check_count("reduce_scatter", inputs[0])
        op = reduction_of(opts.reduceOp).op
        parts = [buffers.reducible(tensor, op) for tensor in inputs[0]]
        return self._scatter_reduced(outputs[0], buffers.joined(parts), opts)

    def reduce_scatter_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """Reduce, and give every rank one of as many equal parts as there are ranks."""
        opts = c10d.ReduceScatterOptions() if opts is None else opts
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
            kinds.REDUCESCATTER,
            opts,
            dtype=whole.dtype,
            reduce=reduction.op,
            prescale=reduction.factor,
            shapes=[(self._group_size, whole.elements // self._group_size)],
            inputs=[whole.address],
            results=[result.place],
        )
        return self._start(request, opts, [output], (whole, result), [result])

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> dist.Work:
        """Do `reduce_scatter_single` for several tensors."""
        pairs = zip(outputs, inputs, strict=True)
        return Works([self.reduce_scatter_single(*pair, opts) for pair in pairs])

    # ---- What is only moved ----

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Work:
        """Give every rank the root's tensor."""
        opts = c10d.BroadcastOptions() if opts is None else opts
        tensor = tensors[opts.rootTensor]
        is_root = opts.rootRank == self._group_rank
        part = buffers.source(tensor) if is_root else buffers.target(tensor)
        request = self._request(
            kinds.BROADCAST,
            opts,
            dtype=part.dtype,
            root=opts.rootRank,
            shapes=[tuple(part.memory.shape)],
            inputs=[part.address],
            outputs=[part.address],
        )
        return self._start(request, opts, tensors, part, [] if is_root else [part])

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Give every rank the tensors of all ranks."""
        opts = c10d.AllgatherOptions() if opts is None else opts
        self._check_count("all_gather", outputs[0])
        room, hand_out = buffers.room_for(outputs[0])
        return self._gather(inputs[0], room, opts, list(outputs[0]), hand_out)

    def all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """Give every rank the tensors of all ranks, one after another in one tensor."""
        opts = c10d.AllgatherOptions() if opts is None else opts
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
            kinds.ALLGATHER,
            opts,
            dtype=own.dtype,
            shapes=[(1, own.elements)],
            inputs=[own.address],
            results=[room.place],
        )
        return self._start(request, opts, results, (own, room), [], finish)

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
    ) -> dist.Work:
        """Do `allgather` for several tensors; `outputs` has a list of them for every rank."""
        by_tensor = zip(*outputs, strict=True)
        pairs = zip(by_tensor, inputs, strict=True)
        return Works([self.allgather([out], [tensor], opts) for out, tensor in pairs])

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> dist.Work:
        """Do `all_gather_single` for several tensors."""
        pairs = zip(outputs, inputs, strict=True)
        return Works([self.all_gather_single(*pair, opts) for pair in pairs])

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Give the root the tensors of all ranks."""
        opts = c10d.GatherOptions() if opts is None else opts
        own = buffers.source(inputs[0])
        is_root = opts.rootRank == self._group_rank
        results: list[torch.Tensor] = []
        room, hand_out = own, _nothing
        if is_root:
            results = list(outputs[0])
            self._check_count("gather", results)
            room, hand_out = buffers.room_for(results)
        request = self._request(
            kinds.GATHER,
            opts,
            dtype=own.dtype,
            root=opts.rootRank,
            shapes=[(1, own.elements)],
            inputs=[own.address],
            results=[room.place],
        )
        return self._start(request, opts, results, (own, room), [], hand_out)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """Give every rank one of the root's tensors."""
        opts = c10d.ScatterOptions() if opts is None else opts
        result = buffers.target(outputs[0])
        parts: list[Buffer] = []
        if opts.rootRank == self._group_rank:
            self._check_count("scatter", inputs[0])
            parts = [buffers.source(tensor) for tensor in inputs[0]]
            self._check_scattered(result, parts)
        request = self._request(
            kinds.SCATTER,
            opts,
            dtype=result.dtype,
            root=opts.rootRank,
            shapes=[(result.elements,)],
            inputs=[part.address for part in parts],
            outputs=[result.address],
        )
        return self._start(request, opts, outputs, (result, parts), [result])

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Send every rank its rows of the input, and get rows from every rank."""
        opts = c10d.AllToAllOptions() if opts is None else opts
        own, result = buffers.source(tensor), buffers.target(output)
        sent = self._elements(own.memory, input_splits, "input")
        wanted = self._elements(result.memory, output_splits, "output")
        return self._exchange(own, result, sent, wanted, opts, [output], result.give_back)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Send every rank a tensor, and get one from every rank."""
        opts = c10d.AllToAllOptions() if opts is None else opts
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
            kinds.ALLTOALL,
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

    # ---- The names of these in PyTorch up to 2.12 ----

    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # ---- Barriers ----

    def barrier(self, opts: Any = None) -> Work:
        """Wait until all ranks have come."""
        opts = c10d.BarrierOptions() if opts is None else opts
        return self._start(self._request(kinds.BARRIER, opts), opts, [], None, [])

    # ---- What all of them have in common ----

    def _request(self, kind: int, opts: Any, **fields: Any) -> tuple[_core.Request, int]:
        """Return the request, and its number for the thread that concludes works; 0: none."""
        self._require_open()
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
        """Raise where the group has been destroyed."""
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
        """Return how many elements go to or come from each rank; no splits mean equal ones."""
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
    """Do what is left to do where there is nothing."""
