"""The state of models, optimizers and samplers."""

from __future__ import annotations

import copy
from typing import Any

import torch

from sirtaki.core.world import state as world_state
from sirtaki.elastic import ObjectState
from sirtaki.elastic.state import require_names
from sirtaki.torch.elastic.sampler import ElasticSampler
from sirtaki.torch.functions import broadcast_object, broadcast_parameters
from sirtaki.torch.gradients.optimizer_state import broadcast_optimizer_state


class StateHandler:
    """Saves, restores and synchronizes a value of one type, for `TorchState`.

    Args:
        value: Looked after from now on.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keep a copy of the value in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Return to the copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give all ranks the value of rank 0; `save` follows when all values are there."""
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
        broadcast_parameters(self.value.state_dict(), root_rank=0)


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
        broadcast_optimizer_state(self.value, root_rank=0)


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
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank=0))

    def reset(self) -> None:
        """See `StateHandler`."""
        if hasattr(self.value, "reset"):
            self.value.reset()


Registry = list[tuple[type[Any], type[StateHandler]]]
_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, PositionStateHandler),
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

    def sync(self) -> None:
        """Give all ranks the state of rank 0."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        """Adapt samplers to a new world."""
        for handler in self._handlers.values():
            handler.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint saves: all of the state as it is, not as last committed."""
        values = {name: handler.value for name, handler in self._handlers.items()}
        return super().state_dict() | {
            name: value.state_dict() if hasattr(value, "state_dict") else value
            for name, value in values.items()
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` returned, and commit it."""
        require_names([*self._saved_state, *self._handlers], state_dict)
        for name, handler in self._handlers.items():
            if hasattr(handler.value, "load_state_dict"):
                handler.value.load_state_dict(state_dict[name])
            else:
                handler.value = state_dict[name]
            handler.save()
        super().load_state_dict({name: state_dict[name] for name in self._saved_state})

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
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return PositionStateHandler(value)
    return None
