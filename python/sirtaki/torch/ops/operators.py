"""The collectives as PyTorch operators, so that `torch.compile` includes them in its graphs.

The public functions call these while a function is compiled. An operator does the same as the
function, under the same name and with the same gradient, so ranks that run compiled and uncompiled
code are compatible. Process sets are passed by number.

Compiled graphs are cached on disk, for all ranks and later jobs, by their operators and arguments.
So the form and the gradient of a result may depend on the arguments alone: never on this rank or on
the size of the world, unless that is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sirtaki.core.operations.reduce_ops import Sum
from sirtaki.core.operations.reduction import Reduction
from sirtaki.core.world.participants import process_set_of
from sirtaki.torch.ops import allreduce as allreduce_ops
from sirtaki.torch.ops import exchange as exchange_ops
from sirtaki.torch.ops import reducescatter as reducescatter_ops

_REDUCTION = "int op, float prescale_factor, float postscale_factor, int process_set"
_ops = torch.ops.sirtaki


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep the tensors' row counts and the other arguments for the gradient."""
    tensors = inputs[0] if isinstance(inputs[0], list | tuple) else [inputs[0]]
    ctx.rows = [tensor.shape[0] if tensor.dim() else 1 for tensor in tensors]
    ctx.arguments = inputs[1:]


def _define(
    schema: str,
    function: Callable[..., Any],
    fake: Callable[..., Any],
    grad: Callable[..., Any] | None = None,
    keep: Callable[..., None] = _keep,
) -> None:
    """Make an operator from its function, the form of its results, and its gradient."""
    name, _, signature = schema.partition("(")
    operator = torch.library.custom_op(
        f"sirtaki::{name}", function, mutates_args=(), schema=f"({signature}"
    )
    operator.register_fake(fake)
    if hasattr(operator, "register_effect"):  # not before torch 2.10
        from torch._library.effects import EffectType

        # The compiler keeps operators with an effect, and their order, so that these are the same
        # on all ranks even if the rest of their graphs differs.
        operator.register_effect(EffectType.ORDERED)
    if grad is not None:
        operator.register_autograd(grad, setup_context=keep)


def _with_rows(tensor: Tensor, rows: int | torch.SymInt) -> Tensor:
    return tensor.new_empty((rows, *tensor.shape[1:]))


def _unknown_rows() -> torch.SymInt:
    """Return the first dimension of a result that depends on other ranks."""
    return torch.library.get_ctx().new_dynamic_size(min=0)


# ---- allreduce ----


def _allreduce(tensors: list[Tensor], name: str | None, *how: Any) -> list[Tensor]:
    *numbers, codec = how
    return allreduce_ops.run(tensors, name, Reduction.from_numbers(*numbers), codec)


