"""The divisor of a loss."""

from __future__ import annotations

import torch

from sirtaki_caffe.layers.base import Layer

FULL = 0
VALID = 1
BATCH_SIZE = 2
NONE = 3
PRE_FIXED = 10003


class LossNormalizer:
    """The divisor Z of a loss: the number of summed values, and at least 1.

    Gradients are averaged over the processes. In TRAIN the divisor is therefore that of the batch
    of all processes divided by their number, so that the average is the gradient of one process
    with the whole batch. Counts that all processes share need no communication; the number of
    labels that are not ignored is averaged over the processes, by all of them in each pass. In TEST
    the divisor is that of the process's own batch. `pre_fixed_normalizer`, like `batch_size`, is
    that of each process.

    Args:
        layer: The layer of the loss.
        default: The mode if the file gives neither `normalization` nor the older `normalize`.
    """

    def __init__(self, layer: Layer, default: int = VALID) -> None:
        loss_param = layer.proto.loss_param
        self._layer = layer
        self._fixed = float(loss_param.pre_fixed_normalizer)
        self.ignored: int | None = None
        if loss_param.HasField("ignore_label"):
            self.ignored = int(loss_param.ignore_label)
        self._mode = default
        if loss_param.HasField("normalization"):
            self._mode = int(loss_param.normalization)
        elif loss_param.HasField("normalize"):
            self._mode = VALID if loss_param.normalize else BATCH_SIZE

    def divisor(self, outer: int, inner: int, counted: torch.Tensor | None) -> torch.Tensor | float:
        """Return Z for a batch.

        Args:
            outer: The number of items.
            inner: The number of positions in an item.
            counted: The positions that are not ignored; None: all of them.
        """
        layer, processes = self._layer, self._layer.processes
        if self._mode == VALID and counted is not None:
            return layer.per_process(counted.sum(), varies=True)
        if self._mode == NONE:
            return 1.0 / processes
        if self._mode == PRE_FIXED:
            return max(1.0, processes * self._fixed) / processes
        return layer.per_process(outer if self._mode == BATCH_SIZE else outer * inner)

    def counted(self, labels: torch.Tensor) -> torch.Tensor | None:
        """Return the labels that are not ignored; None: all of them."""
        return None if self.ignored is None else labels != self.ignored
