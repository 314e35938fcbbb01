"""All uses of JAX interfaces without a stability promise."""

from __future__ import annotations

import functools
from typing import Any

from jax._src import core, effects
from jax.interpreters import mlir


class CollectiveEffect(effects.Effect):  # type: ignore[misc]
    """Keeps collectives with unused results, because other ranks may use theirs."""

    def __str__(self) -> str:
        return "Collective"


def allow_everywhere(effect: type[CollectiveEffect]) -> None:
    """Allow an effect in loops, branches, custom derivatives and `jax.checkpoint`."""
    effects.lowerable_effects.add_type(effect)
    effects.control_flow_allowed_effects.add_type(effect)
    effects.custom_derivatives_allowed_effects.add_type(effect)
    effects.remat_allowed_effects.add_type(effect)


def under_transformation() -> bool:
    """Return whether jit, grad or another transformation is tracing a function."""
    return not core.trace_state_clean()


class _Lowered(dict[Any, Any]):
    """JAX's cache of lowered functions in a module, without those that contain collectives.

    These are lowered at each occurrence: reused, they would repeat their names.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        parts = (key, *key) if isinstance(key, tuple) else (key,)
        if not any(map(_has_collectives, parts)):
            super().__setitem__(key, value)


def _has_collectives(part: Any) -> bool:
    found = getattr(part, "effects", ())
    return any(isinstance(effect, CollectiveEffect) for effect in found)


def lower_every_occurrence() -> None:
    """Make JAX lower every occurrence of a collective, also in functions called twice."""
    initialise = mlir.ModuleContext.__init__

    @functools.wraps(initialise)
    def with_our_caches(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        for name in ("lowering_cache", "cached_primitive_lowerings"):
            if type(getattr(self, name, None)) is dict:
                setattr(self, name, _Lowered(getattr(self, name)))

    mlir.ModuleContext.__init__ = with_our_caches


def names_in_module(context: Any) -> dict[str, int]:
    """Return the use count of each name in the module being made."""
    # Stored with the module, so that everything made from it shares this dictionary.
    kept: dict[str, int] = context.module_context.cached_primitive_lowerings.setdefault(
        "names of sirtaki", {}
    )
    return kept


def module_name(context: Any) -> str:
    """Return the name of the module being made, which is the jitted function's."""
    symbol = context.module_context.module.operation.attributes["sym_name"]
    return str(mlir.ir.StringAttr(symbol).value)


def devices_of_sharding(context: Any) -> int:
    """Return the number of devices over which XLA itself shards the program's arrays."""
    return int(getattr(context.module_context.axis_context, "num_devices", None) or 1)
