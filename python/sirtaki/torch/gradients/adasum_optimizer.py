"""The optimizer behind op=Adasum: it combines the ranks' steps, not their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from sirtaki.core.operations.reduce_ops import Adasum
from sirtaki.core.operations.reduction import Reduction
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.torch.compression import Compressor
from sirtaki.torch.gradients.slots import name_of_bucket
from sirtaki.torch.gradients.wrapping import Wrapper, adopt
from sirtaki.torch.ops.allreduce import start_allreduce
from sirtaki.torch.ops.handles import collectives, stage_in_place, wait


class _DistributedAdasumOptimizer(Wrapper):
    """Mixed into the class of the wrapped optimizer, whose state it shares."""

    _compression: type[Compressor]
    _parameter_names: dict[torch.Tensor, str]
    _unnamed: str
    _buckets: list[list[torch.Tensor]]
    _reduction: Reduction

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; their changes are combined one by one."""
        super().add_param_group(param_group)
        group_index = len(self.param_groups) - 1
        for i, p in enumerate(self.param_groups[group_index]["params"]):
            self._parameter_names.setdefault(p, f"{self._unnamed}.{group_index}.{i}")
            self._buckets.append([p])

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Do nothing: gradients are not reduced, so any number may be summed."""

    def synchronize(self) -> None:
        """Do nothing: gradients are not reduced."""

    def skip_synchronize(self) -> NoReturn:
        """Raise AssertionError: a step without the other ranks makes the models differ."""
        raise AssertionError("skip_synchronize() cannot be used with op=Adasum")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do the wrapped optimizer's step, and replace it with the ranks' combined change.

        Returns:
            The wrapped optimizer's result: the closure's loss on this rank.
        """
        buckets = [[p for p in bucket if p.requires_grad] for bucket in self._buckets]
        before = {p: p.detach().clone() for bucket in buckets for p in bucket}
        result = super().step() if closure is None else super().step(closure)
        with torch.no_grad():
            self._combine([bucket for bucket in buckets if bucket], before)
        return result

    def _combine(
        self, buckets: list[list[torch.Tensor]], before: dict[torch.Tensor, torch.Tensor]
    ) -> None:
        pending = []
        for bucket in buckets:
            deltas = [self._compression.compress(p.detach() - before[p]) for p in bucket]
            staged = stage_in_place([delta for delta, _ in deltas], collectives)
            name = name_of_bucket([self._parameter_names[p] for p in bucket])
            handle = start_allreduce(
                staged, name, self._reduction, in_place=True, runner=collectives
            )
            pending.append((handle, staged, [context for _, context in deltas]))
        for bucket, (handle, staged, contexts) in zip(buckets, pending, strict=True):
            wait(handle)
            for p, combined, context in zip(bucket, staged, contexts, strict=True):
                delta = self._compression.decompress(combined, context)
                p.copy_(before[p].add_(delta.to(p.device)))


# Without this mark, torch wraps `step` to run hooks that the inner step already runs.
_DistributedAdasumOptimizer.step.hooked = True  # type: ignore[attr-defined]


def distributed_adasum_optimizer(
    optimizer: torch.optim.Optimizer,
    names: dict[torch.Tensor, str],
    unnamed: str,
    buckets: list[list[torch.Tensor]],
    compression: type[Compressor],
    process_set: ProcessSet,
) -> torch.optim.Optimizer:
    """Return the optimizer with Adasum of its steps over the ranks of the process set.

    Args:
        optimizer: any PyTorch optimizer.
        names: the names of its parameters.
        unnamed: the name prefix of parameters that are added later.
        buckets: its parameters, in lists that are exchanged together.
        compression: form of the steps on the wire.
        process_set: the ranks that take part; this one is among them.
    """
    distributed = adopt(optimizer, _DistributedAdasumOptimizer)
    distributed._compression = compression
    distributed._parameter_names = names
    distributed._unnamed = unnamed
    distributed._buckets = buckets
    distributed._reduction = Reduction(Adasum, 1.0, 1.0, process_set)
    return distributed
