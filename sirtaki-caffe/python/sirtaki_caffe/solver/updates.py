"""The weight updates of the six types of solver."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, ClassVar

import torch

from sirtaki_caffe.errors import FieldError, suggestion
from sirtaki_caffe.layers.base import Param

Tensors = list[torch.Tensor]
Log = Callable[[str, str], None]


class Update(abc.ABC):
    """The conversion of gradients to updates by a type of solver.

    Afterwards each param's gradient contains the value subtracted from it, as in Caffe.

    Args:
        param: A SolverParameter.
        params: The learnable params, each once; those with an lr_mult of 0 stay unchanged.
        log: Called with the name of a source file and a line about an event.

    Raises:
        CaffeError: A field of the solver is out of range.
    """

    #: The number of history tensors for each param.
    histories: ClassVar[int] = 1

    def __init__(self, param: Any, params: Sequence[Param], log: Log) -> None:
        self._param = param
        self._params = list(params)
        self._log = log
        self.check()
        #: The history of each param in order; then the second tensors, if any.
        self.history = [torch.zeros_like(p.data) for _ in range(self.histories) for p in params]

    def check(self) -> None:
        """Check for fields that are out of range."""
        if self._param.regularization_type not in ("L1", "L2"):
            raise FieldError(
                "regularization_type",
                f"regularization_type: unknown type '{self._param.regularization_type}' "
                "(known: L1, L2)",
            )

    def _no_momentum(self) -> None:
        if self._param.momentum != 0:
            raise FieldError("momentum", f"momentum: cannot be used with {self._param.type}")

    @torch.no_grad()
    def compute(self, rate: float, iteration: int) -> None:
        """Convert the gradients to the values to subtract from the params.

        Args:
            rate: The learning rate of this iteration.
            iteration: The number of completed iterations.
        """
        learning = [i for i, p in enumerate(self._params) if p.learns]
        params = [self._params[i] for i in learning]
        if not params:
            return
        count = len(self._params)
        history = [[self.history[k * count + i] for i in learning] for k in range(self.histories)]
        weights, gradients = [p.data for p in params], [_diff(p) for p in params]
        self._clip(gradients)
        if self._param.iter_size != 1:
            torch._foreach_mul_(gradients, 1.0 / self._param.iter_size)
        rates = self._rates(rate, params, weights, gradients)
        self._regularise(params)
        self.rule(gradients, history, rates, iteration)

    @torch.no_grad()
    def subtract(self) -> None:
        """Subtract the values from `compute`."""
        params = [p for p in self._params if p.learns]
        if params:
            torch._foreach_sub_([p.data for p in params], [_diff(p) for p in params])

    @abc.abstractmethod
    def rule(
        self, gradients: Tensors, history: list[Tensors], rates: list[float], iteration: int
    ) -> None:
        """Convert gradients to the values to subtract, and update the history.

        Args:
            gradients: Clipped, averaged and with the decay added; overwritten.
            history: The history tensors, in `histories` lists.
            rates: The learning rate of each param.
            iteration: The number of completed iterations.
        """

    def _rates(
        self, rate: float, params: Sequence[Param], weights: Tensors, gradients: Tensors
    ) -> list[float]:
        del weights, gradients
        return [rate * p.lr_mult for p in params]

    def _clip(self, gradients: Tensors) -> None:
        most = self._param.clip_gradients
        if most < 0:
            return
        norm = float(torch.stack(torch._foreach_norm(gradients)).norm())
        if norm > most:
            scale = most / norm
            self._log(
                "sgd_solver.cpp",
                f"Gradient clipping: scaling down gradients (L2 norm {norm:g} > {most:g}) "
                f"by scale factor {scale:g}",
            )
            torch._foreach_mul_(gradients, scale)

    def _regularise(self, params: Sequence[Param]) -> None:
        decay = self._param.weight_decay
        if decay == 0:
            return
        by_mult = sorted(params, key=lambda p: p.decay_mult)
        for mult, group in groupby(by_mult, key=lambda p: p.decay_mult):
            if mult == 0:
                continue
            some = list(group)
            toward = [p.data for p in some]
            if self._param.regularization_type == "L1":
                toward = list(torch._foreach_sign(toward))
            torch._foreach_add_([_diff(p) for p in some], toward, alpha=decay * mult)


def _diff(param: Param) -> torch.Tensor:
    """Return the gradient, or zeros if no loss depends on the param."""
    if param.diff is None:
        param.diff = torch.zeros_like(param.data)
    return param.diff


class Sgd(Update):
    """Momentum with the learning rate inside the velocity."""

    def rule(
        self, gradients: Tensors, history: list[Tensors], rates: list[float], iteration: int
    ) -> None:
        """Subtract v = momentum v + rate g."""
        (velocities,) = history
        torch._foreach_mul_(gradients, rates)
        torch._foreach_add_(gradients, velocities, alpha=self._param.momentum)
        torch._foreach_copy_(velocities, gradients)

    def _rates(
        self, rate: float, params: Sequence[Param], weights: Tensors, gradients: Tensors
    ) -> list[float]:
        """Return the rates; `local_lr_auto` scales them by each param's norms (LARS)."""
        if not self._param.local_lr_auto:
            return super()._rates(rate, params, weights, gradients)
        decay, trust = self._param.weight_decay, self._param.local_gw_ratio
        norms = torch.stack(torch._foreach_norm(weights) + torch._foreach_norm(gradients)).tolist()
        pairs = zip(norms[: len(weights)], norms[len(weights) :], strict=True)
        return [rate * (trust * w / (g + decay * w) if w > 0 and g > 0 else 1.0) for w, g in pairs]


