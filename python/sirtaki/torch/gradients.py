"""Reduction of gradients while backward runs."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sirtaki.core.errors import HorovodInternalError
from sirtaki.torch.allreduce_ops import start_allreduce
from sirtaki.torch.compression import Compressor
from sirtaki.torch.handles import SparseHandle, stage_in_place, wait
from sirtaki.torch.reduction import Reduction
from sirtaki.torch.sparse_ops import sparse_allreduce_async, sparse_zeros_like

# A bucket is called after its first parameters.
_NAMES_SHOWN = 3


@dataclass(eq=False, slots=True)
class _Slot:
    """A parameter, and how many more gradients it accumulates before they are reduced."""

    param: torch.Tensor
    name: str
    passes_left: int
    hooked: bool = False
    sparse_dim: int = 0  # of its last gradient; 0 if that was dense


@dataclass(eq=False, slots=True)
class _Bucket:
    """Parameters whose gradients are reduced together; most often one."""

    name: str
    slots: list[_Slot]
    ready: int = 0
    started: bool = False
    handle: int | None = None
    dense: list[tuple[torch.Tensor, Any]] = field(default_factory=list)  # gradient, context
    staged: Sequence[torch.Tensor] = ()
    sparse: list[tuple[_Slot, SparseHandle]] = field(default_factory=list)


class GradientReducer:
    """Starts the reduction of each gradient as soon as backward has it, and completes them all.

    Gradients are reduced in place. A bucket of parameters goes out when each of them has
    accumulated `passes` gradients.

    Args:
        reduction: how gradients are combined.
        compression: form of the gradients on the wire.
        passes: backward passes per step.
        sparse_as_dense: make sparse gradients dense and treat them like the others.
    """

    def __init__(
        self,
        reduction: Reduction,
        compression: type[Compressor],
        passes: int,
        sparse_as_dense: bool,
    ) -> None:
        self.busy = False  # backward has run since the last `finish`
        self._passes = passes
        self._reduction = reduction
        self._compression = compression
        self._sparse_as_dense = sparse_as_dense
        self._buckets: list[_Bucket] = []
        self._hooks: list[Any] = []
        # Hooks live as long as the parameters, which may outlive this object.
        weakref.finalize(self, _remove_all, self._hooks)

    @property
    def passes(self) -> int:
        """Gradients a parameter accumulates before they are reduced; may be set between steps."""
        return self._passes

    @passes.setter
    def passes(self, passes: int) -> None:
        self._passes = passes
        self.reset()

    def add_bucket(self, params: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        """Reduce the gradients of these parameters together from now on."""
        slots = [_Slot(p, n, self._passes) for p, n in zip(params, names, strict=True)]
        more = [f"and {len(names) - _NAMES_SHOWN} more"] if len(names) > _NAMES_SHOWN else []
        self._buckets.append(_Bucket(", ".join([*names[:_NAMES_SHOWN], *more]), slots))
        self._hook(len(self._buckets) - 1)

    def _hook(self, bucket_index: int) -> None:
        """Listen for the gradients of the bucket's parameters, but for frozen ones."""
        # Neither the reducer nor its parameters are kept alive by the hooks.
        reference = weakref.ref(self)
        for i, slot in enumerate(self._buckets[bucket_index].slots):
            if slot.hooked or not slot.param.requires_grad:
                continue

            def on_gradient(_: torch.Tensor, slot_index: int = i) -> None:
                reducer = reference()
                if reducer is not None:
                    reducer._on_gradient(bucket_index, slot_index)

            hook = slot.param.register_post_accumulate_grad_hook(on_gradient)
            self._hooks.append(hook)
            slot.hooked = True

    def _on_gradient(self, bucket_index: int, slot_index: int) -> None:
        bucket = self._buckets[bucket_index]
        slot = bucket.slots[slot_index]
        if slot.passes_left <= 0 or bucket.started:
            raise AssertionError(
                f"the gradient of {slot.name} was computed more than backward_passes_per_step = "
                f"{self._passes} times before step(); raise backward_passes_per_step to "
                "accumulate gradients"
            )
        self.busy = True
        slot.passes_left -= 1
        if slot.passes_left == 0:
            bucket.ready += 1
            if bucket.ready == len(bucket.slots):
                self._start(bucket, bucket.slots)

    def _start(self, bucket: _Bucket, slots: Sequence[_Slot]) -> None:
        bucket.started = True
        tensors = []
        for slot in slots:
            grad = slot.param.grad
            if grad is None:
                grad = slot.param.grad = _zeros_like(slot)
            if grad.layout is not torch.strided:
                if not self._sparse_as_dense:
                    self._start_sparse(bucket, slot, grad)
                    continue
                grad = slot.param.grad = grad.to_dense()
            tensor, context = self._compression.compress(grad)
            tensors.append(tensor)
            bucket.dense.append((grad, context))
        if not tensors:
            return
        bucket.staged = stage_in_place(tensors)
        bucket.handle = start_allreduce(bucket.staged, bucket.name, self._reduction, in_place=True)

    def _start_sparse(self, bucket: _Bucket, slot: _Slot, grad: torch.Tensor) -> None:
        slot.sparse_dim = grad.sparse_dim()
        handle = sparse_allreduce_async(
            grad, slot.name, self._reduction.op, self._reduction.process_set
        )
        bucket.sparse.append((slot, handle))

    @torch.no_grad()
    def finish(self) -> None:
        """Reduce what is still missing, as zeros where there is no gradient, and wait for all.

        Raises:
            HorovodInternalError: a reduction failed. All of them have ended then.
        """
        for i, bucket in enumerate(self._buckets):
            if not bucket.started:
                self._hook(i)  # a parameter may have been unfrozen
                slots = [slot for slot in bucket.slots if slot.param.requires_grad]
                if slots:
                    self._start(bucket, slots)
        failure: HorovodInternalError | None = None
        for bucket in self._buckets:
            try:
                self._complete(bucket)
            except HorovodInternalError as error:
                failure = failure or error
        self.reset()
        if failure is not None:
            raise failure

    def _complete(self, bucket: _Bucket) -> None:
        if bucket.handle is not None:
            wait(bucket.handle)
            for (grad, context), tensor in zip(bucket.dense, bucket.staged, strict=True):
                result = self._compression.decompress(tensor, context)
                if result is not grad:
                    grad.copy_(result)
        for slot, result_of in bucket.sparse:
            slot.param.grad = result_of()

    def reset(self) -> None:
        """Forget the gradients of this step."""
        self.busy = False
        for bucket in self._buckets:
            bucket.ready = 0
            bucket.started = False
            bucket.handle = None
            if bucket.dense:
                bucket.dense = []
                bucket.staged = ()
            if bucket.sparse:
                bucket.sparse = []
            for slot in bucket.slots:
                slot.passes_left = self._passes


def _zeros_like(slot: _Slot) -> torch.Tensor:
    if slot.sparse_dim:
        return sparse_zeros_like(slot.param, slot.sparse_dim)
    return torch.zeros_like(slot.param, requires_grad=False)


def _remove_all(hooks: Iterable[Any]) -> None:
    for hook in hooks:
        hook.remove()
