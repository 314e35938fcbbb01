"""Classes that make an optimizer reduce gradients over the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sirtaki.keras.library import LEGACY, keras

# The optimizer's own class follows these among its subclass's bases.
_Stock: Any = object


class Distributed(_Stock):  # type: ignore[misc]
    """The additions of a distributed optimizer to its class."""

    _sirtaki_step: Any  # the backend's `Step`

    def _sirtaki_attached(self) -> None:
        """Called once, when the optimizer has just become distributed."""

    def register_local_var(self, var: Any) -> None:
        """Keep gradients of a variable, a layer, or lists of these on their rank."""
        self._sirtaki_step.reduction.register_local(var)


class Keras3Optimizer(Distributed):
    """An optimizer of Keras 3; pickled and saved as its own class."""

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> Any:
        """Reduce gradients over the ranks and apply them."""
        variables = self._sirtaki_built(trainable_variables)
        own = super().apply
        return self._sirtaki_step.apply(grads, variables, lambda found: own(found, variables))

    def _sirtaki_built(self, given: Sequence[Any] | None) -> list[Any]:
        """Create the optimizer's variables if necessary; return those that it trains."""
        if given is None:
            return list(self._trainable_variables)
        build(self, list(given))
        return list(given)

    def __reduce__(self) -> tuple[Any, ...]:
        stock: Any = stock_class(self)
        _, arguments = stock.__reduce__(self)
        return stock._unpickle_model, arguments


def build(optimizer: Any, variables: list[Any]) -> None:
    """Create an optimizer's own variables, if it has none yet.

    Args:
        optimizer: An optimizer of Keras 3, or of either kind in Keras 2.
        variables: The variables that it trains.
    """
    if hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(variables)
    elif LEGACY:
        optimizer.build(variables)
    elif not optimizer.built:
        with keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(variables)


def stock_class(optimizer: Any) -> type:
    """Return the class of an optimizer before it was distributed."""
    return next(cls for cls in type(optimizer).__mro__ if not issubclass(cls, Distributed))


def distribute(optimizer: Any, mixin: type, module: str, step: Any) -> None:
    """Replace an optimizer's class by a subclass with the same name.

    Args:
        optimizer: The optimizer, which is changed.
        mixin: The additional base of the subclass, derived from `Distributed`.
        module: The module where saved models look for the class.
        step: Its additional work in a step: the backend's `Step`.
    """
    cls = type(optimizer)
    optimizer.__class__ = type(cls.__name__, (mixin, cls), {"__module__": module})
    optimizer._sirtaki_step = step
    optimizer._sirtaki_attached()


def variables_of(optimizer: Any) -> list[Any]:
    """Return the variables of an optimizer, among them its learning rate if that is one."""
    found = optimizer.variables
    found = list(found if isinstance(found, list | tuple) else found())
    rate = optimizer.learning_rate
    # Keras 2 does not list its learning rate among the variables.
    if hasattr(rate, "assign") and all(rate is not each for each in found):
        found.append(rate)
    return found