class Nesterov(Update):
    """Momentum that looks ahead."""

    def rule(
        self, gradients: Tensors, history: list[Tensors], rates: list[float], iteration: int
    ) -> None:
        """With v' = momentum v + rate g subtract (1 + momentum) v' - momentum v."""
        (velocities,) = history
        momentum = self._param.momentum
        torch._foreach_mul_(gradients, rates)
        torch._foreach_mul_(velocities, momentum)
        torch._foreach_add_(velocities, gradients)
        # (1 + momentum) v' - momentum v = rate g + momentum v'
        torch._foreach_add_(gradients, velocities, alpha=momentum)


class AdaGrad(Update):
    """Divides by the root of the sum of squares."""

    def check(self) -> None:
        """Check for fields that are out of range."""
        super().check()
        self._no_momentum()

    def rule(
        self, gradients: Tensors, history: list[Tensors], rates: list[float], iteration: int
    ) -> None:
        """With h += g² subtract rate g / (√h + delta)."""
        (squares,) = history
        torch._foreach_addcmul_(squares, gradients, gradients)
        _divide_by_root(gradients, squares, rates, self._param.delta)


class RmsProp(Update):
    """Divides by the root of a running mean of squares."""

    def check(self) -> None:
        """Check for fields that are out of range."""
        super().check()
        self._no_momentum()
        if not 0 <= self._param.rms_decay < 1:
            value = f"{self._param.rms_decay:g}"
            raise FieldError("rms_decay", f"rms_decay: {value} must be at least 0, below 1")

    def rule(
        self, gradients: Tensors, history: list[Tensors], rates: list[float], iteration: int
    ) -> None:
        """With h = d h + (1 - d) g² subtract rate g / (√h + delta)."""
        (squares,) = history
        _run(squares, gradients, self._param.rms_decay)
        _divide_by_root(gradients, squares, rates, self._param.delta)


class AdaDelta(Update):
    """Steps by the ratio of running means of updates and gradients; `momentum` is their decay."""

    histories = 2

    def rule(
        self, gradients: Tensors, history: list[Tensors], rates: list[float], iteration: int
    ) -> None:
        """With s = g √((k + delta) / (h + delta)) subtract rate s."""
        squares, updates = history
        decay, delta = self._param.momentum, self._param.delta
        _run(squares, gradients, decay)
        ratio = torch._foreach_add(updates, delta)
        torch._foreach_div_(ratio, torch._foreach_add(squares, delta))
        torch._foreach_sqrt_(ratio)
        torch._foreach_mul_(gradients, ratio)
        _run(updates, gradients, decay)
        torch._foreach_mul_(gradients, rates)


class Adam(Update):
    """Running means of gradients and squares; `momentum` and `momentum2` are their decays."""

    histories = 2

    def rule(
        self, gradients: Tensors, history: list[Tensors], rates: list[float], iteration: int
    ) -> None:
        """Subtract rate √(1 - β2^t) / (1 - β1^t) m / (√v + delta)."""
        means, squares = history
        beta1, beta2 = self._param.momentum, self._param.momentum2
        _run(squares, gradients, beta2)
        torch._foreach_mul_(means, beta1)
        torch._foreach_add_(means, gradients, alpha=1 - beta1)
        correction = math.sqrt(1 - beta2 ** (iteration + 1)) / (1 - beta1 ** (iteration + 1))
        torch._foreach_copy_(gradients, means)
        _divide_by_root(gradients, squares, [r * correction for r in rates], self._param.delta)


def _run(means: Tensors, values: Tensors, decay: float) -> None:
    """Update running means of squares with new values."""
    torch._foreach_mul_(means, decay)
    torch._foreach_addcmul_(means, values, values, value=1 - decay)


def _divide_by_root(values: Tensors, squares: Tensors, rates: list[float], delta: float) -> None:
    """Convert values to rate · value / (√square + delta)."""
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, delta)
    torch._foreach_mul_(values, rates)
    torch._foreach_div_(values, roots)


_TYPES: dict[str, type[Update]] = {
    "SGD": Sgd,
    "Nesterov": Nesterov,
    "AdaGrad": AdaGrad,
    "RMSProp": RmsProp,
    "AdaDelta": AdaDelta,
    "Adam": Adam,
}


def make_update(param: Any, params: Sequence[Param], log: Log) -> Update:
    """Return the update of the solver's `type`.

    Raises:
        CaffeError: The type is not known, or a field is out of range.
    """
    kind = _TYPES.get(param.type)
    if kind is None:
        near = suggestion(param.type, _TYPES)
        known = ", ".join(_TYPES)
        raise FieldError("type", f"type: unknown solver type '{param.type}' (known: {known}){near}")
    if param.local_lr_auto and kind is not Sgd:
        log("sgd_solver.cpp", f"local_lr_auto has no effect with solver type {param.type}")
    return kind(param, params, log)
