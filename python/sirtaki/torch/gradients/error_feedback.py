"""Error feedback: the loss of a gradient's compression is added to the next gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from sirtaki._core import feed_back

# Beside "state" and "param_groups" in the state of an optimizer.
_KEY = "compression_residuals"


class ErrorFeedback:
    """The part of this rank's gradients that has not been sent yet.

    The sent data and the residual add up to the gradients, except for the rounding of float32
    additions. Seide et al., "1-bit stochastic gradient descent" (2014), and Karimireddy et al.,
    "Error feedback fixes SignSGD" (2019).
    """

    def __init__(self) -> None:
        self._residuals: dict[Any, torch.Tensor] = {}
        self._pending: dict[Any, torch.Tensor] = {}

    def apply(
        self, params: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], codec: int
    ) -> None:
        """Add the residual to gradients, and keep what this codec will lose.

        Gradients other than float32 are unchanged. The others are contiguous, in CPU memory.
        """
        for param, gradient in zip(params, gradients, strict=True):
            if gradient.dtype != torch.float32:
                continue
            kept = self._residuals.get(param)
            if kept is None:
                kept = self._residuals[param] = torch.zeros(
                    gradient.shape, dtype=torch.float32, device="cpu"
                )
            feed_back(codec, gradient.data_ptr(), kept.data_ptr(), gradient.numel())

    def add(self, param: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Return a new tensor: the residual and the gradient, in float32 or more."""
        exact = torch.promote_types(gradient.dtype, torch.float32)
        kept = self._residuals.get(param)
        if kept is None:
            return gradient.to(exact, copy=True)
        return torch.add(kept.to(gradient.device, exact), gradient)

    def keep(self, param: Any, lost: torch.Tensor) -> None:
        """Keep what a gradient has lost, once `settle` says that the gradient is used."""
        self._pending[param] = lost

    def settle(self, *, used: bool) -> None:
        """Keep what has been lost of the gradients of this step, or forget it with them."""
        if used:
            self._residuals.update(self._pending)
        self._pending.clear()

    def clear(self) -> None:
        """Begin without residuals."""
        self._residuals.clear()
        self._pending.clear()

    def save(self, state_dict: dict[str, Any], params: Iterable[torch.Tensor], rank: int) -> None:
        """Put this rank's residuals into the state of these parameters, if there are any."""
        kept = {i: self._residuals[p] for i, p in enumerate(params) if p in self._residuals}
        if kept:
            state_dict[_KEY] = {"rank": rank, "of": kept}

    def load(self, state_dict: dict[str, Any], params: Iterable[torch.Tensor], rank: int) -> None:
        """Restore this rank's saved residuals; none if the state was saved by another rank.

        Raises:
            ValueError: a tensor in the state differs from its parameter in shape.
        """
        self.clear()
        saved = state_dict.get(_KEY)
        if saved is None or saved["rank"] != rank:
            return
        by_index = dict(enumerate(params))
        for i, kept in saved["of"].items():
            param = by_index.get(i)
            if param is None or param.shape != kept.shape:
                raise ValueError(
                    f"{_KEY} of the loaded state has a tensor of shape {tuple(kept.shape)} for "
                    f"parameter {i}, which the optimizer has not; load the state of this model"
                )
            self._residuals[param] = kept.to("cpu", torch.float32, copy=True).contiguous()
