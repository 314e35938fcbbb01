"""A communication hook of DDP, which compresses gradients."""

# Without `from __future__ import annotations`: PyTorch compares the annotations of hooks.

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from sirtaki.core.operations import codes
from sirtaki.core.operations.compression import codec_of, compress_all, decompress_all
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.torch.compression import Compressor, feeds_back
from sirtaki.torch.distributed.functions import ours
from sirtaki.torch.distributed.group import Group
from sirtaki.torch.gradients.error_feedback import ErrorFeedback
from sirtaki.torch.gradients.transformation import Rows, Sums
from sirtaki.torch.gradients.transformations import transformation_of

_FACTORS_KEY = "compression_factors"


class CompressionState:
    """What `compression_hook` needs, and keeps of the gradients from step to step.

    Args:
        compression: Form of the gradients, from `sirtaki.torch.Compression`.
        process_group: DDP's group, of the backend sirtaki; default: the group of all ranks.

    Raises:
        ValueError: The group is of another backend.
    """

    def __init__(
        self, compression: type[Compressor], process_group: dist.ProcessGroup | None = None
    ) -> None:
        self.group: Group = ours(process_group, "compression_hook")
        self.compression = compression
        self.transformation = transformation_of(compression)
        made = self.transformation
        self.feedback = ErrorFeedback() if made is None else made.feedback
        self.lock = threading.Lock()
        self.group.hooks += 1
        self.name = f"hook {self.group.hooks}"

    def state_dict(self, params: Iterable[torch.Tensor]) -> dict[str, Any]:
        """Return what this rank keeps.

        Args:
            params: Those of the model, ``model.parameters()``.
        """
        listed = [*params]
        state: dict[str, Any] = {}
        self.feedback.save(state, listed, self.group.getRank())
        if self.transformation is not None:
            state[_FACTORS_KEY] = self.transformation.shared(listed)
        return state

    def load_state_dict(self, state: dict[str, Any], params: Iterable[torch.Tensor]) -> None:
        """Go on from what `state_dict` returned on this rank.

        Args:
            state: The result of `state_dict`.
            params: As there.
        """
        listed = [*params]
        self.feedback.load(state, listed, self.group.getRank())
        if self.transformation is not None:
            self.transformation.load_shared(state.get(_FACTORS_KEY), listed)


def compression_hook(
    state: CompressionState,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # missing from the stubs
) -> Future[torch.Tensor]:
    """Average the gradients of a bucket in compressed form, for DDP's `register_comm_hook`.

    Args:
        state: A state of this model alone.
        bucket: DDP's gradients.

    Returns:
        A future of the averaged gradients.
    """
    name = f"{state.name}, bucket {bucket.index()}"
    return (_encoded if state.transformation is None else _Transforming.run)(state, bucket, name)


def _encoded(state: CompressionState, bucket: Any, name: str) -> Future[torch.Tensor]:
    buffer: torch.Tensor = bucket.buffer()
    params = bucket.parameters()
    cut = buffer.split([param.numel() for param in params])
    parts = [part.view(param.shape) for part, param in zip(cut, params, strict=True)]
    codec = codec_of(state.compression, Average)
    sent, contexts = compress_all(codec, state.compression, parts)
    sent = [each if each.is_cpu else each.cpu() for each in sent]  # where the engine encodes
    if feeds_back(state.compression):
        state.feedback.apply(params, sent, codec)
    codec = codec if sent[0].dtype == torch.float32 else codes.NO_CODEC
    work = state.group.average(sent, name, codec)

    def take(done: Future[list[torch.Tensor]]) -> torch.Tensor:
        for part, mean in zip(
            parts, decompress_all(state.compression, done.value(), contexts), strict=True
        ):
            if mean is not part:
                part.copy_(mean)
        return buffer

    return work.get_future().then(take)


class _Transforming:
    """A transformation's steps on a bucket; each starts where the operation before it ends."""

    def __init__(self, state: CompressionState, bucket: Any, name: str) -> None:
        assert state.transformation is not None
        self._transformation = state.transformation
        self._lock = state.lock
        self._group, self._name, self._round = state.group, name, 0
        self._buffer = bucket.buffer()
        self.done: Future[torch.Tensor] = Future()
        gradients = bucket.gradients()
        names = [f"{bucket.index()}.{i}" for i in range(len(gradients))]
        self._steps = self._transformation.reduce(
            bucket.parameters(), names, gradients, lambda ranks: 1 / ranks
        )
        self._start(next(self._steps))  # DDP has no empty buckets

    @classmethod
    def run(cls, state: CompressionState, bucket: Any, name: str) -> Future[torch.Tensor]:
        """Return a future of the bucket's gradients."""
        return cls(state, bucket, name).done

    def _start(self, wanted: Sums | Rows) -> None:
        self._round += 1
        name = f"{self._name}, round {self._round}"
        if isinstance(wanted, Rows):
            futures: Sequence[Future[Any]] = [
                self._group.gather_rows(wanted.row, name).get_future()
            ]
        else:
            by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
            for tensor in wanted.tensors:
                by_dtype.setdefault(tensor.dtype, []).append(tensor)
            futures = [
                self._group.average(part, f"{name}, {dtype}").get_future()
                for dtype, part in by_dtype.items()
            ]
        torch.futures.collect_all([*futures]).add_done_callback(self._go_on)

    def _next(self, arrived: torch.Tensor) -> Sums | Rows | None:
        # Buckets end in several threads, and what is kept of them is in one place.
        with self._lock:
            try:
                return self._steps.send(arrived)
            except StopIteration:
                self._transformation.settle(used=True)
                return None

    def _go_on(self, arrived: Future[list[Future[list[torch.Tensor]]]]) -> None:
        try:
            (first, *_) = [future.value() for future in arrived.value()]
            if (wanted := self._next(first[0])) is not None:
                self._start(wanted)
            else:
                self.done.set_result(self._buffer)
        except Exception as error:
            self.done.set_exception(error)  # type: ignore[arg-type]
