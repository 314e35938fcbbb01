"""The treatment of our functions by TensorFlow's tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import tensorflow as tf

Function = TypeVar("Function", bound=Callable[..., object])


def plain_python(function: Function) -> Function:
    """Keep `tf.function` from rewriting one of our functions, whose `if` never tests a tensor."""
    return cast("Function", tf.autograph.experimental.do_not_convert(function))
