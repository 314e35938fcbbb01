"""Reduction of gradients while backward runs."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from sirtaki import _core
from sirtaki.core.errors import HorovodInternalError
from sirtaki.core.operations import codes
from sirtaki.core.operations import compression as core
from sirtaki.core.operations.compression import NoneCompressor, compress_all, decompress_all
from sirtaki.core.operations.reduce_ops import Max, Sum
from sirtaki.core.operations.reduction import Reduction
from sirtaki.core.world import state
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.core.world.world import World
from sirtaki.torch.compression import Compressor, codec_of, feeds_back
from sirtaki.torch.device.layer import devices
from sirtaki.torch.gradients.error_feedback import ErrorFeedback
from sirtaki.torch.gradients.layouts import agree_on_layouts, unused_everywhere
from sirtaki.torch.gradients.slots import Bucket, GradientSlot
from sirtaki.torch.gradients.transformation import Exchange, scale_of
from sirtaki.torch.gradients.transformations import transformation_of
from sirtaki.torch.ops.allreduce import run, start_allreduce
from sirtaki.torch.ops.handles import collectives, runner_of, stage_in_place, wait
from sirtaki.torch.ops.sparse import sparse_allreduce_async


class GradientReducer:
    """Starts the reduction of each gradient as soon as backward has it, and completes all.

    Gradients are reduced in place. A bucket of parameters is sent when each of them has accumulated
    `passes` gradients.

    Args:
        reduction: how to combine gradients.
        compression: form of the gradients on the wire.
        passes: backward passes per step.
        sparse_as_dense: convert sparse gradients to dense for the reduction, and back after it.
        skip_unused: skip parameters for which no rank has a gradient.
    """

    def __init__(
        self,
        reduction: Reduction,
        compression: type[Compressor],
        passes: int,
        sparse_as_dense: bool,
        skip_unused: bool,
    ) -> None:
        self._passes = passes
        self._average = self._reduction = reduction
        self._compression = compression
        self.transformation = made = transformation_of(compression)
        self.feedback = ErrorFeedback() if made is None else made.feedback
        self._feeds_back = feeds_back(compression)
        self._sparse_as_dense = sparse_as_dense
        self._skip_unused = skip_unused
        self._buckets: list[Bucket] = []
        self._hooks: list[Any] = []
        # It keeps neither the reducer nor its parameters alive.
        reference = weakref.ref(self)

        def extra(bucket: int, index: int) -> None:
            if (reducer := reference()) is not None:
                raise reducer._too_many(bucket, index)

        def complete(bucket: int) -> None:
            if (reducer := reference()) is not None:
                reducer._start(bucket)

        self._arrivals = _core.Arrivals("grad", "_version", complete, extra)
        # The world of the last layout agreement, and this rank's `join` count then.
        self._world: weakref.ref[World] | None = None
        self._joins = 0
        # Hooks live as long as the parameters, which may outlive this object.
        weakref.finalize(self, _remove_all, self._hooks)

    @property
    def busy(self) -> bool:
        """Whether backward has run since the last `finish`."""
        return self._arrivals.busy

    @property
    def passes(self) -> int:
        """Gradients a parameter accumulates before they are reduced; may be set between steps."""
        return self._passes

    @passes.setter
    def passes(self, passes: int) -> None:
        if any(bucket.started for bucket in self._buckets):
            raise RuntimeError(
                "set_backward_passes_per_step() was called after loss.backward() but before "
                "optimizer.step() or optimizer.synchronize(), while gradients are being reduced; "
                "call it between steps"
            )
        self._passes = passes
        self.reset()

    def divide_by(self, total: int) -> None:
        """Average over this number of gradients, not over the ranks, from now on."""
        scale = self._average.postscale_factor / total
        self._reduction = self._average._replace(op=Sum, postscale_factor=scale)

    def reduce_within(self, process_set: ProcessSet) -> None:
        """Reduce over other ranks from now on."""
        self._average = self._average._replace(process_set=process_set)
        self._reduction = self._reduction._replace(process_set=process_set)

    def add_bucket(self, params: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        """Reduce these parameters' gradients together from now on."""
        slots = [GradientSlot(p, n) for p, n in zip(params, names, strict=True)]
        self._buckets.append(Bucket(slots))
        self._arrivals.add(len(slots), self._passes)
        self._hook(len(self._buckets) - 1)

    def _hook(self, bucket_index: int) -> None:
        """Register hooks for the gradients of the bucket's parameters, except frozen ones."""
        for i, slot in enumerate(self._buckets[bucket_index].slots):
            if slot.hooked or not slot.param.requires_grad:
                continue
            hook = self._arrivals.hook(bucket_index, i)
            self._hooks.append(slot.param.register_post_accumulate_grad_hook(hook))
            slot.hooked = True

    def _too_many(self, bucket_index: int, index: int) -> AssertionError:
        name = self._buckets[bucket_index].slots[index].name
        return AssertionError(
            f"the gradient of {name} was computed more than backward_passes_per_step = "
            f"{self._passes} times before step(); raise backward_passes_per_step to "
            "accumulate gradients"
        )

    def _start(self, bucket_index: int, slots: Sequence[GradientSlot] | None = None) -> None:
        """Start the reduction of all gradients of a bucket, which are complete, or of some."""
        bucket = self._buckets[bucket_index]
        bucket.started = True
        try:
            if slots is not None:
                self._arrivals.close(bucket_index)
                self._start_parts(bucket, slots)
            elif not self._start_again(bucket_index):
                self._start_parts(bucket, bucket.slots)
        except BaseException as error:
            # The caller may catch the error, so `finish` raises it again.
            bucket.failure = error
            raise

    def _start_again(self, bucket_index: int) -> bool:
        """Start the reduction if it is like the last step's, with few steps of Python's."""
        bucket = self._buckets[bucket_index]
        codec = core.codec_of(self._compression, self._reduction.op)
        unchanged = codec != codes.NO_CODEC or self._compression is NoneCompressor
        if not (bucket.only_dense and unchanged and devices["cpu"] is None) or self._feeds_back:
            return False
        bucket.handle = collectives.allreduce_again(
            self._arrivals.gradients(bucket_index), bucket.name, self._reduction, codec=codec
        )
        bucket.again = bucket.handle is not None
        return bucket.again

    def _start_parts(self, bucket: Bucket, slots: Sequence[GradientSlot]) -> None:
        for slot in slots:
            grad = slot.gradient(self._sparse_as_dense)
            if grad.layout is not torch.strided:
                self._require_dense(slot)
                bucket.sparse.append((slot, self._start_sparse(slot, grad)))
            else:
                bucket.dense.append((slot, grad))
        if not bucket.dense:
            return
        if self.transformation is not None:
            bucket.exchange = self._transform(bucket)
            return
        grads = [grad for _, grad in bucket.dense]
        codec = codec_of(self._compression, grads, self._reduction.op)
        tensors, bucket.contexts = compress_all(codec, self._compression, grads)
        runner = runner_of(tensors, "allreduce", self._reduction.op)
        staged = stage_in_place(tensors, runner)
        if self._feeds_back:
            self.feedback.apply([slot.param for slot, _ in bucket.dense], staged, codec)
        bucket.handle = start_allreduce(
            staged, bucket.name, self._reduction, in_place=True, runner=runner, codec=codec
        )

    def _transform(self, bucket: Bucket) -> Exchange:
        assert self.transformation is not None
        steps = self.transformation.reduce(
            [slot.param for slot, _ in bucket.dense],
            [slot.name for slot, _ in bucket.dense],
            [grad.detach() for _, grad in bucket.dense],
            scale_of(self._reduction),
        )
        return Exchange(steps, bucket.name, self._reduction)

    def _require_dense(self, slot: GradientSlot) -> None:
        if self.transformation is not None:
            raise ValueError(
                f"{self._compression.__qualname__} cannot send sparse gradients, such as that of "
                f"{slot.name}: set sparse_as_dense=True, or choose another compression"
            )

    def _start_sparse(self, slot: GradientSlot, grad: torch.Tensor) -> Any:
        op, before, after, process_set = self._reduction
        result_of = sparse_allreduce_async(grad, slot.name, op, process_set)
        if op != Sum or before * after == 1.0:  # the factors of an average cancel each other out
            return result_of
        return lambda: result_of() * (before * after)

    @torch.no_grad()
    def finish(self) -> None:
        """Reduce the remaining gradients, zeros for missing ones, and wait for all.

        Raises:
            HorovodInternalError: a reduction failed. All of them have ended.
            RuntimeError: the reduction of a gradient could not be started during backward, or a
                gradient was changed since.
        """
        changed = [
            bucket.slots[index].name
            for i, bucket in enumerate(self._buckets)
            for index in self._arrivals.changed(i, bucket.params)
        ]
        self._finish_all(used=not changed)
        if changed:
            raise _changed_too_early(changed)

    @torch.no_grad()
    def discard(self) -> None:
        """Wait for the gradients being reduced, as all ranks do, and discard them.

        Raises:
            HorovodInternalError, RuntimeError: as `finish`.
        """
        self._finish_all(used=False)
        # Ranks that step with these gradients must not continue if one rank discards them.
        first = min(slot.name for bucket in self._buckets for slot in bucket.slots)
        together = Reduction(Max, 1.0, 1.0, self._reduction.process_set)
        run([torch.zeros(1, device="cpu")], f"gradients discarded of {first} ...", together)

    def _finish_all(self, *, used: bool) -> None:
        failures: list[Exception] = []
        with _added_to(failures):
            self._enter_world()
            transforms = self.transformation is not None
            settings = self._compression.__qualname__ if transforms else ""
            process_set = self._reduction.process_set
            agree_on_layouts(self._buckets, process_set, self._sparse_as_dense, settings)
        unused: set[GradientSlot] = set()
        if self._skip_unused:
            with _added_to(failures):
                unused = unused_everywhere(self._buckets, self._reduction.process_set)
        for i, bucket in enumerate(self._buckets):
            if not bucket.started and bucket.failure is None:
                self._hook(i)  # a parameter may have been unfrozen
                slots = [s for s in bucket.slots if s.param.requires_grad and s not in unused]
                if slots:
                    with _added_to(failures):
                        self._start(i, slots)
        self._advance_all(failures)
        for bucket in self._buckets:
            with _added_to(failures):
                self._complete(bucket)
        self._settle(used=used and not failures)
        self.reset()
        if failures:
            raise failures[0]

    def _advance_all(self, failures: list[Exception]) -> None:
        """Do the steps of transformations, so that those of all buckets run side by side."""
        going = [b for b in self._buckets if b.exchange is not None and b.failure is None]
        while going:
            ended = []
            for bucket in going:
                assert bucket.exchange is not None
                try:
                    if not bucket.exchange.advance():
                        ended.append(bucket)
                except Exception as error:
                    failures.append(error)
                    ended.append(bucket)
            going = [bucket for bucket in going if bucket not in ended]

    def _enter_world(self) -> None:
        """Forget agreements of another world, or of ranks without those that had joined.

        A rank that was absent is back in the next world, or after all have joined, and asks.
        """
        world = state.current_world()
        if self._world is None or self._world() is not world or self._joins != world.joins:
            self._world, self._joins = weakref.ref(world), world.joins
            for bucket in self._buckets:
                bucket.only_dense = False
                for slot in bucket.slots:
                    slot.sparse_dim = None

    def _complete(self, bucket: Bucket) -> None:
        if bucket.failure is not None:
            raise _not_started(bucket)
        results = [] if bucket.handle is None else wait(bucket.handle)
        if bucket.again:
            return
        if bucket.exchange is not None:
            whole = [grad for _, grad in bucket.dense]
        else:
            whole = decompress_all(self._compression, results, bucket.contexts)
        for (slot, grad), result in zip(bucket.dense, whole, strict=True):
            if result is not grad:
                grad.copy_(result)
            # The optimizer receives the layout that it would get without this wrapper.
            if slot.sparse_dim:
                slot.param.grad = grad.to_sparse(slot.sparse_dim)
            elif slot.param.grad is not grad:
                slot.param.grad = grad
        for slot, result_of in bucket.sparse:
            slot.param.grad = result_of()

    def _settle(self, *, used: bool) -> None:
        if self.transformation is not None:
            self.transformation.settle(used=used)

    def reset(self) -> None:
        """Forget the gradients of this step."""
        self._arrivals.reset(self._passes)
        self._settle(used=False)
        for bucket in self._buckets:
            bucket.reset()


@contextmanager
def _added_to(failures: list[Exception]) -> Iterator[None]:
    """Continue after an exception, because the other ranks wait for later reductions."""
    try:
        yield
    except Exception as error:
        failures.append(error)


def _not_started(bucket: Bucket) -> BaseException:
    error = bucket.failure
    if isinstance(error, HorovodInternalError):
        return error
    failure = RuntimeError(
        f"the reduction of the gradients of {bucket.name} could not be started: {error!r}"
    )
    failure.__cause__ = error
    return failure


def _changed_too_early(names: Sequence[str]) -> RuntimeError:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return RuntimeError(
        f"the gradient of {names[0]}{more} was changed between backward() and step(), while it "
        "was being reduced: call optimizer.synchronize() before gradients are clipped, unscaled or "
        "changed otherwise, and step() within `with optimizer.skip_synchronize():`"
    )


def _remove_all(hooks: Iterable[Any]) -> None:
    for hook in hooks:
        hook.remove()
