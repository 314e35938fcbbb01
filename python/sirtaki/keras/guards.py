"""Guards against silent faults with Keras: `hvd.guards`; see `sirtaki.checkpoint.Guards`."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from sirtaki.checkpoint import Array, Guards
from sirtaki.checkpoint.guards import named_variables
from sirtaki.core.errors import DivergedError, NotFiniteError
from sirtaki.keras.checkpoint import KerasFramework
from sirtaki.keras.elastic import value_of
from sirtaki.keras.functions import synchronise_state
from sirtaki.keras.library import LEGACY, keras

__all__ = [
    "DivergedError",
    "EqualParametersCallback",
    "NotFiniteError",
    "require_equal",
    "require_finite",
]


class _Guarded(KerasFramework):
    """Guards look at tensors and variables, too, which are no part of checkpoints."""

    def capture(self, value: Any) -> Any:
        if not isinstance(value, keras.Model):
            return named_variables(value) or super().capture(value)
        # A model comes with its optimizer, whose variables follow.
        arrays = super().capture(value)["variables"]
        names = [f" ({getattr(each, 'path', each.name)})" for each in value.variables]
        named = zip_longest(names, arrays, fillvalue="")
        return {f"variables[{i}]{name}": array for i, (name, array) in enumerate(named)}

    def is_object(self, value: Any) -> bool:
        return hasattr(value, "variables") or super().is_object(value)

    def is_array(self, leaf: Any) -> bool:
        return _is_tensor(leaf) or super().is_array(leaf)

    def is_finite(self, leaf: Any) -> bool:
        return super().is_finite(value_of(leaf) if _is_tensor(leaf) else leaf)

    def to_host(self, leaf: Any) -> Array:
        array: Array = super().to_host(value_of(leaf) if _is_tensor(leaf) else leaf)
        return array


def _is_tensor(leaf: Any) -> bool:
    if LEGACY:
        return hasattr(leaf, "numpy")
    return isinstance(leaf, keras.Variable) or bool(keras.ops.is_tensor(leaf))


_guards = Guards(_Guarded())
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
