"""What looks after the models, optimizers and samplers of a state."""

from __future__ import annotations

import copy
from typing import Any

import torch

from sirtaki.torch.functions import broadcast_object, broadcast_parameters
from sirtaki.torch.gradients.optimizer_state import broadcast_optimizer_state


class StateHandler:
    """Saves, restores and synchronizes a value of one type, for `TorchState`.

    Args:
        value: Looked after from now on.

    Attributes:
        root_rank: The rank whose value `sync` gives to all, set before each call.
    """

    root_rank = 0

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keep a copy of the value in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Return to the copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give all ranks the value of `root_rank`; `save` follows when all values are there."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt to a new world."""

    def set_value(self, value: Any) -> None:
        """Look after another value from now on."""
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    """Looks after a ``torch.nn.Module``."""

    _saved: Any = None

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.save()

    def save(self) -> None:
        """See `StateHandler`."""
        self._saved = renewed(self._saved, self.value.state_dict())

    def restore(self) -> None:
        """See `StateHandler`."""
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        """See `StateHandler`."""
        broadcast_parameters(self.value.state_dict(), self.root_rank)


class OptimizerStateHandler(StateHandler):
    """Looks after a ``torch.optim.Optimizer``, wrapped in `DistributedOptimizer` or not."""

    _saved: Any = None

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.save()

    def save(self) -> None:
        """See `StateHandler`."""
        self._saved = renewed(self._saved, self.value.state_dict())

    def restore(self) -> None:
        """See `StateHandler`."""
        # The optimizer may keep the tensors that it is given.
        self.value.load_state_dict(copy.deepcopy(self._saved))
        # Those of the step that failed are not to be added to those of the next.
        self.value.zero_grad()

    def sync(self) -> None:
        """See `StateHandler`."""
        broadcast_optimizer_state(self.value, self.root_rank)


class PositionStateHandler(StateHandler):
    """Looks after what has `state_dict`, `load_state_dict` and perhaps `reset`.

    So do samplers, loaders of any kind, and schedulers of learning rates.
    """

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        """See `StateHandler`."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """See `StateHandler`."""
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """See `StateHandler`."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), self.root_rank))

    def reset(self) -> None:
        """See `StateHandler`."""
        if hasattr(self.value, "reset"):
            self.value.reset()


def renewed(copied: Any, value: Any) -> Any:
    """Return a copy of a value, in the memory of an earlier copy where that fits."""
    if isinstance(value, torch.Tensor) and isinstance(copied, torch.Tensor):
        if alike([copied], [value]):
            return copied.copy_(value.detach())
    elif isinstance(value, dict) and isinstance(copied, dict) and value.keys() == copied.keys():
        for key in value:
            copied[key] = renewed(copied[key], value[key])
        return copied
    return copy.deepcopy(value)


def alike(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    """Return whether tensors can be copied into others without changing these."""
    return [(t.shape, t.dtype, t.device) for t in left] == [
        (t.shape, t.dtype, t.device) for t in right
    ]
