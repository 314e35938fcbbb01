"""The state of models, optimizers and samplers."""

from __future__ import annotations

import copy
from typing import Any

import torch

from sirtaki.core.world import state as world_state
from sirtaki.elastic.state import ObjectState, Version
from sirtaki.torch.elastic.sampler import ElasticSampler
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

    def sync(self) -> None:
        """See `StateHandler`."""
        broadcast_optimizer_state(self.value, self.root_rank)


class SamplerStateHandler(StateHandler):
    """Looks after an `ElasticSampler`."""

    def __init__(self, sampler: ElasticSampler) -> None:
        super().__init__(sampler)
        self.save()

    def save(self) -> None:
        """See `StateHandler`."""
        self._saved = self.value.state_dict()

    def restore(self) -> None:
        """See `StateHandler`."""
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        """See `StateHandler`."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), self.root_rank))

    def reset(self) -> None:
        """See `StateHandler`."""
        self.value.reset()


Registry = list[tuple[type[Any], type[StateHandler]]]
_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Return which handler looks after which type: pairs, of which the first that fits counts."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replace what `get_handler_registry` returns, for states that are made from now on."""
    global _registry
    _registry = registry


class TorchState(ObjectState):
    """State of PyTorch's objects, mirrors ``horovod.torch.elastic.TorchState``.

    Args:
        model: A module, default none.
        optimizer: Its optimizer, default none.
        kwargs: More modules, optimizers and samplers, and any objects that can be pickled; they
            become attributes.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"model": model, "optimizer": optimizer}
        kwargs.update((name, value) for name, value in given.items() if value is not None)
        handlers = {name: handler for name, value in kwargs.items() if (handler := _handler(value))}
        object.__setattr__(self, "_handlers", handlers)
        objects = {name: value for name, value in kwargs.items() if name not in handlers}
        super().__init__(broadcast_object, world_state.rank, **objects)

    def save(self) -> None:
        """Copy the state into this process's memory."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Return to what was saved last."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def _sync_from(self, root: int, version: Version) -> None:
        for handler in self._handlers.values():
            handler.root_rank = root
            handler.sync()
        super()._sync_from(root, version)

    def reset(self) -> None:
        """Adapt samplers to a new world."""
        for handler in self._handlers.values():
            handler.reset()

    def __getattr__(self, name: str) -> Any:
        handlers: dict[str, StateHandler] = self.__dict__.get("_handlers", {})
        if name in handlers:
            return handlers[name].value
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._handlers:
            self._handlers[name].set_value(value)
        elif name in ("model", "optimizer") and (handler := _handler(value)):
            self._handlers[name] = handler
        else:
            super().__setattr__(name, value)


def _handler(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None
