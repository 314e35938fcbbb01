"""Handlers of the models, optimizers and samplers of a state."""

from __future__ import annotations

import copy
from typing import Any

import torch

from sirtaki.torch.functions import broadcast_object, broadcast_parameters
from sirtaki.torch.gradients.optimizer_state import broadcast_optimizer_state


class StateHandler:
    """Saves, restores and synchronizes a value of one type, for `TorchState`.

    Args:
        value: The value to manage.

    Attributes:
        root_rank: The rank whose value `sync` sends to all; set before each call.
    """

    root_rank = 0

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keep a copy of the value in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restore the copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Send all ranks the value of `root_rank`; `save` follows once all values have arrived."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt to a new world."""

    def set_value(self, value: Any) -> None:
        """Manage another value from now on."""
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    """Manages a ``torch.nn.Module``.

    Attributes:
        apart: Parameters that differ among ranks, which `sync` leaves alone; set before each call.
    """

    apart: frozenset[torch.Tensor] = frozenset()
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
        named = self.value.named_parameters(remove_duplicate=False)
        apart = {name for name, param in named if param in self.apart}
        values = {k: v for k, v in self.value.state_dict().items() if k not in apart}
        broadcast_parameters(values, self.root_rank)


class OptimizerStateHandler(StateHandler):
    """Manages a ``torch.optim.Optimizer``, wrapped in `DistributedOptimizer` or not."""

    _saved: Any = None

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.save()

    def save(self) -> None:
        """See `StateHandler`."""
        self._saved = renewed(self._saved, self.value.state_dict())

    def restore(self) -> None:
        """See `StateHandler`."""
        # The optimizer may keep the tensors passed to it.
        self.value.load_state_dict(copy.deepcopy(self._saved))
        # Gradients of the failed step must not be added to those of the next.
        self.value.zero_grad()

    def sync(self) -> None:
        """See `StateHandler`."""
        broadcast_optimizer_state(self.value, self.root_rank)


class OuterStateHandler(OptimizerStateHandler):
    """Manages a `DiLoCo` or `LocalSGD` optimizer, whose ranks have parameters of their own."""

    @property
    def params(self) -> list[torch.Tensor]:
        """The parameters that it trains."""
        return [param for group in self.value.param_groups for param in group["params"]]

    def sync(self) -> None:
        """See `StateHandler`."""
        self.value.rejoin(self.root_rank)


class PositionStateHandler(StateHandler):
    """Manages objects with `state_dict`, `load_state_dict` and possibly `reset`.

    These are samplers, loaders of any kind, and learning rate schedulers.
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
    """Return a copy of a value, in the memory of an earlier copy if it fits."""
    if isinstance(value, torch.Tensor) and isinstance(copied, torch.Tensor):
        if alike([copied], [value]):
            return copied.copy_(value.detach())
    elif isinstance(value, dict) and isinstance(copied, dict) and value.keys() == copied.keys():
        for key in value:
            copied[key] = renewed(copied[key], value[key])
        return copied
    return copy.deepcopy(value)


def alike(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    """Return whether tensors match others in shape, dtype and device."""
    return [(t.shape, t.dtype, t.device) for t in left] == [
        (t.shape, t.dtype, t.device) for t in right
    ]
