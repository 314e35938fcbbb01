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

FLOATING: Final = frozenset((F16, BF16, F32, F64))
