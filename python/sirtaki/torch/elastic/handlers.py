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

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.save()

    def save(self) -> None:
        """See `StateHandler`."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """See `StateHandler`."""
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        """See `StateHandler`."""
        broadcast_parameters(self.value.state_dict(), self.root_rank)


class OptimizerStateHandler(StateHandler):
    """Looks after a ``torch.optim.Optimizer``, wrapped in `DistributedOptimizer` or not."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.save()

    def save(self) -> None:
        """See `StateHandler`."""
        self._saved = copy.deepcopy(self.value.state_dict())

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
