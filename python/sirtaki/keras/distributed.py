"""What makes an optimizer's class reduce gradients over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sirtaki.core.gradient_reduction import GradientReduction
from sirtaki.keras.library import LEGACY, keras


class Step(Protocol):
    """What a distributed optimizer does in a step besides its own work."""

    reduction: GradientReduction

    def apply(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        apply: Callable[[list[Any]], Any],
    ) -> Any:
        """Reduce gradients and apply them; or, while passes are added up, only add.

        Args:
            gradients: Of this pass, on this rank.
            variables: What they are gradients of.
            apply: The optimizer's own work.
        """


class Distributed:
    """What a distributed optimizer has besides what its class has."""

    _sirtaki_step: Step

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of a variable on its rank."""
        self._sirtaki_step.reduction.register_local(var)


class Keras3Optimizer(Distributed):
    """An optimizer of Keras 3; pickled and saved, it is one of its own class."""

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        """Reduce gradients over the ranks and apply them."""
        self._sirtaki_build(trainable_variables)
        variables = self._sirtaki_variables(trainable_variables)
        own = super().apply  # type: ignore[misc]
        return self._sirtaki_step.apply(grads, variables, lambda found: own(found, variables))

    def _sirtaki_variables(self, given: Sequence[Any] | None) -> list[Any]:
        return list(self._trainable_variables if given is None else given)  # type: ignore[attr-defined]

    def _sirtaki_build(self, variables: Sequence[Any] | None) -> None:
        if variables is not None:
            build(self, list(variables))

    def __reduce__(self) -> tuple[Any, ...]:
        stock: Any = stock_class(self)
        _, arguments = stock.__reduce__(self)
        return stock._unpickle_model, arguments


def build(optimizer: Any, variables: list[Any]) -> None:
    """Make an optimizer's own variables, if it has none yet.

    Args:
        optimizer: Of Keras 3, or one of the two kinds of Keras 2.
        variables: What it is to train.
    """
    if hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(variables)
    elif LEGACY:
        optimizer.build(variables)
    elif not optimizer.built:
        with keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(variables)


def stock_class(optimizer: Any) -> type:
    """Return the class that an optimizer had before it was distributed."""
    return next(cls for cls in type(optimizer).__mro__ if not issubclass(cls, Distributed))


def distribute(optimizer: Any, mixin: type, module: str, step: Step) -> None:
    """Give an optimizer a subclass of its class, with the same name.

    Args:
        optimizer: Is changed.
        mixin: What the subclass has besides; a subclass of `Distributed`.
        module: Where saved models are to look for the class.
        step: What it does.
    """
    cls = type(optimizer)
    optimizer.__class__ = type(cls.__name__, (mixin, cls), {"__module__": module})
    optimizer._sirtaki_step = step
