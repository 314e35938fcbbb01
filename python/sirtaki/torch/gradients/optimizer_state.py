"""Broadcast of an optimizer's state and options."""

from __future__ import annotations

import io

import torch

from sirtaki.core.operations.objects import allgather_object, broadcast_object
from sirtaki.core.world import state
from sirtaki.torch.ops.exchange import broadcast_async_
from sirtaki.torch.ops.handles import synchronize
from sirtaki.torch.ops.sparse import sparse_zeros_like
from sirtaki.torch.serialization import TensorPickler, TensorUnpickler


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Overwrite the optimizer's state and options with the root's, but not the parameters.

    A rank's state is replaced: state that the root does not have is dropped, and state that only
    the root has is made. If there was no state yet, parameters without a gradient get one of zeros.

    Args:
        optimizer: with the same number of parameters and groups on all ranks; may be a
            `DistributedOptimizer`.
        root_rank: the rank whose state is sent.
        model: tells which parameters belong to embeddings with sparse gradients.

    Raises:
        ValueError: the optimizer is `torch.optim.LBFGS`, or differs in its groups from the root's.
        HorovodInternalError: a rank was lost.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast the state of torch.optim.LBFGS")
    params = [p for group in optimizer.param_groups for p in group["params"]]
    _check_groups(optimizer)
    if not optimizer.state:
        _make_zero_gradients(optimizer, params, model)

    is_root = state.rank() == root_rank
    packed, tensors = _pack(optimizer, params) if is_root else (b"", [])
    packed = broadcast_object(packed, root_rank, "optimizer_state")
    if not is_root:
        tensors = _unpack(packed, optimizer, params)
    handles = [
        broadcast_async_(tensor, root_rank, f"optimizer_state.{i}")
        for i, tensor in enumerate(tensors)
    ]
    for handle in handles:
        synchronize(handle)


def _check_groups(optimizer: torch.optim.Optimizer) -> None:
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    for rank, theirs in enumerate(allgather_object(sizes, "optimizer_state.groups")):
        if theirs != sizes:
            raise ValueError(
                f"broadcast_optimizer_state: the groups of rank {rank}'s optimizer have {theirs} "
                f"parameters, those of rank {state.rank()} have {sizes}"
            )


def _make_zero_gradients(
    optimizer: torch.optim.Optimizer,
    params: list[torch.Tensor],
    model: torch.nn.Module | None,
) -> None:
    embeddings = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    sparse = {
        id(module.weight)
        for module in (model.modules() if model is not None else ())
        if isinstance(module, embeddings) and module.sparse
    }
    all_sparse = isinstance(optimizer, torch.optim.SparseAdam)
    for p in params:
        if p.requires_grad and p.grad is None:
            is_sparse = all_sparse or id(p) in sparse
            p.grad = sparse_zeros_like(p, 1) if is_sparse else torch.zeros_like(p)


def _pack(
    optimizer: torch.optim.Optimizer, params: list[torch.Tensor]
) -> tuple[bytes, list[torch.Tensor]]:
    """Return state and options without the tensors, and the tensors."""
    options = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    by_name = {k: v for k, v in optimizer.state.items() if not isinstance(k, torch.Tensor)}
    stream = io.BytesIO()
    pickler = TensorPickler(stream)
    pickler.dump((options, by_name))
    for p in params:
        pickler.dump(optimizer.state.get(p))
    return stream.getvalue(), pickler.tensors


def _unpack(
    packed: bytes, optimizer: torch.optim.Optimizer, params: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Give the optimizer the root's state and options; return their tensors, to be filled."""
    unpickler = TensorUnpickler(io.BytesIO(packed))
    if params:
        unpickler.device = params[0].device
    options, by_name = unpickler.load()
    for group, values in zip(optimizer.param_groups, options, strict=True):
        group.update(values)
    optimizer.state.clear()
    optimizer.state.update(by_name)
    for p in params:
        unpickler.device = p.device
        value = unpickler.load()
        if value is not None:
            optimizer.state[p] = value
    return unpickler.tensors
