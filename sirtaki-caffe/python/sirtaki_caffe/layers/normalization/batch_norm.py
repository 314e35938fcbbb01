"""Batch normalisation, as in BVLC's Caffe and in Intel's engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from sirtaki_caffe.layers.base import Layer, Shape, layer
from sirtaki_caffe.layers.checks import filled
from sirtaki_caffe.proto.schema import TEST

_STATISTICS = 3  # blobs: sums of means, sums of variances, their weight


@layer("BatchNorm")
@layer("MKLBatchNorm")
class BatchNorm(Layer):
    """(x - mean) / sqrt(variance + eps), channel by channel.

    In TRAIN it uses the batch's own mean and variance, and updates the moving sums: each is
    multiplied by moving_average_fraction, then the batch's value is added, and 1 to their weight.
    In TEST, or with `use_global_stats`, it uses the sums divided by their weight. If a batch is
    normalised in chunks (`bn_stats_batch_size`), the sums are updated once per chunk.

    An affine layer, as in Intel's engine, has two more blobs: a scale, and with `bias_term` a
    shift. `sirtaki_caffe.net.batch_norm` determines which are affine and sets `use_weight_bias`.
    """

    may_be_in_place = True

    def __init__(self, proto: Any, context: Any) -> None:
        super().__init__(proto, context)
        self._parameter = proto.batch_norm_param

    def setup(self, bottoms: Sequence[Shape]) -> None:
        """Check the parameters and create the blobs."""
        parameter = self._parameter
        if not bottoms[0]:
            raise self.error("its bottom has no axes")
        if not 0 <= parameter.moving_average_fraction <= 1:
            raise self.error("batch_norm_param.moving_average_fraction must be between 0 and 1")
        if parameter.eps < 0:
            raise self.error("batch_norm_param.eps must not be negative")
        channels = self._channels(bottoms[0])
        zero = type(parameter.filler)(type="constant", value=0)
        one = type(parameter.filler)(type="constant", value=1)
        self.params = [
            filled(self, shape, zero, "batch_norm_param")
            for shape in ((channels,), (channels,), (1,))
        ]
        self._freeze_statistics()
        self._fraction = float(parameter.moving_average_fraction)
        self._eps = float(parameter.eps)
        self._global = self.context.phase == TEST
        if parameter.HasField("use_global_stats"):
            self._global = parameter.use_global_stats
        self._chunk = int(parameter.stats_batch_size or self.context.bn_stats_batch_size)
        if not (parameter.HasField("use_weight_bias") and parameter.use_weight_bias):
            return
        scale = parameter.filler if parameter.HasField("filler") else one
        self.params.append(filled(self, (channels,), scale, "batch_norm_param.filler"))
        if parameter.bias_term:
            shift = parameter.bias_filler
            self.params.append(filled(self, (channels,), shift, "batch_norm_param.bias_filler"))

    def _freeze_statistics(self) -> None:
        """Exclude the first three blobs from learning, even if the file does not."""
        for index, param in enumerate(self.params):
            if len(self.proto.param) <= index:
                self.proto.param.add(lr_mult=0)
            elif self.proto.param[index].lr_mult != 0:
                raise self.error(
                    f"param {index} holds statistics, which the solver must leave alone: give it "
                    "lr_mult: 0"
                )
            param.lr_mult = 0.0

    def _channels(self, shape: Shape) -> int:
        return shape[1] if len(shape) > 1 else 1

    def shapes(self, bottoms: Sequence[Shape]) -> list[Shape]:
        """Return the shape of the bottom."""
        shape = bottoms[0]
        if self._channels(shape) != self.params[0].data.shape[0]:
            raise self.error(
                f"its bottom {list(shape)} has {self._channels(shape)} channels, but its blobs are "
                f"for {self.params[0].data.shape[0]}"
            )
        if self._in_chunks(shape[0]) and shape[0] % self._chunk:
            raise self.error(
                f"a batch of {shape[0]} is not a multiple of the {self._chunk} images that are "
                "normalised together (bn_stats_batch_size)"
            )
        return [shape]

    def _in_chunks(self, items: int) -> bool:
        return 0 < self._chunk < items and not self._global

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """See the class."""
        x = bottoms[0]
        rows = x if x.dim() > 1 else x[:, None]
        if self._global:
            y = self._by_global_statistics(rows)
        elif self._in_chunks(x.shape[0]):
            y = torch.cat([self._by_own_statistics(chunk) for chunk in rows.split(self._chunk)])
        else:
            y = self._by_own_statistics(rows)
        if self._parameter.relu:
            y = F.relu(y)
        return [y if x.dim() > 1 else y[:, 0]]

    def _affine_blobs(self) -> list[torch.Tensor | None]:
        blobs: list[torch.Tensor | None] = [p.data for p in self.params[_STATISTICS:]]
        return blobs + [None] * (2 - len(blobs))

    def _by_global_statistics(self, x: torch.Tensor) -> torch.Tensor:
        mean, variance, weight = (p.data for p in self.params[:_STATISTICS])
        factor = torch.where(weight == 0, 0.0, 1 / weight)
        scale, shift = self._affine_blobs()
        return F.batch_norm(
            x, mean * factor, variance * factor, scale, shift, False, 0.0, self._eps
        )

    def _by_own_statistics(self, x: torch.Tensor) -> torch.Tensor:
        sums, squares, weight = (p.data for p in self.params[:_STATISTICS])
        # With a momentum of 1 PyTorch stores here the mean, and the variance over count - 1.
        mean, variance = torch.zeros_like(sums), torch.zeros_like(squares)
        scale, shift = self._affine_blobs()
        y = torch.batch_norm(x, scale, shift, mean, variance, True, 1.0, self._eps, False)
        if x.numel() == x.shape[1]:
            variance.zero_()
        with torch.no_grad():
            sums.mul_(self._fraction).add_(mean)
            squares.mul_(self._fraction).add_(variance)
            weight.mul_(self._fraction).add_(1)
        return y
