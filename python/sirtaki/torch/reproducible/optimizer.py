"""An optimizer whose gradients are exact sums over the parts of a step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from sirtaki.core.operations.reduce_ops import Average, Sum
from sirtaki.torch.gradients.wrapping import Wrapper, adopt
from sirtaki.torch.reproducible.sums import GradientSum

# Beside the parameters' states in the state of the optimizer, and so in its checkpoints.
_KEY = "reproducible"


class Loop(Protocol):
    """A loop over the parts of a step."""

    @property
    def is_done(self) -> bool:
        """Whether the gradients of all parts are combined."""

    def abandon(self) -> None:
        """Raise RuntimeError on all ranks."""


class _ReproducibleOptimizer(Wrapper):
    """Mixed into the class of the wrapped optimizer, whose state it shares."""

    _sums: list[GradientSum]
    _op: int
    # The exponents that the gradients suggest for the next step; None: there are no gradients.
    _next: list[int | None] | None
    _loop: weakref.ref[Loop] | None

    @property
    def sums(self) -> list[GradientSum]:
        """The sums of the gradients, for `state.parts()`."""
        return self._sums

    @property
    def averages(self) -> bool:
        """Whether the sum is divided by the number of parts."""
        return self._op == Average

    @property
    def kept(self) -> Mapping[str, Any]:
        """What one step leaves for the next: exponents, and the number of threads."""
        given: Mapping[str, Any] = self.state.get(_KEY, {})  # type: ignore[call-overload]
        if len(given.get("exponents", self._sums)) != len(self._sums):
            raise ValueError(
                f"the loaded state of a reproducible optimizer is for {len(given['exponents'])} "
                f"parameters, and the optimizer has {len(self._sums)}: load the state of this model"
            )
        return given

    def begin(self, loop: Loop) -> None:
        """Note that a loop has begun."""
        self._next, self._loop = None, weakref.ref(loop)

    def accept(self, exponents: list[int | None]) -> None:
        """Note that the parameters have the gradients of a whole step."""
        self._next = exponents

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raise ValueError: the parameters are known when the optimizer is made."""
        raise ValueError(
            "a reproducible optimizer takes no more parameters: add the group before "
            "DistributedOptimizer(..., reproducible=True)"
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state, and drop the gradients."""
        self._forget_gradients()
        super().load_state_dict(state_dict)

    def _forget_gradients(self) -> None:
        self._next = self._loop = None

    @property
    def _holds_gradients(self) -> bool:
        return self._next is not None

    def synchronize(self) -> None:
        """Check that the gradients are complete; `state.parts()` has exchanged them.

        Raises:
            RuntimeError: The loop over `state.parts()` has not ended.
        """
        if self._next is None:
            loop = None if self._loop is None else self._loop()
            if loop is not None and not loop.is_done:
                loop.abandon()
            raise RuntimeError(
                "a reproducible optimizer steps with the gradients of a whole loop `for part in "
                "state.parts()`, and there was none since the last step: compute gradients "
                "within `with part:`, and call step() after the loop"
            )

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Do nothing: `step` never waits."""
        yield

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do the wrapped optimizer's step with the gradients of all parts.

        Raises:
            ValueError: There is a closure.
            RuntimeError: The loop over `state.parts()` has not ended.
        """
        if closure is not None:
            raise ValueError("a reproducible optimizer takes no closure: compute in parts")
        self.synchronize()
        result = super().step()
        kept = {"exponents": self._next, "threads": torch.get_num_threads()}
        self.state[_KEY] = kept  # type: ignore[index]
        self._next = None
        return result


# Without this mark, torch wraps `step` to run hooks that the inner step already runs.
_ReproducibleOptimizer.step.hooked = True  # type: ignore[attr-defined]


def reproducible_optimizer(
    optimizer: torch.optim.Optimizer,
    names: Mapping[torch.Tensor, str],
    op: int,
    refused: Mapping[str, bool],
) -> torch.optim.Optimizer:
    """Return the optimizer for `state.parts()`.

    Args:
        optimizer: The one to wrap.
        names: Of its parameters.
        op: Average, of the parts, or Sum.
        refused: Whether an option was given that does not fit, by name.

    Raises:
        TypeError: Gradients of a parameter cannot be added exactly.
        ValueError: An option does not fit.
    """
    wrong = [name for name, given in refused.items() if given]
    if op not in (Average, Sum):
        wrong.append("op other than Average and Sum")
    if isinstance(optimizer, torch.optim.LBFGS):
        wrong.append("LBFGS")
    if wrong:
        raise ValueError(
            f"reproducible=True cannot be used with {', '.join(wrong)}: each gradient is rounded "
            "once, sent as 64-bit integers, and combined by state.parts()"
        )
    params = [p for group in optimizer.param_groups for p in group["params"]]
    sums = [GradientSum(p, names[p]) for p in params]
    distributed = adopt(optimizer, _ReproducibleOptimizer)
    distributed._sums = sums
    distributed._op = op
    distributed._forget_gradients()
    return distributed


def is_reproducible(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer takes its gradients from `state.parts()`."""
    return isinstance(optimizer, _ReproducibleOptimizer)
