"""Functions that make whole models equal on all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sirtaki.core.errors import MismatchError
from sirtaki.core.operations.objects import allgather_object
from sirtaki.keras.backends import backend
from sirtaki.keras.distributed import build, variables_of
from sirtaki.keras.library import LEGACY


def broadcast_global_variables(
    root_rank: int, model: Any = None, local_variables: Iterable[Any] | None = None
) -> None:
    """Overwrite a model's weights, and its optimizer's variables, with the root's.

    Args:
        root_rank: The rank whose values are sent.
        model: The same architecture on all ranks. In a graph of TensorFlow 1 it may be omitted;
            then all variables of the graph are overwritten.
        local_variables: Variables that each rank keeps unchanged.

    Raises:
        ValueError: There is no model, or it has no variables yet; nothing was sent.
        MismatchError: The ranks' variables differ in number, shape or type.
        HorovodInternalError: A rank was lost.
    """
    if model is None and LEGACY and backend.in_graph():
        backend.evaluated(backend.operations.broadcast_global_variables(root_rank))
        return
    if model is None:
        raise ValueError(
            "Keras keeps no list of all variables: give the model, broadcast_global_variables("
            "root_rank, model), or use callbacks.BroadcastGlobalVariablesCallback"
        )
    if not model.built:
        raise ValueError(
            f"the model {model.name} has no variables yet; build it or call it on a batch before"
        )
    synchronise_state(model)
    optimizer = getattr(model, "optimizer", None)
    variables = list(model.weights)
    if optimizer is not None:
        build(optimizer, model.trainable_variables)
        variables += variables_of(optimizer)
    local = {id(variable) for variable in local_variables or ()}
    variables = [variable for variable in variables if id(variable) not in local]
    kinds = [
        f"{getattr(each.dtype, 'name', each.dtype)} of {tuple(each.shape)}" for each in variables
    ]
    require_same("variables", kinds)
    backend.broadcast_variables(variables, root_rank)


def require_same(what: str, mine: Sequence[str]) -> None:
    """Raise MismatchError on all ranks unless a list is equal on all of them.

    Args:
        what: The kind of the list's items, for the message.
        mine: This rank's list.
    """
    lists = allgather_object(list(mine), f"keras.{what}")
    for rank, theirs in enumerate(lists):
        if theirs != lists[0]:
            only = [
                ", ".join(sorted(set(a) - set(b))) or "nothing"
                for a, b in ((lists[0], theirs), (theirs, lists[0]))
            ]
            raise MismatchError(
                f"rank 0 has {len(lists[0])} {what} and rank {rank} has {len(theirs)}; only on "
                f"rank 0: {only[0]}; only on rank {rank}: {only[1]}"
            )


def synchronise_state(model: Any) -> None:
    """Update variables with values that JAX's trainer keeps elsewhere within an epoch."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def raise_errors(values: Iterable[Any]) -> None:
    """Raise the error of the compiled JAX step that computed a value.

    Keras's trainer ignores it: otherwise training would continue after the loss of a rank.
    """
    for value in values:
        if hasattr(value, "block_until_ready"):
            value.block_until_ready()
