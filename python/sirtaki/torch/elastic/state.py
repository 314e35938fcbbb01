"""The state of models, optimizers and samplers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

import torch

from sirtaki.core.world import state as world_state
from sirtaki.elastic.state import ObjectState, Version, require_names, say_uncommitted
from sirtaki.torch.elastic.every_step import (
    KeptModelHandler,
    KeptOptimizerHandler,
    applies_whole_steps,
    in_backward_optimizers,
)
from sirtaki.torch.elastic.handlers import (
    ModelStateHandler,
    OptimizerStateHandler,
    OuterStateHandler,
    PositionStateHandler,
    StateHandler,
)
from sirtaki.torch.elastic.sampler import ElasticSampler
from sirtaki.torch.functions import broadcast_object
from sirtaki.torch.outer.optimizer import OuterOptimizer
from sirtaki.torch.reproducible.parts import Part
from sirtaki.torch.reproducible.randoms import RandomStates
from sirtaki.torch.reproducible.steps import Steps

Registry = list[tuple[type[Any], type[StateHandler]]]
_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (OuterOptimizer, OuterStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, PositionStateHandler),
]

# Horovod's name.
SamplerStateHandler = PositionStateHandler


def get_handler_registry() -> Registry:
    """Return the handlers by type, as pairs; the first match is used."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replace the result of `get_handler_registry`, for states created from now on."""
    global _registry
    _registry = registry