def _allreduce_fake(tensors: list[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors]


def _allreduce_grad(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    return _ops.allreduce(grads, None, *ctx.arguments[1:]), *[None] * 6


# ---- allgather ----


def _allgather(tensors: list[Tensor], name: str | None, process_set: int) -> list[Tensor]:
    return exchange_ops.run_allgather(tensors, name, process_set_of(process_set))


def _allgather_fake(tensors: list[Tensor], *_: Any) -> list[Tensor]:
    return [_with_rows(tensor, _unknown_rows()) for tensor in tensors]


def _allgather_grad(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    return _ops.allgather_back(grads, ctx.rows, ctx.arguments[1]), None, None


def _allgather_back(grads: list[Tensor], rows: list[int], process_set: int) -> list[Tensor]:
    # Copied: the rows are views of the averages, and operators return tensors of their own.
    own = exchange_ops.allgather_back(grads, rows, process_set_of(process_set))
    return [grad.clone() for grad in own]


def _allgather_back_fake(grads: list[Tensor], rows: list[int], _: int) -> list[Tensor]:
    return [_with_rows(grad, count) for grad, count in zip(grads, rows, strict=True)]


# ---- broadcast ----


def _broadcast(tensor: Tensor, root_rank: int, name: str | None, process_set: int) -> Tensor:
    with torch.no_grad():
        return exchange_ops.broadcast(tensor, root_rank, name, process_set_of(process_set))


def _broadcast_fake(tensor: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _broadcast_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    root_rank, _, process_set = ctx.arguments
    return _ops.broadcast_back(grad, root_rank, process_set), None, None, None


def _broadcast_back(grad: Tensor, root_rank: int, process_set: int) -> Tensor:
    return exchange_ops.broadcast_back(grad, root_rank, process_set_of(process_set))


# ---- alltoall ----


def _alltoall(
    tensor: Tensor, splits: Tensor | None, name: str | None, process_set: int, _: int
) -> list[Tensor]:
    return [*exchange_ops.run_alltoall(tensor, splits, name, process_set_of(process_set))]


def _alltoall_fake(
    tensor: Tensor, splits: Tensor | None, name: str | None, process_set: int, ranks: int
) -> list[Tensor]:
    device = torch.device("cpu") if splits is None else splits.device
    received = torch.empty(ranks, dtype=torch.int32, device=device)
    return [_with_rows(tensor, _unknown_rows()), received]


def _keep_alltoall(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _keep(ctx, inputs, output)
    ctx.save_for_backward(output[1])


def _alltoall_grad(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    (received,) = ctx.saved_tensors
    own = _ops.alltoall_back(grads[0], received, ctx.rows[0], ctx.arguments[2])
    return own, None, None, None, None


def _alltoall_back(grad: Tensor, received: Tensor, rows: int, process_set: int) -> Tensor:
    return exchange_ops.alltoall_back(grad, received, rows, process_set_of(process_set))


def _alltoall_back_fake(grad: Tensor, received: Tensor, rows: int, _: int) -> Tensor:
    return _with_rows(grad, rows)


# ---- reducescatter ----


def _reducescatter(
    tensors: list[Tensor], rows: list[int], ranks: int, name: str | None, *how: Any
) -> list[Tensor]:
    return reducescatter_ops.run(tensors, name, Reduction.from_numbers(*how))


def _reducescatter_fake(tensors: list[Tensor], rows: list[int], *_: Any) -> list[Tensor]:
    return [_with_rows(tensor, count) for tensor, count in zip(tensors, rows, strict=True)]


def _reducescatter_grad(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    _, ranks, _, op, prescale_factor, postscale_factor, process_set = ctx.arguments
    scale = prescale_factor * postscale_factor * (ranks if op == Sum else 1)
    whole = _ops.reducescatter_back(grads, ctx.rows, scale, process_set)
    return whole, None, None, None, None, None, None, None


def _reducescatter_back(
    grads: list[Tensor], rows: list[int], scale: float, process_set: int
) -> list[Tensor]:
    scaled = [grad * scale for grad in grads]
    return exchange_ops.run_allgather(scaled, None, process_set_of(process_set))


def _reducescatter_back_fake(
    grads: list[Tensor], rows: list[int], scale: float, process_set: int
) -> list[Tensor]:
    return [_with_rows(grad, count) for grad, count in zip(grads, rows, strict=True)]


# ---- All operators ----

_define(
    f"allreduce(Tensor[] tensors, str? name, {_REDUCTION}, int codec) -> Tensor[]",
    _allreduce,
    _allreduce_fake,
    _allreduce_grad,
)
_define(
    "allgather(Tensor[] tensors, str? name, int process_set) -> Tensor[]",
    _allgather,
    _allgather_fake,
    _allgather_grad,
)
_define(
    "allgather_back(Tensor[] grads, SymInt[] rows, int process_set) -> Tensor[]",
    _allgather_back,
    _allgather_back_fake,
)
_define(
    "broadcast(Tensor tensor, int root_rank, str? name, int process_set) -> Tensor",
    _broadcast,
    _broadcast_fake,
    _broadcast_grad,
)
_define(
    "broadcast_back(Tensor grad, int root_rank, int process_set) -> Tensor",
    _broadcast_back,
    _broadcast_fake,
)
_define(
    "alltoall(Tensor tensor, Tensor? splits, str? name, int process_set, int ranks) -> Tensor[]",
    _alltoall,
    _alltoall_fake,
    _alltoall_grad,
    _keep_alltoall,
)
_define(
    "alltoall_back(Tensor grad, Tensor received, SymInt rows, int process_set) -> Tensor",
    _alltoall_back,
    _alltoall_back_fake,
)
_define(
    "reducescatter(Tensor[] tensors, SymInt[] rows, int ranks, str? name, "
    f"{_REDUCTION}) -> Tensor[]",
    _reducescatter,
    _reducescatter_fake,
    _reducescatter_grad,
)
_define(
    "reducescatter_back(Tensor[] grads, SymInt[] rows, float scale, int process_set) -> Tensor[]",
    _reducescatter_back,
    _reducescatter_back_fake,
)
