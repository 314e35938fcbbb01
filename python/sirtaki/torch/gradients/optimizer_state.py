"""Broadcast of an optimizer's state and options."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import torch

from sirtaki.core.operations.objects import allgather_object, broadcast_object
from sirtaki.core.world import state
from sirtaki.torch.gradients.wrapping import Wrapper
from sirtaki.torch.ops.exchange import broadcast_async_
from sirtaki.torch.ops.handles import synchronize
from sirtaki.torch.ops.sparse import sparse_zeros_like


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Overwrite the optimizer's state and options with the root's, but not the parameters.

    A rank's state is replaced: state that the root lacks is dropped, and state that only the root
    has is created. If there was no state yet, parameters without a gradient get zeros as one.

    Args:
        optimizer: with the same number of parameters and groups on all ranks; may be a
            `DistributedOptimizer`.
        root_rank: the rank whose state is sent.
        model: identifies the parameters of embeddings with sparse gradients.

    Raises:
        ValueError: the optimizer is `torch.optim.LBFGS`, or its groups differ from the root's.
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
    shared: Any = None
    packed = broadcast_object(packed, root_rank, "optimizer_state")
    if not is_root:
        tensors, shared = _unpack(packed, optimizer, params)
    _broadcast_all(tensors, root_rank, "optimizer_state")
    if isinstance(optimizer, Wrapper):  # the root's too, which drops what is in flight as others do
        optimizer.load_shared_state(optimizer.shared_state() if is_root else shared)


def broadcast_with_tensors(value: Any, root_rank: int, name: str) -> Any:
    """Return the root's value on all ranks; tensors in it are sent from their own memory.

    Args:
        value: Any object that can be pickled; its tensors are in the host's memory elsewhere than
            on the root. Other ranks' values are ignored.
        root_rank: The rank whose value is sent.
        name: Matches the call with those of the other ranks.
    """
    stream = io.BytesIO()
    pickler = TensorPickler(stream)
    is_root = state.rank() == root_rank
    pickler.dump(value if is_root else None)
    unpickler = TensorUnpickler(io.BytesIO(broadcast_object(stream.getvalue(), root_rank, name)))
    received = unpickler.load()
    # The receivers' tensors are in the host's memory.
    sent = [each.cpu() for each in pickler.tensors] if is_root else unpickler.tensors
    _broadcast_all(sent, root_rank, name)
    return value if is_root else received


def _broadcast_all(tensors: Sequence[torch.Tensor], root_rank: int, name: str) -> None:
    handles = [broadcast_async_(each, root_rank, f"{name}.{i}") for i, each in enumerate(tensors)]
    for handle in handles:
        synchronize(handle)


def options_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the options of each group of parameters."""
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


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
    """Return the state and options without tensors, and the tensors."""
    by_name = {k: v for k, v in optimizer.state.items() if not isinstance(k, torch.Tensor)}
    stream = io.BytesIO()
    pickler = TensorPickler(stream)
    shared = optimizer.shared_state() if isinstance(optimizer, Wrapper) else None
    pickler.dump((options_of(optimizer), by_name))
    pickler.dump(shared)
    for p in params:
        pickler.dump(optimizer.state.get(p))
    return stream.getvalue(), pickler.tensors


def _unpack(
    packed: bytes, optimizer: torch.optim.Optimizer, params: list[torch.Tensor]
) -> tuple[list[torch.Tensor], Any]:
    """Apply the root's state and options; return tensors to be filled, and the shared state."""
    unpickler = TensorUnpickler(io.BytesIO(packed))
    if params:
        unpickler.device = params[0].device
    options, by_name = unpickler.load()
    for group, values in zip(optimizer.param_groups, options, strict=True):
        group.update(values)
    optimizer.state.clear()
    shared = unpickler.load()
    for p in params:
        unpickler.device = p.device
        value = unpickler.load()
        if value is not None:
            optimizer.state[p] = value
    optimizer.state.update(by_name)  # last, because Adagrad looks at the first state
    return unpickler.tensors, shared


class TensorPickler(pickle.Pickler):
    """Pickles an object without its tensors, which are collected in `tensors` in order."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, obj: Any) -> Any:
        """Collect a tensor, and return what is needed to create a similar one."""
        if not isinstance(obj, torch.Tensor):
            return None
        self.tensors.append(obj.detach())
        return tuple(obj.shape), obj.dtype, obj.is_cpu


class TensorUnpickler(pickle.Unpickler):
    """Unpickles data of `TensorPickler` with new tensors, listed in `tensors`, to be filled.

    Tensors from outside CPU memory are created on `device`, which may change per object.
    """

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.device = torch.device("cpu")
        self.tensors: list[torch.Tensor] = []

    def persistent_load(self, pid: Any) -> torch.Tensor:
        """Create a tensor like the collected one."""
        shape, dtype, on_cpu = pid
        tensor = torch.empty(shape, dtype=dtype, device="cpu" if on_cpu else self.device)
        self.tensors.append(tensor)
        return tensor
