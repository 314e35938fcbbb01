"""What a loss is divided by."""

from __future__ import annotations

from typing import Any

import torch

from sirtaki.caffe.layers.base import Context
from sirtaki.caffe.proto.schema import TRAIN

FULL = 0
VALID = 1
BATCH_SIZE = 2
NONE = 3
PRE_FIXED = 10003


class LossNormalizer:
    """The divisor Z of a loss: a count of what it is summed over, and at least 1.

    Gradients are averaged over the processes. In TRAIN the divisor is therefore that of the batch
    of all processes divided by their number, so that the average is the gradient of one process
    with the whole batch. Counts that all processes share need no communication; that of labels
    which are not ignored is averaged over the processes, by all of them in each pass. In TEST the
    divisor is that of the process's own batch.

    Args:
        loss_param: A LossParameter.
        context: Of the layer.
        name: Of the layer.
        default: The mode where the file gives neither `normalization` nor the older `normalize`.
    """

    def __init__(self, loss_param: Any, context: Context, name: str, default: int = VALID) -> None:
        self._context = context
        self._name = name
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
        """Z for a batch.

        Args:
            outer: Items.
            inner: Places in an item.
            counted: Which places are not ignored; None: all of them.
        """
        processes = self._context.world.size if self._context.phase == TRAIN else 1
        if self._mode == VALID and counted is not None:
            valid = counted.sum()
            if processes == 1:
                return valid.clamp(min=1)
            mean = self._context.world.mean(float(valid), f"{self._name}.valid")
            return max(1.0, processes * mean) / processes
        if self._mode == NONE:
            return 1.0 / processes
        own: float = {BATCH_SIZE: outer, PRE_FIXED: self._fixed}.get(self._mode, outer * inner)
        return max(1.0, processes * own) / processes

    def counted(self, labels: torch.Tensor) -> torch.Tensor | None:
        """Which labels are not ignored; None: all of them."""
        return None if self.ignored is None else labels != self.ignored
