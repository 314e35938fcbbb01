"""State of a parameter's gradient, and of gradients that are reduced together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from sirtaki.core.operations.handles import forget
from sirtaki.torch.ops.handles import SparseHandle
from sirtaki.torch.ops.sparse import sparse_zeros_like

if TYPE_CHECKING:
    from sirtaki.torch.gradients.transformation import Exchange

# A bucket is named after its first parameters.
_NAMES_SHOWN = 3


@dataclass(eq=False, slots=True)
class GradientSlot:
    """A parameter, whose gradient is reduced."""

    param: torch.Tensor
    name: str
    hooked: bool = False
    # On all ranks; 0 for dense gradients, None until some rank had one.
    sparse_dim: int | None = None

    def gradient(self, as_dense: bool) -> torch.Tensor:
        """Return the gradient to reduce, or zeros, in the layout agreed by all ranks."""
        grad = self.param.grad
        if grad is None:
            if self.sparse_dim and not as_dense:
                return sparse_zeros_like(self.param, self.sparse_dim)
            return torch.zeros_like(self.param, requires_grad=False)
        if grad.layout is not torch.strided:
            return grad.to_dense() if as_dense or self.sparse_dim == 0 else grad
        return grad.to_sparse(self.sparse_dim) if self.sparse_dim and not as_dense else grad


@dataclass(eq=False, slots=True)
class Bucket:
    """Parameters whose gradients are reduced together; usually one."""

    slots: list[GradientSlot]
    params: list[torch.Tensor] = field(init=False)
    name: str = field(init=False)
    only_dense: bool = False  # on all ranks
    started: bool = False
    again: bool = False  # started on the gradients as they are, like an earlier step's
    failure: BaseException | None = None  # the error that prevented part of it from starting
    handle: int | None = None
    exchange: Exchange | None = None  # instead of the handle, if the gradients are transformed
    dense: list[tuple[GradientSlot, torch.Tensor]] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)  # of the compression, for each of `dense`
    sparse: list[tuple[GradientSlot, SparseHandle]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.params = [slot.param for slot in self.slots]
        self.name = name_of_bucket([slot.name for slot in self.slots])

    def reset(self) -> None:
        """Forget the gradients of this step."""
        self.started = False
        self.again = False
        self.failure = None
        if self.handle is not None:
            forget(self.handle)  # nothing has waited for it if a backward pass did not end
        self.handle = None
        if self.exchange is not None:
            self.exchange.forget()
        self.exchange = None
        if self.dense:
            self.dense = []
        if self.sparse:
            self.sparse = []


def name_of_bucket(names: Sequence[str]) -> str:
    """Return the name of the reduction of parameters with these names."""
    more = [f"and {len(names) - _NAMES_SHOWN} more"] if len(names) > _NAMES_SHOWN else []
    return ", ".join([*names[:_NAMES_SHOWN], *more])
