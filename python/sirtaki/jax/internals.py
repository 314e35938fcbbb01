"""What we use of JAX that it does not promise to keep, in one place."""

from __future__ import annotations

import inspect
from typing import Any

from jax._src import core, effects
from jax.interpreters import mlir


class CollectiveEffect(effects.Effect):  # type: ignore[misc]
    """Keeps collectives whose results nobody uses: other ranks may use theirs."""

    def __str__(self) -> str:
        return "Collective"


def allow_everywhere(effect: type[CollectiveEffect]) -> None:
    """Allow an effect in loops, branches, custom derivatives and `jax.checkpoint`."""
    effects.lowerable_effects.add_type(effect)
    effects.control_flow_allowed_effects.add_type(effect)
    effects.custom_derivatives_allowed_effects.add_type(effect)
    effects.remat_allowed_effects.add_type(effect)


def under_transformation() -> bool:
    """Tell whether jit, grad or another transformation is tracing a function."""
    return not core.trace_state_clean()


def register_lowering(primitive: Any, rule: Any) -> None:
    """Have every occurrence of the primitive lowered by itself."""
    # Newer versions lower equal ones once; they would get one name.
    options = inspect.signature(mlir.register_lowering).parameters
    mlir.register_lowering(
        primitive, rule, platform="cpu", **({"cacheable": False} if "cacheable" in options else {})
    )


def names_in_module(context: Any) -> dict[str, int]:
    """Return how often each name was given in the module that is being made."""
    # Kept with the module: what else is made of it shares this dictionary.
    kept: dict[str, int] = context.module_context.cached_primitive_lowerings.setdefault(
        "names of sirtaki", {}
    )
    return kept


def module_name(context: Any) -> str:
    """Return the name of the module that is being made: of the jitted function."""
    symbol = context.module_context.module.operation.attributes["sym_name"]
    return str(mlir.ir.StringAttr(symbol).value)


def devices_of_sharding(context: Any) -> int:
    """Return over how many devices XLA itself spreads the arrays of the program."""
    return int(getattr(context.module_context.axis_context, "num_devices", None) or 1)
