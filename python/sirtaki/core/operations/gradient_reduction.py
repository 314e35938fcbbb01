"""Chooses which gradients of a step are reduced, in which groups, and how."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sirtaki.core import elastic
from sirtaki.core.operations.reduce_ops import Average
from sirtaki.core.operations.reduction import check_predivide
from sirtaki.core.world.participants import size_of
from sirtaki.core.world.process_sets import ProcessSet, global_process_set


@dataclass
class GradientReduction:
    """How the gradients of a step are reduced, and those of which variables.

    A framework's own says how a group of gradients is reduced, and how one is divided.

    Attributes:
        op: Average, Sum or Adasum.
        compression: What is sent in place of gradients; of the framework.
        gradient_predivide_factor: Divides before the sum; the rest of an average is divided after.
        num_groups: In how many operations gradients are sent; 0: in one for each dtype.
        groups: Lists of variables whose gradients are sent together; the others' follow.
        process_set: The ranks that take part; on others gradients stay as they are.
        scale_local_gradients: Whether gradients of local variables are divided by the ranks.
        local: By identity, the variables whose gradients stay on their rank.
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

    def register_local(self, variable: Any) -> None:
        """Keep the gradient of a variable on its rank."""
        self.local[id(variable)] = variable

    def __call__(
        self, gradients: Sequence[Any], variables: Sequence[Any] | None = None
    ) -> list[Any]:
        """Return the reduced gradients; None stays None.

        Ranks outside of the set, and one that is alone in it, keep theirs.

        Args:
            gradients: Of the framework, or None.
            variables: What they are gradients of, where that is known.
        """
        # What is traced while an elastic job has one rank must be right when it has more.
        alone = size_of(self.process_set) == 1 and not elastic.is_elastic()
        if alone or not self.process_set.included():
            return [None if gradient is None else self.kept(gradient) for gradient in gradients]
        results = list(gradients)
        keys = [id(variable) for variable in variables or [None] * len(results)]
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
        """Reduce gradients together."""
        raise NotImplementedError

    def kept(self, gradient: Any) -> Any:
        """Return a gradient that is not reduced, in the form of a reduced one."""
        return gradient

    def divide(self, gradient: Any, divisor: Any) -> Any:
        """Divide a gradient of a local variable."""
        return gradient / divisor

    def divisor(self) -> Any:
        """Return the number of ranks, in a form that `divide` takes."""
        return size_of(self.process_set)

    def goes_alone(self, gradient: Any) -> bool:
        """Tell whether a gradient is of a kind that is not sent together with others."""
        return False

    def reduce_alone(self, gradient: Any, name: str) -> Any:
        """Reduce a gradient that goes alone."""
        raise NotImplementedError

    @property
    def factors(self) -> tuple[float, float]:
        """The factors of gradients before their sum, and after it."""
        return 1.0 / self.gradient_predivide_factor, self.gradient_predivide_factor

    def _scaled(self, gradient: Any) -> Any:
        if not self.scale_local_gradients:
            return gradient
        return self.divide(gradient, self.divisor())

    def _parts(self, places: list[int], keys: list[int]) -> list[list[int]]:
        """Return which gradients are sent together."""
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
            id(variable): number
            for number, group in enumerate(self.groups or ())
            for variable in group
        }
        parts: dict[int, list[int]] = {}
        for place in places:
            parts.setdefault(group_of.get(keys[place], len(self.groups or ())), []).append(place)
        return [parts[number] for number in sorted(parts)]
