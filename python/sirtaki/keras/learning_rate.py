"""Callbacks that set the learning rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sirtaki.core.world import state
from sirtaki.keras.functions import synchronise_state
from sirtaki.keras.library import LEGACY, keras


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to `initial_lr` times a multiplier.

    Args:
        initial_lr: The learning rate with a multiplier of 1.
        multiplier: A number, or a function of the epoch, which is fractional without `staircase`.
        start_epoch: The first epoch to which it applies.
        end_epoch: The first epoch to which it no longer applies; None: no end.
        staircase: Whether to set the rate once per epoch instead of in every step.
        momentum_correction: Whether to scale the accumulated momentum with the learning rate, so
            that a step is as long as if the rate had always been the new one.
        steps_per_epoch: Required without `staircase` if Keras does not know it.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[Any], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError(f"{type(self).__name__} needs initial_lr")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self._multiplier = multiplier

    def multiplier(self, epoch: float) -> float:
        """Return the multiplier of an epoch."""
        return self._multiplier(epoch) if callable(self._multiplier) else self._multiplier

    def on_train_begin(self, logs: Any = None) -> None:
        """Determine the number of steps per epoch.

        Raises:
            ValueError: It is required but unknown; or the model has no optimizer.
        """
        if getattr(self.model, "optimizer", None) is None:
            raise ValueError(f"{type(self).__name__} needs a model compiled with an optimizer")
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = _steps_of(self.params)
            if not self.steps_per_epoch:
                raise ValueError(
                    f"{type(self).__name__} needs steps_per_epoch: Keras does not know how many "
                    "steps an epoch has"
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Set the learning rate of the epoch or of its first step."""
        self.current_epoch = epoch
        if self._is_for_epoch() and self.staircase:
            self._set(self.multiplier(epoch))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Set the learning rate of the step."""
        if self._is_for_epoch() and not self.staircase:
            assert self.steps_per_epoch
            self._set(self.multiplier(self.current_epoch + batch / self.steps_per_epoch))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the learning rate."""
        if logs is not None:
            logs["lr"] = _rate(self.model.optimizer)

    def _is_for_epoch(self) -> bool:
        end = float("inf") if self.end_epoch is None else self.end_epoch
        return self.start_epoch <= self.current_epoch < end

    def _set(self, multiplier: float) -> None:
        synchronise_state(self.model)
        optimizer = self.model.optimizer
        old, new = _rate(optimizer), self.initial_lr * multiplier
        if new == old:
            return
        optimizer.learning_rate = new
        if self.momentum_correction and old > 0:
            # The accumulated momentum was multiplied by the old rate. Keras compiles the
            # optimizer's momentum into its step, so it cannot be changed for one step instead.
            _scale(_velocities(optimizer), new / old)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr`, step by step.

    Args:
        initial_lr: The final learning rate.
        warmup_epochs: The number of epochs.
        momentum_correction: As for `LearningRateScheduleCallback`.
        steps_per_epoch: As for `LearningRateScheduleCallback`.
        verbose: Whether rank 0 reports the end of the warmup.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            initial_lr,
            self._rising,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.end_epoch = int(np.ceil(warmup_epochs))
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the learning rate."""
        super().on_epoch_end(epoch, logs)
        if epoch + 1 == self.end_epoch and self.verbose and state.rank() == 0:
            rate = _rate(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")

    def _rising(self, epoch: float) -> float:
        """Return the multiplier of a step, so that the last one has the full rate."""
        assert self.steps_per_epoch
        done = min(1.0, (epoch + 1 / self.steps_per_epoch) / self.warmup_epochs)
        return 1 / state.size() + done * (1 - 1 / state.size())


def _steps_of(params: dict[str, Any]) -> int | None:
    """Return the steps of an epoch, if Keras knows; in graphs of TensorFlow 1 it counts samples."""
    steps, samples, batch = (params.get(each) for each in ("steps", "samples", "batch_size"))
    return steps or (-(-samples // batch) if samples and batch else None)


def _rate(optimizer: Any) -> float:
    rate = optimizer.learning_rate
    return float(keras.backend.get_value(rate) if LEGACY else keras.ops.convert_to_numpy(rate))


def _scale(variables: list[Any], factor: float) -> None:
    if LEGACY:  # also in graphs of TensorFlow 1
        values = keras.backend.batch_get_value(variables)
        scaled = [value * factor for value in values]
        keras.backend.batch_set_value(list(zip(variables, scaled, strict=True)))
    else:
        for variable in variables:
            variable.assign(variable * factor)


def _velocities(optimizer: Any) -> list[Any]:
    """Return the variables in which an optimizer accumulates momentum."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if hasattr(inner, "get_slot"):  # one of Keras 2's legacy optimizers
        return [each for each in inner.weights if each.name.endswith("/momentum:0")]
    if not getattr(inner, "momentum", 0):
        return []
    return getattr(inner, "momentums", None) or getattr(inner, "_momentums", None) or []
