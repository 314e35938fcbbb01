"""Callbacks for `model.fit`, the same on all backends."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from sirtaki.core.operations.objects import allgather_object
from sirtaki.core.rate_log import RateLog
from sirtaki.core.world import state
from sirtaki.keras.distributed import Distributed
from sirtaki.keras.elastic import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)
from sirtaki.keras.functions import broadcast_global_variables, raise_errors, require_same
from sirtaki.keras.learning_rate import (
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
)
from sirtaki.keras.library import BACKEND, LEGACY, keras
from sirtaki.keras.outer import DiLoCoCallback
from sirtaki.numpy import ops as numpy_ops

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "CommitStateCallback",
    "DiLoCoCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "ProgressBar",
    "RateLogCallback",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Makes all ranks start with the root's weights and optimizer state.

    A model that all ranks have already built gets them before its first step, others after it.

    Args:
        root_rank: The rank whose values are sent, for example after loading a checkpoint there.
        device: Accepted; tensors are exchanged in the host's memory.
        local_variables: Variables that each rank keeps unchanged.
    """

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Iterable[Any] | None = None
    ) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.local_variables = list(local_variables or ())
        self.broadcast_done = False

    def set_model(self, model: Any) -> None:
        """Prepare the model before its functions are built.

        Raises:
            ValueError: Loss scaling is outside of the distributed optimizer.
        """
        super().set_model(model)
        _check_order_of_scaling(getattr(model, "optimizer", None))
        if BACKEND == "tensorflow" and getattr(model, "jit_compile", False):
            _without_jit(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcast the existing variables, if all ranks have them."""
        # A rank may have built its model alone, as for a checkpoint.
        if not self.broadcast_done and all(
            allgather_object(bool(self.model.built), name="keras.built")
        ):
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Broadcast variables built in the first step; raise errors of the step."""
        raise_errors((logs or {}).values())
        self._broadcast()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Raise errors of the last step."""
        if BACKEND == "jax":
            raise_errors(variable.value for variable in self.model.trainable_variables)

    def _broadcast(self) -> None:
        if not self.broadcast_done:
            broadcast_global_variables(self.root_rank, self.model, self.local_variables)
            self.broadcast_done = True


class RateLogCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Lets rank 0 log the speeds of its host's ranks.

    Args:
        log: As for ``RateLog``.
        every: The number of batches between two log entries.
    """

    def __init__(self, log: Any, every: int = 100) -> None:
        super().__init__()
        self._rates = RateLog(log, every)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count a batch, and log when due."""
        self._rates.step()


def _check_order_of_scaling(optimizer: Any) -> None:
    if isinstance(getattr(optimizer, "inner_optimizer", None), Distributed):
        raise ValueError(
            "the model scales the loss outside of its distributed optimizer, so ranks could "
            "disagree whether to take a step; give hvd.DistributedOptimizer("
            "keras.mixed_precision.LossScaleOptimizer(optimizer)) to compile()"
        )


def _without_jit(model: Any) -> None:
    if state.rank() == 0:
        warnings.warn(
            "jit_compile is off: on TensorFlow, XLA does not compile collectives",
            RuntimeWarning,
            stacklevel=2,
        )
    model.jit_compile = False
    if getattr(model, "train_function", None) is not None:
        model.make_train_function(force=True)


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages metrics over the ranks at the end of each epoch.

    Must precede callbacks that use metrics.

    Args:
        device: Accepted; numbers are exchanged in the host's memory.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Replace this rank's metrics by the averages.

        Raises:
            MismatchError: The ranks have different metrics.
        """
        names = sorted(name for name, value in (logs or {}).items() if _is_number(value))
        require_same("metrics", names)
        if not logs or not names:
            return
        own = np.array([float(logs[name]) for name in names])
        averages = numpy_ops.allreduce(own, "keras.metric_averages")
        logs.update(zip(names, averages.tolist(), strict=True))


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number)


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the best model, on rank 0, to the path in the attribute `filepath`.

    Args:
        monitor: The metric that determines the best model.
        verbose: As for `keras.callbacks.ModelCheckpoint`.
        save_weights_only: As for `keras.callbacks.ModelCheckpoint`.
        mode: As for `keras.callbacks.ModelCheckpoint`.
        save_freq: As for `keras.callbacks.ModelCheckpoint`.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(
            filepath="best.weights.h5" if save_weights_only else "best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath: str | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that a path is set.

        Raises:
            ValueError: No path is set.
        """
        if not self.filepath and state.rank() == 0:
            raise ValueError("set the filepath of BestModelCheckpoint before training")
        super().on_train_begin(logs)

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if state.rank() == 0:
            super()._save_model(*args, **kwargs)


class ProgressBar(keras.callbacks.ProgbarLogger):  # type: ignore[misc]
    """The progress bar of `fit`, on rank 0 only; pass it to `fit` as a callback."""

    def __init__(self) -> None:
        super().__init__(**({"count_mode": "steps"} if LEGACY else {}))

    def set_params(self, params: dict[str, Any]) -> None:
        """Disable output on the other ranks."""
        verbose = params["verbose"] if state.rank() == 0 else 0
        super().set_params({**params, "verbose": verbose})
