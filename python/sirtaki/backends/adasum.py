"""Adasum from the products of the members' vectors, in double precision.

adasum(a, b) = (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b, and more by a binary tree.  Every node of
the tree is a linear combination of the members' vectors, so all coefficients follow from the
vectors' products with each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirtaki.core.operations import codes

_KINDS = {codes.F16: np.float16, codes.F32: np.float32, codes.F64: np.float64}


def to_double(data: NDArray[np.uint8], dtype: int) -> NDArray[np.float64]:
    """Return the elements in the bytes, converted from a floating-point dtype of the core."""
    if dtype == codes.BF16:
        upper = data.view(np.uint16).astype(np.uint32) << np.uint32(16)
        return np.asarray(upper.view(np.float32), np.float64)
    return np.asarray(data.view(_KINDS[dtype]), np.float64)


def coefficients(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factor of each member's vector.

    Args:
        gram: The inner products of the members' vectors.
    """
    members = len(gram)
    nodes: list[NDArray[np.float64]] = list(np.eye(members))
    power = 1 << (members.bit_length() - 1)
    # Members beyond a power of two are combined first.
    for extra in range(power, members):
        _combine(gram, nodes, extra - power, extra)
    distance = 1
    while distance < power:
        for node in range(0, power - distance, 2 * distance):
            _combine(gram, nodes, node, node + distance)
        distance *= 2
    return nodes[0]


def _combine(gram: NDArray[np.float64], nodes: list[NDArray[np.float64]], a: int, b: int) -> None:
    across = float(nodes[a] @ gram @ nodes[b])
    weight_a = _weight(across, float(nodes[a] @ gram @ nodes[a]))
    weight_b = _weight(across, float(nodes[b] @ gram @ nodes[b]))
    nodes[a] = weight_a * nodes[a] + weight_b * nodes[b]


def _weight(across: float, square: float) -> float:
    """Return the weight of a zero vector does not matter."""
    return 1.0 - across / (2.0 * square) if square > 0 else 1.0
