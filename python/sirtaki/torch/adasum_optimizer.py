"""The optimizer behind op=Adasum: it combines the ranks' steps, not their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from sirtaki.core.process_sets import ProcessSet
from sirtaki.core.reduce_ops import Adasum
from sirtaki.torch.allreduce_ops import allreduce_async_
from sirtaki.torch.compression import Compressor
from sirtaki.torch.handles import synchronize
from sirtaki.torch.wrapping import adopt


class _DistributedAdasumOptimizer(torch.optim.Optimizer):
    """Mixed into the class of the optimizer it wraps, whose state it shares."""

    _compression: type[Compressor]
    _parameter_names: dict[torch.Tensor, str]
    _process_set: ProcessSet

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Accepted for compatibility: gradients are not reduced, so they may be summed freely."""

    def synchronize(self) -> None:
        """Do nothing: gradients are not reduced."""

    def skip_synchronize(self) -> NoReturn:
        """Raise AssertionError: a step without the other ranks makes the models differ."""
        raise AssertionError("skip_synchronize() cannot be used with op=Adasum")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do the wrapped optimizer's step, and put the ranks' combined change in its place.

        Returns:
            What the wrapped optimizer returns: the closure's loss on this rank.
        """
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        before = [p.detach().clone() for p in params]
        result = super().step() if closure is None else super().step(closure)
        with torch.no_grad():
            self._combine(params, before)
        return result

    def _combine(self, params: list[torch.Tensor], before: list[torch.Tensor]) -> None:
        pending = []
        for p, start in zip(params, before, strict=True):
            delta, context = self._compression.compress(p.detach() - start)
            name = self._parameter_names.get(p)
            handle = allreduce_async_(delta, name=name, op=Adasum, process_set=self._process_set)
            pending.append((handle, context))
        for p, start, (handle, context) in zip(params, before, pending, strict=True):
            delta = self._compression.decompress(synchronize(handle), context)
            p.copy_(start.add_(delta))


# torch wraps `step` of classes without this mark, to run hooks that the inner step runs already.
_DistributedAdasumOptimizer.step.hooked = True  # type: ignore[attr-defined]


def distributed_adasum_optimizer(
    optimizer: torch.optim.Optimizer,
    names: dict[torch.Tensor, str],
    compression: type[Compressor],
    process_set: ProcessSet,
) -> torch.optim.Optimizer:
    """Return the optimizer with Adasum of its steps over the ranks of the process set."""
    distributed = adopt(optimizer, _DistributedAdasumOptimizer)
    distributed._compression = compression
    distributed._parameter_names = names
    distributed._process_set = process_set
    return distributed
