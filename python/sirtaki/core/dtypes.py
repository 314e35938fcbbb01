"""Codes of element types, as the core numbers them."""

from __future__ import annotations

from typing import Final

BOOL: Final = 0
U8: Final = 1
I8: Final = 2
I16: Final = 3
I32: Final = 4
I64: Final = 5
F16: Final = 6
BF16: Final = 7
F32: Final = 8
F64: Final = 9

# Types that are moved but not reduced, by the name that frameworks have for them.
MOVED: Final = {
    "uint16": 10,
    "uint32": 11,
    "uint64": 12,
    "complex32": 13,
    "complex64": 14,
    "complex128": 15,
    "float8_e4m3fn": 16,
    "float8_e4m3fnuz": 17,
    "float8_e5m2": 18,
    "float8_e5m2fnuz": 19,
    "float8_e8m0fnu": 20,
    "float4_e2m1fn_x2": 21,
}

# Of an element, by its code.
BYTES: Final = (1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 1, 1, 1)

FLOATING: Final = frozenset((F16, BF16, F32, F64))
