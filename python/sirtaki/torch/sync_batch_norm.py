"""Batch normalisation with the statistics of all ranks' batches together."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from sirtaki.core.operations.reduce_ops import Sum
from sirtaki.core.world.participants import size_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.torch.ops.allreduce import allreduce_
from sirtaki.torch.ops.exchange import allgather


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batch dimension of all ranks of a process set.

    Replaces `torch.nn.BatchNorm1d`, `2d` and `3d`; input of shape (N, C, ...), on any device, where
    N may differ between ranks and may be zero on some. Gradients of weight and bias are for
    the rank's part of the batch, for `DistributedOptimizer` to reduce. In evaluation, and in a
    process set of one rank, it is ordinary batch normalisation.

    Args:
        num_features: C.
        eps: added to the variance.
        momentum: weight of the newest batch in the running statistics; None for their average.
        affine: whether to learn a weight and a bias.
        track_running_stats: whether to keep statistics for evaluation.
        process_set: the ranks that share a batch.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.dim()}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the normalised input, of the same shape and dtype.

        Raises:
            ValueError: the input has fewer than two dimensions, or in training the ranks together
                have only one value per channel.
        """
        if not self.training or size_of(self.process_set) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        output, mean, var, count = _SyncBatchNorm.apply(
            input, self.weight, self.bias, self.eps, self.process_set
        )
        if self.running_mean is not None and self.running_var is not None:
            unbiased = var * (count / (count - 1))
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)
        return cast("torch.Tensor", output)


def _per_channel(vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return vector.view(1, -1, *[1] * (like.dim() - 2))


def _local_moments(x: torch.Tensor) -> torch.Tensor:
    """Return count, mean and sum of squared deviations of each channel: 2 C + 1 doubles."""
    channels = x.shape[1]
    count = x.numel() // channels
    moments = x.new_zeros(2 * channels + 1, dtype=torch.float64)
    if count:
        dims = [d for d in range(x.dim()) if d != 1]
        var, mean = torch.var_mean(x, dims, correction=0)
        moments[0] = count
        moments[1 : channels + 1] = mean
        moments[channels + 1 :] = var.double() * count
    return moments


def _global_moments(
    x: torch.Tensor, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return mean and variance of each channel over all ranks, in double, and the count."""
    channels = x.shape[1]
    gathered = allgather(_local_moments(x)[None], "sync_batch_norm.moments", process_set)
    counts = gathered[:, :1]
    means = gathered[:, 1 : channels + 1]
    squares = gathered[:, channels + 1 :]
    count = float(counts.sum())
    if count <= 1:
        raise ValueError("batch normalisation needs more than one value per channel in training")
    mean = (counts * means).sum(0) / count
    var = (squares + counts * (means - mean) ** 2).sum(0) / count
    return mean, var, count


class _SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        process_set: ProcessSet,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
        # 16-bit input is normalised in float32, as torch.nn.BatchNorm does.
        wide = torch.promote_types(input.dtype, torch.float32)
        x = input.to(wide)
        mean, var, count = _global_moments(x, process_set)
        output = functional.batch_norm(
            x,
            mean.to(wide),
            var.to(wide),
            None if weight is None else weight.to(wide),
            None if bias is None else bias.to(wide),
            training=False,
            eps=eps,
        )
        invstd = torch.rsqrt(var + eps)
        ctx.save_for_backward(input, weight, mean, invstd)
        ctx.count = count
        ctx.process_set = process_set
        ctx.mark_non_differentiable(mean, var)
        return output.to(input.dtype), mean, var, count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        input, weight, mean, invstd = ctx.saved_tensors
        wide = torch.promote_types(input.dtype, torch.float32)
        dims = [d for d in range(input.dim()) if d != 1]
        dy = grad.to(wide)
        xhat = (input.to(wide) - _per_channel(mean.to(wide), input)) * _per_channel(
            invstd.to(wide), input
        )
        sums = torch.stack([dy.sum(dims), (dy * xhat).sum(dims)]).double()
        grad_bias, grad_weight = sums.unbind()
        totals = sums.clone()
        allreduce_(totals, name="sync_batch_norm.gradients", op=Sum, process_set=ctx.process_set)
        mean_dy, mean_dy_xhat = (totals / ctx.count).to(wide).unbind()
        scale = invstd.to(wide) if weight is None else invstd.to(wide) * weight.to(wide)
        centred = dy - _per_channel(mean_dy, dy) - xhat * _per_channel(mean_dy_xhat, dy)
        grad_input = (centred * _per_channel(scale, dy)).to(input.dtype)
        if weight is None:
            return grad_input, None, None, None, None
        return grad_input, grad_weight.to(weight.dtype), grad_bias.to(weight.dtype), None, None
