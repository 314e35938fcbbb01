"""Checks that precede every collective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from sirtaki.core.operations.collectives import members_of
from sirtaki.core.world import state
from sirtaki.core.world.participants import number_of
from sirtaki.core.world.process_sets import ProcessSet
from sirtaki.core.world.world import World
from sirtaki.jax import internals


def traced(arrays: Sequence[Any] = ()) -> bool:
    """Return whether a call is traced into a program of JAX, not executed now."""
    return internals.under_transformation() or any(
        isinstance(array, jax.core.Tracer) for array in arrays
    )


def require_member(process_set: ProcessSet) -> World:
    """Return the world, of whose process set this rank must be a member.

    Raises:
        HorovodInternalError: There is no world.
        ValueError: The set is not registered, or this rank is not in it.
    """
    world = state.world_for_operation()
    number_of(process_set)
    if not process_set.included():
        raise ValueError(f"rank {state.rank()} is not in the process set {process_set.ranks}")
    return world


def members(process_set: ProcessSet) -> int:
    """Return the number of ranks that take part; errors as `require_member`."""
    return members_of(require_member(process_set), process_set)


def position(process_set: ProcessSet) -> int:
    """Return this rank's index among the members."""
    return (process_set.ranks or []).index(state.rank())


def checked_name(name: str | None) -> str:
    """Return the name of an operation in a program; "": derived from its position there."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    return name or ""


def block(rows: int, ranks: int, position: int) -> int:
    """Return the number of rows for the rank at this index after scattering."""
    return rows // ranks + (position < rows % ranks)