class TorchState(ObjectState):
    """State of PyTorch objects; mirrors ``horovod.torch.elastic.TorchState``.

    Args:
        model: A module, default none.
        optimizer: Its optimizer, default none.
        every_step: Whether `commit`, called after each step, copies no parameters: after a loss,
            those of the newest step are used, which one survivor has completely. Buffers, states of
            random generators and the objects below are copied. Parameters and optimizer state are
            copied too if no rank has a complete step: with several optimizers, with optimizers that
            step during backward, with ``op=Adasum``, `DiLoCo` and `LocalSGD`.
        kwargs: More modules, optimizers and samplers, and any picklable objects; they
            become attributes.
    """

    _parts: Steps
    _outer_steps: list[int]

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        every_step: bool = False,
        **kwargs: Any,
    ) -> None:
        given = {"model": model, "optimizer": optimizer}
        kwargs.update((name, value) for name, value in given.items() if value is not None)
        hidden = _hidden_optimizers(kwargs) if every_step else {}
        kwargs |= hidden
        kept = every_step and applies_whole_steps(kwargs.values()) and not hidden
        object.__setattr__(self, "_every_step", every_step)
        object.__setattr__(self, "_kept", kept)
        object.__setattr__(self, "_parts", Steps())
        # At the last check of host updates.
        object.__setattr__(self, "_outer_steps", [])
        handlers = {n: made for n, value in kwargs.items() if (made := _handler(value, kept))}
        object.__setattr__(self, "_handlers", handlers)
        objects = {name: value for name, value in kwargs.items() if name not in handlers}
        if kept:
            self._steps = _optimizer_of(handlers)
        self._random: RandomStates | None = None
        # The generators' states when a loss was detected: after the next step's forward pass.
        self._ahead: RandomStates | None = None
        super().__init__(broadcast_object, world_state.rank, **objects)

    @overload
    def parts(self) -> Iterator[Part]: ...

    @overload
    def parts(self, loader: Any) -> Iterator[tuple[Part, Any]]: ...

    def parts(self, loader: Any = None) -> Iterator[Any]:
        """Return the parts of the next step that this rank computes.

        The loop ends when all ranks have computed theirs; the parameters then have the gradients of
        the whole step, the same bits on any number of ranks. The state needs an optimizer made with
        ``reproducible=True``, its models, and a `ConstantBatchSampler`. Random numbers and buffers
        belong to the part within ``with part:``. The parts of a step come again if a gradient has
        grown too much for its sum.

        Args:
            loader: A `DataLoader` with the sampler as `batch_sampler`.

        Returns:
            An iterator of `Part`, with a loader of pairs of a part and its batch.

        Raises:
            ValueError: The state lacks something, or ranks differ in their settings.
            RuntimeError: The epoch has no step left, the number of threads has changed, or a rank
                has left the loop of a step before its end.
        """
        values = [handler.value for handler in self._handlers.values()]
        if loader is None:
            return self._parts.parts(values, self)
        return self._parts.batches(values, loader, self)

    @property
    def reported(self) -> dict[str, float]:
        """The means over all parts of the last step of what ``part.report()`` was given."""
        return self._parts.reported

    def on_failure(self, error: Exception) -> None:
        """See `State`."""
        self._parts.failed(error)

    def save(self) -> None:
        """Copy the state into this process's memory; with `every_step`, all but the parameters."""
        if self._kept and not self._steps.is_between_steps:
            return  # these samples' gradients would be lost
        if self._every_step:
            self._random = RandomStates()
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Restore the last saved state; with `every_step`, the last complete step."""
        self._parts.forget()
        if self._every_step:
            self._ahead = RandomStates()
        if self._kept and self._steps.applied != self._steps.marked:
            self._steps.restore()
            say_uncommitted(self._steps.applied)
            return
        if self._random is not None:
            self._random.restore()
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def _version(self) -> Version:
        if not self._kept:
            return super()._version()
        steps = self._steps
        # Objects that match the parameters take precedence over newer parameters.
        return (int(steps.applied == steps.marked), steps.applied, self._commits)

    def _adopt(self, version: Version) -> None:
        if self._kept:
            _, step, commits = version or (0, 0, 0)
            own_step, self._steps.applied = self._steps.marked, step
        else:
            (commits,) = version or (0,)
            own_step, step = self._commits, commits
        if self._ahead is not None and self._random is not None:
            # A rank that is behind has done the forward pass of the step that it receives.
            own = self._random if step == own_step else self._ahead
            own.restore()
        self._ahead = None
        super()._adopt((commits,))

    def _sync_from(self, root: int, version: Version) -> None:
        overwritten = version != self._version()
        kept = (KeptModelHandler, KeptOptimizerHandler)
        found = [each for each in self._handlers.values() if isinstance(each, kept)]
        # If the root is lost during the transfer, this rank's step is needed again.
        undo = [each.keep(overwritten) for each in found] if self._shared else []
        try:
            handlers = self._handlers.values()
            apart = frozenset(param for each in self._outer_handlers() for param in each.params)
            for handler in handlers:
                handler.root_rank = root
                if isinstance(handler, ModelStateHandler):
                    handler.apart = apart
                handler.sync()
            super()._sync_from(root, version)
            self._outer_steps = self._count_outer_steps()
        except BaseException:
            for each in undo:
                each()
            raise

    def check_host_updates(self) -> None:
        """See `State`; ranks exchange nothing between the outer steps of `DiLoCo`."""
        before, self._outer_steps = self._outer_steps, self._count_outer_steps()
        if not self._outer_steps or self._outer_steps != before:
            super().check_host_updates()

    def _count_outer_steps(self) -> list[int]:
        return [each.value.outer_steps for each in self._outer_handlers()]

    def _outer_handlers(self) -> list[OuterStateHandler]:
        return [each for each in self._handlers.values() if isinstance(each, OuterStateHandler)]

    def reset(self) -> None:
        """Adapt samplers to a new world."""
        self._parts.forget()
        for handler in self._handlers.values():
            handler.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the data for a checkpoint: the current state, not the last committed one."""
        values = {name: handler.value for name, handler in self._handlers.items()}
        return super().state_dict() | {
            name: value.state_dict() if hasattr(value, "state_dict") else value
            for name, value in values.items()
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the result of `state_dict`, and commit it."""
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
        elif name in ("model", "optimizer") and (handler := _handler(value, self._kept)):
            self._handlers[name] = handler
        else:
            super().__setattr__(name, value)


_KEPT: dict[type[StateHandler], type[StateHandler]] = {
    ModelStateHandler: KeptModelHandler,
    OptimizerStateHandler: KeptOptimizerHandler,
}


def _handler(value: Any, kept: bool) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return (_KEPT.get(handler, handler) if kept else handler)(value)
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return PositionStateHandler(value)
    return None


def _optimizer_of(handlers: dict[str, StateHandler]) -> KeptOptimizerHandler:
    """Return the optimizer whose steps are counted."""
    (found,) = [each for each in handlers.values() if isinstance(each, KeptOptimizerHandler)]
    return found


def _hidden_optimizers(values: dict[str, Any]) -> dict[str, torch.optim.Optimizer]:
    """Return the optimizers that step during backward in these modules, each under a name."""
    return {
        f"{name}.in_backward.{index}": optimizer
        for name, value in values.items()
        if isinstance(value, torch.nn.Module)
        for index, optimizer in enumerate(in_backward_optimizers(value))
    }
