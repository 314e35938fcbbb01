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
    """Have backward raise `NotFiniteError` at the first gradient of this rank that is not finite.

    It looks at each gradient before it is reduced, and so before the sum gives it to other ranks.
    They get `PeerLostError` when this rank ends.

    Args:
        model: Its parameters are watched.

    Returns:
        A function that ends it.
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
