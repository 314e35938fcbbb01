"""Gradients of the collectives, by Horovod's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from sirtaki.core.operations import kinds
from sirtaki.core.operations.reduce_ops import Average, Sum
from sirtaki.core.world import state
from sirtaki.core.world.participants import process_set_of
from sirtaki.tensorflow.ops.graph_values import (
    changes,
    present_position,
    present_size,
    rank_op,
)
from sirtaki.tensorflow.ops.names import unique
from sirtaki.tensorflow.ops.operation import GraphOperation


def gradients_of(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    """Return the gradients of the inputs.

    Args:
        operation: What was run.
        inputs: Of the operation.
        results: Of the operation.
        upstream: The gradients of the results, of any type; None: the loss does not depend on it.
    """
    # The other ranks wait also for what the loss does not depend on here.
    given = [
        tf.zeros_like(result) if each is None else tf.cast(tf.convert_to_tensor(each), result.dtype)
        for each, result in zip(upstream, results, strict=True)
    ]
    return _RULES[operation.kind](operation, inputs, results, given)


def _of_allreduce(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    return _named(operation, "allreduce").run(upstream)


def _of_allgather(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    reduced = _averaged(operation).run(upstream)
    own = tf.stack([tf.shape(each)[0] for each in inputs])
    rows = _named(operation, "allgather", kind=kinds.ALLGATHER).run([own[tf.newaxis]])[0]
    me = present_position(operation.process_set)
    begins = tf.reduce_sum(rows[:me], axis=0)
    return [each[begins[i] : begins[i] + own[i]] for i, each in enumerate(reduced)]


def _of_broadcast(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    # Ranks that do not use the average take part in it all the same.
    reduced = _averaged(operation).but(ordered=True).run(upstream)
    if changes():
        at_root = rank_op() == operation.root_rank
        return [tf.where(at_root, each, tf.zeros_like(each)) for each in reduced]
    if state.rank() == operation.root_rank:
        return reduced
    with tf.control_dependencies(reduced):
        return [tf.zeros_like(each) for each in upstream]


def _of_alltoall(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    back, _ = _named(operation, "alltoall").run([upstream[0]], results[1])
    return [back, None]


def _of_reducescatter(
    operation: GraphOperation,
    inputs: Sequence[Any],
    results: Sequence[Any],
    upstream: Sequence[Any],
) -> list[Any]:
    factor = operation.prescale * operation.postscale
    scaled = [each * tf.cast(factor, each.dtype) for each in upstream]
    if operation.reduce_op == Sum:
        size = present_size(process_set_of(operation.process_set))
        scaled = [each * tf.cast(size, each.dtype) for each in scaled]
    return _named(operation, "allgather", kind=kinds.ALLGATHER).run(scaled)


_RULES: dict[
    int, Callable[[GraphOperation, Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]
] = {
    kinds.ALLREDUCE: _of_allreduce,
    kinds.ALLGATHER: _of_allgather,
    kinds.BROADCAST: _of_broadcast,
    kinds.ALLTOALL: _of_alltoall,
    kinds.REDUCESCATTER: _of_reducescatter,
}


def _averaged(operation: GraphOperation) -> GraphOperation:
    return _named(
        operation, "allreduce", kind=kinds.ALLREDUCE, reduce_op=Average, prescale=1.0, postscale=1.0
    )


def _named(operation: GraphOperation, verb: str, **changes: Any) -> GraphOperation:
    """Return the operation as its gradient needs it, with a name of its own if it has one."""
    name = f"gradient.{operation.name}" if operation.name else None
    return operation.but(name=unique(verb, name), ordered=False, **changes)


def _register() -> None:
    for kind, verb in (
        (kinds.ALLREDUCE, "SirtakiAllreduce"),
        (kinds.ALLGATHER, "SirtakiAllgather"),
        (kinds.BROADCAST, "SirtakiBroadcast"),
        (kinds.ALLTOALL, "SirtakiAlltoall"),
        (kinds.REDUCESCATTER, "SirtakiReducescatter"),
    ):
        tf.RegisterGradient(verb)(_of_nodes(kind, tickets=1))
        tf.RegisterGradient(verb + "Ordered")(_of_nodes(kind, tickets=0))


def _of_nodes(kind: int, tickets: int) -> Callable[..., list[Any]]:
    def gradient(node: Any, *upstream: Any) -> list[Any]:
        results = list(node.outputs)
        operation = GraphOperation.of_node(kind, node)
        inputs = list(node.inputs)[: len(node.inputs) - tickets]
        return [*gradients_of(operation, inputs, results, upstream), *[None] * tickets]

    return gradient


_register()
