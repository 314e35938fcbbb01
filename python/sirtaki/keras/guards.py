"""Guards against silent faults with Keras: `hvd.guards`; see `sirtaki.checkpoint.Guards`."""

from __future__ import annotations

from typing import Any

from sirtaki.checkpoint import Guards
from sirtaki.core.errors import DivergedError, NotFiniteError
from sirtaki.keras.checkpoint import KerasFramework
from sirtaki.keras.elastic import value_of
from sirtaki.keras.functions import synchronise_state
from sirtaki.keras.library import keras

__all__ = [
    "DivergedError",
    "EqualParametersCallback",
    "NotFiniteError",
    "require_equal",
    "require_finite",
]

_guards = Guards(KerasFramework())
require_equal = _guards.require_equal
require_finite = _guards.require_finite


class EqualParametersCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Compares hashes of the model's variables across ranks while `fit` runs.

    Put it after `BroadcastGlobalVariablesCallback`. Variables that differ per rank by design, such
    as those of `BatchNormalization` without synchronisation, are not compared.

    Args:
        every: The number of steps between two comparisons.
    """

    def __init__(self, every: int = 100) -> None:
        super().__init__()
        self.every = every
        self._steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Compare if due.

        Raises:
            DivergedError: Ranks differ from most others.
        """
        self._steps += 1
        if self._steps % self.every == 0:
            synchronise_state(self.model)
            variables = self.model.trainable_variables
            require_equal([value_of(variable) for variable in variables])
