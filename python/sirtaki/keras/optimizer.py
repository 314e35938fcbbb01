"""`DistributedOptimizer` for Keras optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sirtaki.core.operations.gradient_reduction import local_variables
from sirtaki.core.operations.reduce_ops import Average, Sum
from sirtaki.core.world import state
from sirtaki.core.world.process_sets import ProcessSet, global_process_set
from sirtaki.keras.backends import backend
from sirtaki.keras.distributed import Distributed, distribute
from sirtaki.keras.library import LEGACY, keras

Compression = backend.Compression


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer reduce gradients over the ranks before it applies them.

    If the global policy is mixed_float16, the optimizer is first wrapped in a `LossScaleOptimizer`,
    so that all ranks agree whether gradients are finite.

    Args:
        optimizer: An optimizer of the Keras in use, before `compile` or of a compiled model.
        name: Accepted; the optimizer keeps its name.
        device_dense: Accepted; tensors are exchanged in the host's memory.
        device_sparse: As for `device_dense`.
        compression: The form in which gradients are sent, from `Compression`.
        sparse_as_dense: Whether `tf.IndexedSlices` are summed as dense tensors.
        gradient_predivide_factor: Gradients are divided by it before the sum, and by the rest of an
            average's divisor after the sum.
        op: Average or Sum.
        backward_passes_per_step: The backward passes whose gradients are summed before they are
            reduced. The optimizer counts steps, not passes.
        average_aggregated_gradients: Whether the sum is divided by the number of passes.
        num_groups: The number of operations in which gradients are sent; 0: one for each dtype.
        groups: Lists of variables whose gradients are sent together, or a number as `num_groups`.
        process_set: The ranks that take part; on other ranks gradients are not changed.
        scale_local_gradients: Whether gradients of local variables are divided by the number of
            ranks.

    Returns:
        The optimizer itself. Its class is now a subclass of its old class, and is saved as the old
        class. If it is already distributed, it reduces gradients once, with the new arguments.

    Raises:
        ValueError: It is not an optimizer of this Keras, wraps one that is already distributed,
            or an argument does not suit it.
    """
    _check_optimizer(optimizer)
    if op not in (Average, Sum):
        raise ValueError("op of an optimizer of Keras is Average or Sum")
    if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
        raise ValueError(
            f"backward_passes_per_step={backward_passes_per_step!r} is not a number of passes"
        )
    reduction = backend.Reduction(
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    scaling = keras.mixed_precision.LossScaleOptimizer
    if keras.mixed_precision.global_policy().name == "mixed_float16":
        optimizer = optimizer if isinstance(optimizer, scaling) else scaling(optimizer)
    step = backend.Step(reduction, backward_passes_per_step, average_aggregated_gradients)
    if isinstance(optimizer, Distributed):
        reduction.local.update(optimizer._sirtaki_step.reduction.local)
        optimizer._sirtaki_step = step
        optimizer._sirtaki_attached()
    else:
        distribute(optimizer, backend.mixin(), _module_of(type(optimizer)), step)
    return optimizer


def PartialDistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer distributed, like `DistributedOptimizer`, with layers that stay local.

    Args:
        optimizer, name, device_dense, device_sparse: As for `DistributedOptimizer`.
        compression, sparse_as_dense, gradient_predivide_factor: As for `DistributedOptimizer`.
        op, backward_passes_per_step: As for `DistributedOptimizer`.
        average_aggregated_gradients, groups: As for `DistributedOptimizer`.
        process_set, scale_local_gradients: As for `DistributedOptimizer`.
        local_layers: Layers or variables, one or a list, whose gradients stay on their rank.

    Returns:
        The optimizer itself.

    Raises:
        ValueError: As for `DistributedOptimizer`; or `local_layers` has another object, or a layer
            that has not been built.
    """
    variables = local_variables(local_layers)
    optimizer = DistributedOptimizer(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    optimizer.register_local_var(variables)
    return optimizer


def _check_optimizer(optimizer: Any) -> None:
    """Raise ValueError unless this is an optimizer that can be distributed."""
    state.size()  # raises if init() was not called
    if isinstance(optimizer, _optimizer_classes()):
        if isinstance(getattr(optimizer, "inner_optimizer", None), Distributed):
            raise ValueError(f"the optimizer {_name_of(optimizer)} is distributed already")
        return
    packages = {cls.__module__.partition(".")[0] for cls in type(optimizer).__mro__}
    if "tf_keras" in packages:
        raise ValueError(
            f"{_name_of(optimizer)} is an optimizer of Keras 2, but Keras 3 is in use: take it "
            "from keras.optimizers, or set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported"
        )
    if LEGACY and "keras" in packages:
        raise ValueError(
            f"{_name_of(optimizer)} is an optimizer of Keras 3, but TF_USE_LEGACY_KERAS asks for "
            "Keras 2: take it from tf_keras.optimizers, or unset the variable"
        )
    raise ValueError(
        f"{optimizer!r} is not an optimizer of Keras; "
        "give an object such as keras.optimizers.Adam()"
    )


def _optimizer_classes() -> tuple[type, ...]:
    if LEGACY:
        return keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer
    return (keras.optimizers.Optimizer,)


def _name_of(optimizer: Any) -> str:
    return type(optimizer).__name__


def _module_of(cls: type) -> str:
    """Return the module under which Keras saves the objects of a class."""
    if LEGACY:
        return cls.__module__
    from keras.src.api_export import get_name_from_symbol

    public: str | None = get_name_from_symbol(cls)
    return public.rpartition(".")[0] if public else cls.__module__
