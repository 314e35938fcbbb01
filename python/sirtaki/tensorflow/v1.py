"""Support for scripts in TensorFlow 1 style: graphs, sessions, hooks and its optimizers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.tensorflow.functions import broadcast_variables
from sirtaki.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from sirtaki.tensorflow.gradient_reduction import GradientReduction
from sirtaki.tensorflow.ops.tracing import plain_python

_ADVICE = (
    "is for graphs of TensorFlow 1; begin the script with\n"
    "    import tensorflow.compat.v1 as tf\n"
    "    tf.disable_v2_behavior()\n"
    "in place of `import tensorflow as tf`"
)


def require_graph(what: str, instead: str) -> None:
    """Raise an error for a graph function under eager execution.

    Raises:
        RuntimeError: Eager execution is on.
    """
    if tf.executing_eagerly():
        raise RuntimeError(f"{what} {_ADVICE}, or use {instead}")


def broadcast_global_variables(root_rank: int, process_set: ProcessSet = global_process_set) -> Any:
    """Return an operation that overwrites the graph's global variables with the root's.

    Args:
        root_rank: The rank whose values are sent.
        process_set: The ranks that take part.

    Raises:
        RuntimeError: Eager execution is on.
    """
    require_graph("broadcast_global_variables()", "broadcast_variables(variables, root_rank)")
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank, process_set)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Overwrites all global variables with the root's after a session is created.

    Args:
        root_rank: The rank whose values are sent; also after restoring a checkpoint there.
        device: Accepted; tensors are exchanged in the host's memory.

    Raises:
        RuntimeError: Eager execution is on.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        require_graph("BroadcastGlobalVariablesHook", "broadcast_variables(variables, root_rank)")
        self.root_rank = root_rank
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Add the operation to the current default graph."""
        if self.bcast_op is None or self.bcast_op.graph != tf.compat.v1.get_default_graph():
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run the operation."""
        session.run(self.bcast_op)


class DistributedV1Optimizer(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """An optimizer of TensorFlow 1 whose gradients are reduced over the ranks.

    Args:
        optimizer: The optimizer that applies the reduced gradients.
        reduction: Reduces the gradients.
        backward_passes_per_step: The backward passes whose gradients are summed before they are
            reduced.
        average_aggregated_gradients: Whether their sum is divided by the number of passes.
        name: The optimizer's name.
        use_locking: As for `tf.compat.v1.train.Optimizer`.
    """

    def __init__(
        self,
        optimizer: Any,
        reduction: GradientReduction,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        name: str | None = None,
        use_locking: bool = False,
    ) -> None:
        self._optimizer = optimizer
        self._reduction = reduction
        self._helper = LocalGradientAggregationHelper(
            backward_passes_per_step,
            reduction,
            reduction.sparse_as_dense,
            average_aggregated_gradients,
        )
        super().__init__(
            name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking
        )

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of a variable on its rank."""
        self._reduction.register_local(var)

    @plain_python
    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Return (gradient, variable) pairs, the gradients reduced over the ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        reduced = self._helper.compute_gradients([gradient for gradient, _ in pairs], variables)
        return list(zip(reduced, variables, strict=True))

    @plain_python
    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the gradients; before the last pass, only count the step."""
        return self._helper.apply_gradients(
            lambda: self._optimizer.apply_gradients(*args, **kwargs),
            self._optimizer,
            *args,
            **kwargs,
        )

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """Return a slot of the optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """Return the names of the optimizer's slots."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """Return the optimizer's variables."""
        return self._optimizer.variables(*args, **kwargs)
