"""Small helpers, under Horovod's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Caches a function's result for the same arguments.
_cache = functools.cache


def _executing_eagerly() -> bool:
    """Return whether operations run at once: in eager mode, outside of a `tf.function`."""
    return bool(tf.executing_eagerly())


def _make_subgraph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is traced once, like `tf.function`."""
    traced: Callable[..., Any] = tf.function(function)
    return traced


def vars_to_refs(vars: Any) -> Any:
    """Return hashable references to variables; lists become tuples.

    Args:
        vars: A variable, or a list or tuple of variables, nested to any depth.
    """
    if isinstance(vars, list | tuple):
        return tuple(vars_to_refs(each) for each in vars)
    return vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Return the variables of the references from `vars_to_refs`; tuples become lists.

    Args:
        refs: The result of `vars_to_refs`.
    """
    if isinstance(refs, tuple):
        return [refs_to_vars(each) for each in refs]
    return refs.deref()
