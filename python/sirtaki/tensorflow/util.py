"""Small helpers, under Horovod's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Remembers what a function has returned for the same arguments.
_cache = functools.cache


def _executing_eagerly() -> bool:
    """Tell whether operations run at once: in eager mode, outside of a `tf.function`."""
    return bool(tf.executing_eagerly())


def _make_subgraph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is traced once, as `tf.function` does it."""
    traced: Callable[..., Any] = tf.function(function)
    return traced


def vars_to_refs(vars: Any) -> Any:
    """Return references to variables, which can be hashed; lists become tuples."""
    if isinstance(vars, list | tuple):
        return tuple(vars_to_refs(each) for each in vars)
    return vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Return the variables of the references from `vars_to_refs`; tuples become lists."""
    if isinstance(refs, tuple):
        return [refs_to_vars(each) for each in refs]
    return refs.deref()
