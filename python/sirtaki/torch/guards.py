"""Guards against silent faults with PyTorch: `hvd.guards`; see `sirtaki.checkpoint.Guards`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from sirtaki.checkpoint import Guards
from sirtaki.checkpoint.guards import not_finite
from sirtaki.core.errors import DivergedError, NotFiniteError
from sirtaki.torch.checkpoint import TorchFramework

__all__ = ["DivergedError", "NotFiniteError", "require_equal", "require_finite", "watch_gradients"]

_guards = Guards(TorchFramework())
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
