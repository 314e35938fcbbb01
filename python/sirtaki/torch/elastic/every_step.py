"""States that are never older than a step, although nobody copies parameters.

A rank applies a step only when all ranks have given their gradients, so its parameters and its
optimizer's state are those of a whole step at any time when the loss of a peer can be noticed.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from sirtaki.torch.elastic.handlers import ModelStateHandler, OptimizerStateHandler
from sirtaki.torch.gradients.adasum_optimizer import _DistributedAdasumOptimizer


class KeptModelHandler(ModelStateHandler):
    """Copies of a module only its buffers, which the forward pass changes."""

    _saved: list[torch.Tensor]

    def __init__(self, model: torch.nn.Module) -> None:
        self._saved = []
        super().__init__(model)

    def save(self) -> None:
        """See `StateHandler`."""
        found = list(self.value.buffers())
        if _alike(self._saved, found):
            with torch.no_grad():
                _copy(self._saved, found)
        else:
            self._saved = [each.detach().clone() for each in found]

    def restore(self) -> None:
        """See `StateHandler`."""
        with torch.no_grad():
            _copy(list(self.value.buffers()), self._saved)

    def keep(self, overwritten: bool) -> Callable[[], object]:
        """Return what undoes a `sync` that fails. overwritten: it brings other parameters."""
        if not overwritten:
            return lambda: None
        kept = copy.deepcopy(self.value.state_dict())
        return lambda: self.value.load_state_dict(kept)


class KeptOptimizerHandler(OptimizerStateHandler):
    """Counts the steps of an optimizer and copies nothing.

    Attributes:
        applied: How many steps the parameters have had.
        marked: How many they had had at the last commit.

    Raises:
        ValueError: The optimizer does not apply whole steps.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        _require_whole_steps(optimizer)
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
        _require_whole_steps(value)
        self._hook.remove()
        self._hook = value.register_step_post_hook(self._on_step)
        super().set_value(value)

    @property
    def is_between_steps(self) -> bool:
        """Whether no gradients wait for a step."""
        reducer = getattr(self.value, "_reducer", None)
        return reducer is None or not reducer.busy

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
        """Return what undoes a `sync` that fails; it makes new tensors, so the old ones stay."""
        optimizer = self.value
        states = dict(optimizer.state)
        options = [dict(group) for group in optimizer.param_groups]

        def undo() -> None:
            optimizer.state.clear()
            optimizer.state.update(states)
            for group, values in zip(optimizer.param_groups, options, strict=True):
                group.update(values)

        return undo


class RandomStates:
    """Where the random generators of this process stand: of Python, NumPy and PyTorch."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state()
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None

    def restore(self) -> None:
        """Have the generators go on from there."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)


def _require_whole_steps(optimizer: torch.optim.Optimizer) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if any(getattr(p, "_in_backward_optimizers", None) for p in parameters):
        why = "the optimizer applies gradients within backward, before all ranks have given theirs"
    elif isinstance(optimizer, _DistributedAdasumOptimizer):
        why = "with op=Adasum ranks combine their steps after they have applied them"
    elif isinstance(optimizer, torch.optim.LBFGS):
        why = "LBFGS asks the other ranks in the middle of a step"
    else:
        return
    raise ValueError(
        f"TorchState(every_step=True) does not fit: {why}. Do without every_step, and call "
        "commit(), which copies parameters and optimizer state, as often as you can afford"
    )


def _alike(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return [(t.shape, t.dtype, t.device) for t in left] == [
        (t.shape, t.dtype, t.device) for t in right
    ]


def _copy(to: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    if to:
        torch._foreach_copy_(to, values)
