"""The learning rate of each iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sirtaki_caffe.errors import FieldError, suggestion

#: The value of `minimum_loss` before the first loss.
NO_LOSS = 1e38


class Policy:
    """The learning rate defined by a solver's fields.

    Args:
        param: A SolverParameter.
        log: Called with the name of a source file and a line about an event.
    """

    def __init__(self, param: Any, log: Callable[[str, str], None]) -> None:
        self._param = param
        self._log = log
        #: The number of steps of "multistep" or "plateau".
        self.current_step = 0
        #: For "plateau": the minimum smoothed loss, and the iteration of it or of the last step.
        self.minimum_loss = NO_LOSS
        self.iter_last_event = 0

    def check(self) -> None:
        """Check for missing or invalid fields.

        Raises:
            CaffeError: There is one; the message names the field.
        """
        param = self._param
        if param.lr_policy not in _RATES:
            near = suggestion(param.lr_policy, _RATES)
            raise FieldError(
                "lr_policy",
                f"lr_policy: unknown learning rate policy '{param.lr_policy}' "
                f"(known: {', '.join(_RATES)}){near}",
            )
        wants: dict[str, tuple[str, bool]] = {
            "step": ("stepsize must be above 0", param.stepsize > 0),
            "poly": ("max_iter must be above 0", param.max_iter > 0),
            "multifixed": (
                "stagelr and stageiter must have as many values, at least one each",
                0 < len(param.stagelr) == len(param.stageiter),
            ),
        }
        what, holds = wants.get(param.lr_policy, ("", True))
        if not holds:
            raise FieldError("lr_policy", f'lr_policy "{param.lr_policy}": {what}')
        if param.warmup_iter < 0:
            raise FieldError("warmup_iter", f"warmup_iter: {param.warmup_iter} is below 0")

    @property
    def wants_loss(self) -> bool:
        """Return whether the rate depends on the loss, which all processes must then share."""
        return bool(self._param.lr_policy == "plateau")

    def rate(self, iteration: int, smoothed_loss: float = NO_LOSS) -> float:
        """Return the learning rate; called once per iteration, in order.

        Args:
            iteration: The number of completed iterations.
            smoothed_loss: The mean over the last `average_loss` iterations.
        """
        param = self._param
        if iteration < param.warmup_iter:
            share = iteration / param.warmup_iter
            return float(share * param.base_lr + (1 - share) * param.warmup_start_lr)
        try:
            return _RATES[param.lr_policy](self, iteration, smoothed_loss)
        except (OverflowError, ZeroDivisionError, TypeError) as error:
            text = f"there is no rate at iteration {iteration}: {error}"
            raise FieldError("lr_policy", f'lr_policy "{param.lr_policy}": {text}') from error

    def _stepped(self) -> float:
        return float(self._param.base_lr * self._param.gamma**self.current_step)

    def _multistep(self, iteration: int, _: float) -> float:
        values = self._param.stepvalue
        if self.current_step < len(values) and iteration >= values[self.current_step]:
            self.current_step += 1
            self._say("MultiStep", iteration)
        return self._stepped()

    def _plateau(self, iteration: int, smoothed_loss: float) -> float:
        if smoothed_loss < self.minimum_loss:
            self.minimum_loss = smoothed_loss
            self.iter_last_event = iteration
        windows = self._param.plateau_winsize
        if self.current_step < len(windows):
            waited = iteration - self.iter_last_event
            if waited >= windows[self.current_step]:
                self.current_step += 1
                self.iter_last_event = iteration
                self._say("Plateau", iteration)
        return self._stepped()

    def _multifixed(self, iteration: int, _: float) -> float:
        stages = zip(self._param.stageiter, self._param.stagelr, strict=True)
        for last, rate in stages:
            if iteration <= last:
                return float(rate)
        return float(self._param.stagelr[-1])

    def _fixed(self, _: int, __: float) -> float:
        return float(self._param.base_lr)

    def _step(self, iteration: int, _: float) -> float:
        param = self._param
        return float(param.base_lr * param.gamma ** (iteration // param.stepsize))

    def _exp(self, iteration: int, _: float) -> float:
        return float(self._param.base_lr * self._param.gamma**iteration)

    def _inv(self, iteration: int, _: float) -> float:
        param = self._param
        return float(param.base_lr * (1 + param.gamma * iteration) ** -param.power)

    def _poly(self, iteration: int, _: float) -> float:
        param = self._param
        left = max(0.0, 1 - iteration / param.max_iter)
        return float(param.base_lr * left**param.power)

    def _sigmoid(self, iteration: int, _: float) -> float:
        param = self._param
        exponent = -param.gamma * (iteration - param.stepsize)
        # Far from the step this power of e exceeds a float, and the rate is 0 or base_lr.
        return float(param.base_lr / (1 + math.exp(min(exponent, 700.0))))

    def _say(self, what: str, iteration: int) -> None:
        text = f"{what} Status: Iteration {iteration}, step = {self.current_step}"
        self._log("sgd_solver.cpp", text)


_RATES: dict[str, Callable[[Policy, int, float], float]] = {
    "fixed": Policy._fixed,
    "step": Policy._step,
    "exp": Policy._exp,
    "inv": Policy._inv,
    "multistep": Policy._multistep,
    "poly": Policy._poly,
    "sigmoid": Policy._sigmoid,
    "plateau": Policy._plateau,
    "multifixed": Policy._multifixed,
}
