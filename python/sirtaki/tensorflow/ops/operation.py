"""The description of a TensorFlow collective."""

from __future__ import annotations

import ctypes
import os
import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf

import sirtaki
from sirtaki import ffi
from sirtaki.core.operations import codes
from sirtaki.core.operations.reduce_ops import Sum


@dataclass(frozen=True)
class GraphOperation:
    """A collective and its arguments; the numbers are the core's.

    Attributes:
        ordered: It keeps its position in a `tf.function`, and runs even if its results are unused.
            Others run when their inputs are ready, several at a time.
    """

    kind: int
    name: str = ""
    reduce_op: int = Sum
    root_rank: int = 0
    process_set: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    codec: int = codes.NO_CODEC
    ordered: bool = False

    def inputs(self, tensors: Sequence[Any], splits: Any) -> list[Any]:
        """Return the inputs of the compiled operation."""
        if self.kind in (codes.BARRIER, codes.JOIN):
            return []
        return [tensors[0], splits] if self.kind == codes.ALLTOALL else [list(tensors)]

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the compiled operation."""
        return {
            "tensor_name": self.name,
            "reduce_op": self.reduce_op,
            "root_rank": self.root_rank,
            "process_set": self.process_set,
            "codec": self.codec,
            "prescale_bits": _bits(self.prescale),
            "postscale_bits": _bits(self.postscale),
        }

    @staticmethod
    def of_node(kind: int, node: Any) -> GraphOperation:
        """Return the operation of a graph's node."""

        def number(name: str) -> int:
            return int(node.get_attr(name))

        return GraphOperation(
            kind,
            tf.compat.as_str(node.get_attr("tensor_name")),
            number("reduce_op"),
            number("root_rank"),
            number("process_set"),
            _factor(number("prescale_bits")),
            _factor(number("postscale_bits")),
            number("codec"),
        )

    def but(self, **changes: Any) -> GraphOperation:
        """Return the operation with other attributes."""
        return replace(self, **changes)


def _bits(factor: float) -> int:
    """Return the bits of a double as an integer, since float attributes have only 32 bits."""
    return int(struct.unpack("<q", struct.pack("<d", factor))[0])


def _factor(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


@cache
def compiled() -> Any:
    """Return the module of compiled operations, or None if they cannot be used.

    `SIRTAKI_TF_OPS=0` disables them. Without them, operations run as Python functions of the graph,
    which is slower, and the graph cannot be saved with them.
    """
    if os.environ.get("SIRTAKI_TF_OPS") == "0":
        return None
    path = str(Path(sirtaki.__file__).with_name("libsirtaki_tf.so"))
    try:
        operations = tf.load_op_library(path)
        connect = ctypes.CDLL(path).sirtaki_tf_connect
    except (tf.errors.OpError, OSError, AttributeError) as error:
        return _unfit(str(error))
    connect.argtypes = [ctypes.c_void_p]
    connect.restype = ctypes.c_char_p
    problem = connect(ffi.address())
    return _unfit(problem.decode()) if problem else operations


def _unfit(why: str) -> None:
    warnings.warn(
        f"the compiled operations do not serve TensorFlow {tf.__version__} ({why}); slower ones, "
        "in Python, take their place",
        RuntimeWarning,
        stacklevel=2,
    )
