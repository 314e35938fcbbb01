"""TensorFlow's tracing of our functions, and the names of operations, by which ranks match them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

from sirtaki.core.operations.collectives import full_name

Function = TypeVar("Function", bound=Callable[..., object])


def plain_python(function: Function) -> Function:
    """Keep `tf.function` from rewriting one of our functions, whose `if` never tests a tensor."""
    return cast("Function", tf.autograph.experimental.do_not_convert(function))


def unique_name(verb: str, name: str | None) -> str:
    """Return the name of a new operation.

    In eager mode, operations without a name are matched by order. Those of a graph run in any
    order, so they are counted during tracing, per graph, since one rank may trace a function more
    often than another.
    """
    if tf.executing_eagerly():
        return full_name(verb, name)
    graph = _counting(tf.compat.v1.get_default_graph())
    base = full_name(verb, "noname" if name is None else name)
    counts: Counter[str] | None = getattr(graph, "_sirtaki_names", None)
    if counts is None:
        counts = graph._sirtaki_names = Counter()
    counts[base] += 1
    number = "" if counts[base] == 1 else f".{counts[base]}"
    return f"{_name_of(graph)}{base}{number}"


def in_a_loop() -> bool:
    """Return whether tracing is inside a loop, whose iterations may run in parallel."""
    graph = tf.compat.v1.get_default_graph()
    while _is_part(graph):
        if "While" in type(graph).__name__:
            return True
        graph = graph.outer_graph
    return False


def _is_part(graph: Any) -> bool:
    """Return whether a graph is a branch, a loop's body, or the gradient of either."""
    return getattr(graph, "outer_graph", None) is not None and type(graph).__name__ != "FuncGraph"


def _counting(graph: Any) -> Any:
    while _is_part(graph):
        graph = graph.outer_graph
    return graph


def _name_of(graph: Any) -> str:
    """Return a prefix for the operations of a function, "" in a graph of TensorFlow 1.

    TensorFlow's numbers in names count all traces of a process, which differ among ranks.
    """
    name = getattr(graph, "name", "")
    return re.sub(r"_\d+", "", name) + "/" if name else ""
