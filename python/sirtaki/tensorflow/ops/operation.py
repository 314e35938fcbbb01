"""One collective: at once in eager mode, else as a node of a graph."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from sirtaki.core.operations import codecs, kinds
from sirtaki.core.operations.reduce_ops import Sum
from sirtaki.tensorflow.ops.library import compiled
from sirtaki.tensorflow.ops.names import in_a_loop

_NAMES = {
    kinds.ALLREDUCE: "sirtaki_allreduce",
    kinds.ALLGATHER: "sirtaki_allgather",
    kinds.BROADCAST: "sirtaki_broadcast",
    kinds.ALLTOALL: "sirtaki_alltoall",
    kinds.REDUCESCATTER: "sirtaki_reducescatter",
    kinds.BARRIER: "sirtaki_barrier",
    kinds.JOIN: "sirtaki_join",
}


@dataclass(frozen=True)
class GraphOperation:
    """What a collective does; the numbers are the core's.

    Attributes:
        ordered: It keeps its place in a `tf.function`, and runs also if nobody uses its results.
            Others run when their inputs are there, several at a time.
    """

    kind: int
    name: str = ""
    reduce_op: int = Sum
    root_rank: int = 0
    process_set: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    codec: int = codecs.NONE
    ordered: bool = False

    def run(self, tensors: Sequence[Any] = (), splits: Any = None) -> list[Any]:
        """Return the results: one for each tensor; then received splits, or the last to join.

        Args:
            tensors: Of one dtype.
            splits: Of an alltoall: 1-D, int32.
        """
        if compiled() is None:
            from sirtaki.tensorflow.ops import python_operations

            return python_operations.run(self, tensors, splits)
        # Rounds of a loop share the operation's name: they must not run at the same time.
        ordered = self.ordered or in_a_loop()
        run = getattr(compiled(), _NAMES[self.kind] + ("_ordered" if ordered else ""))
        tickets = [] if ordered else [_ticket()]
        result = run(*self._inputs(tensors, splits), *tickets, **self._attributes())
        return [result] if self.kind in (kinds.BARRIER, kinds.JOIN) else list(result)

    def _inputs(self, tensors: Sequence[Any], splits: Any) -> list[Any]:
        if self.kind in (kinds.BARRIER, kinds.JOIN):
            return []
        return [tensors[0], splits] if self.kind == kinds.ALLTOALL else [list(tensors)]

    def _attributes(self) -> dict[str, Any]:
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
        """Return what a node of a graph does."""

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


def _ticket() -> Any:
    """Return what keeps TensorFlow from running operations of constants ahead."""
    return 0 if tf.executing_eagerly() else compiled().sirtaki_ticket()


def _bits(factor: float) -> int:
    """Attributes of type float have but 32 bits."""
    return int(struct.unpack("<q", struct.pack("<d", factor))[0])


def _factor(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])
