"""States that are at most one step old, without copies of parameters.

A rank applies a step only when all ranks have contributed their gradients. So whenever it can
detect the loss of a peer, its parameters and its optimizer's state are those of a complete step.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from sirtaki.torch.elastic.handlers import ModelStateHandler, OptimizerStateHandler, alike
from sirtaki.torch.gradients.adasum_optimizer import _DistributedAdasumOptimizer
from sirtaki.torch.outer.optimizer import OuterOptimizer


class KeptModelHandler(ModelStateHandler):
    """Copies only the buffers of a module, which the forward pass changes."""

    _saved: list[torch.Tensor]

    def __init__(self, model: torch.nn.Module) -> None:
        self._saved = []
        super().__init__(model)

    def save(self) -> None:
        """See `StateHandler`."""
        found = list(self.value.buffers())
        if alike(self._saved, found):
            with torch.no_grad():
                _copy(self._saved, found)
        else:
            self._saved = [each.detach().clone() for each in found]

    def restore(self) -> None:
        """See `StateHandler`."""
        with torch.no_grad():
            _copy(list(self.value.buffers()), self._saved)

    def keep(self, overwritten: bool) -> Callable[[], object]:
        """Return a function that undoes a failed `sync`. overwritten: it changes parameters."""
        if not overwritten:
            return lambda: None
        kept = copy.deepcopy(self.value.state_dict())
        return lambda: self.value.load_state_dict(kept)


class KeptOptimizerHandler(OptimizerStateHandler):
    """Counts the steps of an optimizer and copies nothing.

    Attributes:
        applied: The number of steps applied to the parameters.
        marked: That number at the last commit.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.applied = self.marked = 0
        super().__init__(optimizer)
        self._hook = optimizer.register_step_post_hook(self._on_step)

    def _on_step(self, *_: object) -> None:
        self.applied += 1
        if self.applied == self.marked + 2:
            warnings.warn(
                "TorchState(every_step=True): optimizer.step() was called twice without "
                "state.commit() in between; after a loss the objects of the state would be older "
                "than its parameters. Call commit() after each step()",
                stacklevel=2,
            )

    def set_value(self, value: Any) -> None:
        """See `StateHandler`."""
        if not applies_whole_steps([value]):
            raise ValueError(
                f"TorchState(every_step=True) copies no parameters, and {type(value).__name__}, "
                "whose ranks take steps of their own, needs copies: make a new TorchState"
            )
        self._hook.remove()
        self._hook = value.register_step_post_hook(self._on_step)
        super().set_value(value)

    @property
    def is_between_steps(self) -> bool:
        """Return whether no gradients wait for a step."""
        return not getattr(self.value, "_holds_gradients", False)

    def save(self) -> None:
        """See `StateHandler`."""
        self.marked = self.applied

    def restore(self) -> None:
        """Drop the gradients of the step that failed."""
        forget = getattr(self.value, "_forget_gradients", None)
        if forget is not None:
            forget()
        self.value.zero_grad()

    def keep(self, overwritten: bool) -> Callable[[], object]:
        """Return a function that undoes a failed `sync`, which leaves the old tensors unchanged."""
        optimizer = self.value
        states = dict(optimizer.state)
        options = [dict(group) for group in optimizer.param_groups]

        def undo() -> None:
            optimizer.state.clear()
            optimizer.state.update(states)
            for group, values in zip(optimizer.param_groups, options, strict=True):
                group.update(values)

        return undo


def applies_whole_steps(values: Iterable[Any]) -> bool:
    """Return whether these objects have one optimizer, which steps only when all ranks can.

    With several optimizers, the model between their steps belongs to no complete step. The same is
    true of ``op=Adasum``, with which ranks combine steps that they have already applied, and of
    `DiLoCo` and `LocalSGD`, whose ranks step alone.

    Raises:
        ValueError: There is no optimizer, or it is LBFGS, whose state cannot be transferred.
    """
    found = [value for value in values if isinstance(value, torch.optim.Optimizer)]
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in found):
        raise ValueError(
            "TorchState(every_step=True) does not fit LBFGS, which asks the other ranks in the "
            "middle of a step. Do without every_step"
        )
    if not found:
        raise ValueError(
            "TorchState(every_step=True) needs an optimizer, whose steps are counted, and got none"
        )
    apart = (_DistributedAdasumOptimizer, OuterOptimizer)
    return len(found) == 1 and not isinstance(found[0], apart)


def in_backward_optimizers(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Return the optimizers that step during backward, one for each parameter.

    They were attached by ``torch.distributed.optim._apply_optimizer_in_backward``.
    """
    lists = [getattr(p, "_in_backward_optimizers", ()) for p in model.parameters()]
    return [optimizer for found in lists for optimizer in found]


def _copy(to: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    if to:
        torch._foreach_copy_(to, values)
