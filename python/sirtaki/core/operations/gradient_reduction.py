"""Selects which gradients of a step are reduced, in which groups, and how."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.operations.reduction import check_predivide
from sirtaki.core.world.participants import reduces, size_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set


def local_variables(local: Any) -> list[Any]:
    """Return the variables of layers, and variables themselves, also from lists of them.

    Args:
        local: A layer, a variable, a reference to one, or a list or tuple of these; None for none.

    Raises:
        ValueError: Something is neither a layer nor a variable, or a layer has no variables yet.
    """
    if local is None:
        return []
    if isinstance(local, list | tuple | set | frozenset):
        return [variable for each in local for variable in local_variables(each)]
    if hasattr(local, "deref"):
        local = local.deref()
    if hasattr(local, "assign"):
        return [local]
    if not hasattr(local, "trainable_variables"):
        cure = ": give model.get_layer(name)" if isinstance(local, str) else ""
        raise ValueError(f"{local!r} is neither a layer nor a variable that can stay local{cure}")
    if not getattr(local, "built", local.variables):
        raise ValueError(
            f"the local layer {local.name} has no variables yet; build the model before"
        )
    return list(local.variables)


@dataclass
class GradientReduction:
    """How the gradients of a step are reduced, and of which variables.

    A framework's subclass implements how a group of gradients is reduced, and how one is divided.

    Attributes:
        op: Average, Sum or Adasum.
        compression: The framework's compression of sent gradients.
        gradient_predivide_factor: The part of an average's divisor applied before the sum.
        num_groups: The number of operations that send gradients; 0: one per dtype.
        groups: Lists of variables whose gradients are sent together; the rest are sent after them.
        process_set: The ranks that take part; on others gradients are unchanged.
        scale_local_gradients: Whether to divide local variables' gradients by the number of ranks.
        local: The keys (`key_of`) of variables whose gradients stay on their rank.
    """

    op: int = Average
    compression: Any = None
    gradient_predivide_factor: float = 1.0
    num_groups: int = 0
    groups: Sequence[Sequence[Any]] | None = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    local: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_predivide(self.gradient_predivide_factor, self.op)
        if isinstance(self.groups, int):
            self.num_groups, self.groups = self.groups, None
        if self.num_groups < 0:
            raise ValueError(f"num_groups={self.num_groups} must not be negative")

    def register_local(self, local: Any) -> None:
        """Keep gradients of a variable, a layer, or lists of these on their rank.

        Raises:
            ValueError: As for `local_variables`.
        """
        for variable in local_variables(local):
            self.local[self.key_of(variable)] = variable

    def key_of(self, variable: Any) -> int:
        """Return a key that is equal for all forms of a variable."""
        return id(variable)

    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any] | None = None
    ) -> list[Any]:
        """Return the reduced gradients; None stays None.

        Ranks outside of the set, and a rank alone in it, keep their gradients.

        Args:
            gradients: The framework's tensors, or None.
            variables: Their variables, if known.
        """
        if not reduces(self.process_set):
            return [None if gradient is None else self.kept(gradient) for gradient in gradients]
        results = list(gradients)
        keys = [self.key_of(variable) for variable in variables or [None] * len(results)]
        shared = []
        for place, gradient in enumerate(results):
            if gradient is None:
                continue
            if variables is not None and keys[place] in self.local:
                results[place] = self._scaled(gradient)
            elif self.goes_alone(gradient):
                results[place] = self.reduce_alone(gradient, f"gradient.{place}")
            else:
                shared.append(place)
        for number, places in enumerate(self._parts(shared, keys)):
            parts = [results[place] for place in places]
            reduced = self.reduce(parts, f"gradients.{number}")
            for place, result in zip(places, reduced, strict=True):
                results[place] = result
        return results

    def reduce(self, gradients: list[Any], name: str) -> list[Any]:
        """Reduce gradients in one group."""
        raise NotImplementedError

    def kept(self, gradient: Any) -> Any:
        """Return an unreduced gradient in the form of a reduced one."""
        return gradient

    def divide(self, gradient: Any, divisor: Any) -> Any:
        """Divide a gradient of a local variable."""
        return gradient / divisor

    def divisor(self) -> Any:
        """Return the number of ranks, in a form that `divide` takes."""
        return size_of(self.process_set)

    def goes_alone(self, gradient: Any) -> bool:
        """Return whether a gradient's kind cannot be sent together with others."""
        return False

    def reduce_alone(self, gradient: Any, name: str) -> Any:
        """Reduce a gradient that is sent alone."""
        raise NotImplementedError

    def reduce_by(
        self, grouped_allreduce: Callable[..., list[Any]], gradients: list[Any], name: str | None
    ) -> list[Any]:
        """Reduce gradients in one group by a framework's function."""
        return grouped_allreduce(
            gradients,
            op=self.op,
            name=name,
            prescale_factor=1.0 / self.gradient_predivide_factor,
            postscale_factor=self.gradient_predivide_factor,
            process_set=self.process_set,
            compression=self.compression,
        )

    def _scaled(self, gradient: Any) -> Any:
        if not self.scale_local_gradients:
            return gradient
        return self.divide(gradient, self.divisor())

    def _parts(self, places: list[int], keys: list[int]) -> list[list[int]]:
        """Return the groups of gradients that are sent together."""
        if self.groups is not None:
            return self._grouped(places, keys)
        count = min(self.num_groups or 1, len(places))
        if count == 0:
            return []
        each, more = divmod(len(places), count)
        ends = [0]
        for part in range(count):
            ends.append(ends[-1] + each + (part < more))
        return [places[a:b] for a, b in itertools.pairwise(ends)]

    def _grouped(self, places: list[int], keys: list[int]) -> list[list[int]]:
        group_of = {
            self.key_of(variable): number
            for number, group in enumerate(self.groups or ())
            for variable in group
        }
        parts: dict[int, list[int]] = {}
        for place in places:
            parts.setdefault(group_of.get(keys[place], len(self.groups or ())), []).append(place)
        return [parts[number] for number in sorted(parts)]
