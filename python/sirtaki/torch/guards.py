"""Guards against silent faults with PyTorch: `hvd.guards`; see `sirtaki.checkpoint.Guards`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from sirtaki.checkpoint import Array, Guards
from sirtaki.checkpoint.guards import not_finite
from sirtaki.core.errors import DivergedError, NotFiniteError
from sirtaki.torch.checkpoint import TorchFramework

__all__ = ["DivergedError", "NotFiniteError", "require_equal", "require_finite", "watch_gradients"]


class _Framework(TorchFramework):
    """Guards look at sparse gradients, too, which are no part of checkpoints."""

    def is_array(self, leaf: Any) -> bool:
        return isinstance(leaf, torch.Tensor) or super().is_array(leaf)

    def is_finite(self, leaf: Any) -> bool:
        return super().is_finite(leaf.coalesce().values() if _is_sparse(leaf) else leaf)

    def to_host(self, leaf: Any) -> Array:
        return super().to_host(leaf.to_dense() if _is_sparse(leaf) else leaf)


def _is_sparse(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_sparse


_guards = Guards(_Framework())
require_equal = _guards.require_equal
require_finite = _guards.require_finite


def watch_gradients(model: torch.nn.Module) -> Callable[[], None]:
    """Make backward raise `NotFiniteError` at this rank's first gradient that is not finite.

    It checks each gradient before it is reduced, so the sum cannot spread it to other ranks. They
    raise `PeerLostError` when this rank ends.

    Args:
        model: The model whose gradients are checked.

    Returns:
        A function that ends the checks.
    """
    hooks = [
        parameter.register_hook(_check(f"the gradient of {name}"))
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]

    def end() -> None:
        for hook in hooks:
            hook.remove()

    return end


def _check(name: str) -> Callable[[torch.Tensor], None]:
    def check(gradient: torch.Tensor) -> None:
        values = gradient.coalesce().values() if gradient.is_sparse else gradient
        if not bool(torch.isfinite(values).all()):
            raise not_finite(name)

    return check
