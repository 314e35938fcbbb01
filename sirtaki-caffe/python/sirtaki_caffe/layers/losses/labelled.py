"""Losses of labelled items other than SoftmaxWithLoss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from google.protobuf.message import DecodeError

from sirtaki_caffe.layers.base import Shape, layer
from sirtaki_caffe.layers.checks import axis_in, same_counts
from sirtaki_caffe.layers.loss_normalizer import BATCH_SIZE
from sirtaki_caffe.layers.losses.labels import LabelledLoss
from sirtaki_caffe.proto.schema import BlobProto

_LEAST = 1e-20  # the minimum probability whose logarithm is used
_L2 = 2


@layer("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLoss(LabelledLoss):
    """-t log(s) - (1 - t) log(1 - s) with s = sigmoid(x), summed and divided by the normaliser.

    Targets equal to `ignore_label` (without their fraction) are ignored. The divisor is the batch
    size by default.
    """

    default_normalization = BATCH_SIZE

    def class_axis(self, rank: int) -> int:
        """Return none: there are no classes."""
        return 0

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of a scalar."""
        same_counts(self, bottoms)
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x, target = bottoms[0], bottoms[1].reshape(bottoms[0].shape)
        counted = self.normalizer.counted(target.long())
        outer = x.shape[0] if x.dim() else 1
        divisor = self.normalizer.divisor(outer, x.numel() // max(1, outer), counted)
        if counted is None:
            return [F.binary_cross_entropy_with_logits(x, target, reduction="sum") / divisor]
        losses = F.binary_cross_entropy_with_logits(x, target, reduction="none")
        return [losses.where(counted, 0.0).sum() / divisor]


class _LabelAnItem(LabelledLoss):
    """A loss with one label for each item."""

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of a scalar."""
        items = bottoms[0][0]
        if math.prod(bottoms[1]) != items:
            raise self.error(f"{items} items need as many labels, not {list(bottoms[1])}")
        return [()]


@layer("HingeLoss")
class HingeLoss(_LabelAnItem):
    """max(0, 1 - x) of the label's class and max(0, 1 + x) of the others, or their squares.

    Their sum is divided by the batch size. All axes after the first are one axis of classes.
    """

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0].flatten(1)
        labels = bottoms[1].long().reshape(-1)
        try:
            sign = torch.ones_like(x).scatter_(1, labels[:, None], -1.0)
        except (RuntimeError, IndexError) as error:
            raise self.wrong_label(labels, x.shape[1]) from error
        margins = F.relu(1 + sign * x)
        if self.proto.hinge_loss_param.norm == _L2:
            margins = margins.square()
        return [margins.sum() / self.per_process(x.shape[0])]


@layer("MultinomialLogisticLoss")
class MultinomialLogisticLoss(_LabelAnItem):
    """-log of the probability of the label's class, divided by the batch size.

    Smaller probabilities than 1e-20 are replaced by it and have no gradient here.
    """

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0].reshape(bottoms[0].shape[0], -1, 1)
        picked, _ = self.pick(x, bottoms[1].long().reshape(-1, 1), None)
        loss = -picked.clamp(min=_LEAST).log().sum()
        return [loss / self.per_process(x.shape[0])]


@layer("InfogainLoss")
class InfogainLoss(LabelledLoss):
    """-sum over classes of H[label, class] * log(softmax), divided by the normaliser.

    H is the third bottom or in the file `infogain_loss_param.source`, a BlobProto. A second top
    contains the probabilities; no gradient goes through it.
    """

    bottoms = (2, 3)
    tops = (1, 2)
    no_gradient_to = (1, 2)

    def class_axis(self, rank: int) -> int:
        """Return the layer's own field."""
        return axis_in(self, self.proto.infogain_loss_param.axis, rank, "infogain_loss_param.axis")

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Read the matrix, unless it is a bottom."""
        super().setup(bottoms)
        self._matrix = None if len(bottoms) > 2 else self._read()
        count = math.prod(bottoms[2]) if self._matrix is None else self._matrix.numel()
        classes = self.split(bottoms[0])[1]
        if count != classes**2:
            raise self.error(
                f"its matrix has {count} numbers, but {classes} classes need {classes**2}"
            )

    def _read(self) -> torch.Tensor:
        source = self.proto.infogain_loss_param.source
        if not source:
            raise self.error("infogain_loss_param.source is missing, and there is no third bottom")
        try:
            blob = BlobProto.FromString(Path(source).read_bytes())
        except (OSError, DecodeError) as error:
            raise self.error(f"infogain_loss_param.source '{source}': {error}") from error
        numbers = np.array(blob.double_data or blob.data, dtype=np.float64)
        return torch.from_numpy(numbers).to(self.context.dtype)

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of a scalar and of the scores."""
        self.check_labels(bottoms[0], bottoms[1])
        return [(), bottoms[0]][: max(1, len(self.proto.top))]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        outer, classes, inner = self.split(tuple(bottoms[0].shape))
        logarithms = torch.log_softmax(bottoms[0].reshape(outer, classes, inner), 1)
        # Only the value is bounded; the gradient is not.
        bounded = logarithms.detach().clamp(min=math.log(_LEAST))
        labels = bottoms[1].long().reshape(outer, inner)
        counted = self.normalizer.counted(labels)
        _, at = self.pick(logarithms, labels, counted)
        matrix = bottoms[2] if self._matrix is None else self._matrix.to(logarithms.device)
        rows = matrix.reshape(classes, classes)[at.squeeze(1)].movedim(-1, 1)
        losses = -(rows * (logarithms + (bounded - logarithms.detach()))).sum(1)
        if counted is not None:
            losses = losses.where(counted, 0.0)
        loss = losses.sum() / self.normalizer.divisor(outer, inner, counted)
        probabilities = logarithms.detach().exp().reshape(bottoms[0].shape)
        return [loss, probabilities][: max(1, len(self.proto.top))]
