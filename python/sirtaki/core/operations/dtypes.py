"""Codes of element types, as numbered by the core."""

from __future__ import annotations

from typing import Final

from sirtaki._core import DTYPE_BYTES, DTYPES, REDUCIBLE_DTYPES

BOOL: Final = DTYPES["bool"]
U8: Final = DTYPES["uint8"]
I8: Final = DTYPES["int8"]
I16: Final = DTYPES["int16"]
I32: Final = DTYPES["int32"]
I64: Final = DTYPES["int64"]
F16: Final = DTYPES["float16"]
BF16: Final = DTYPES["bfloat16"]
F32: Final = DTYPES["float32"]
F64: Final = DTYPES["float64"]

U16: Final = DTYPES["uint16"]
U32: Final = DTYPES["uint32"]
U64: Final = DTYPES["uint64"]
C32: Final = DTYPES["complex32"]
C64: Final = DTYPES["complex64"]
C128: Final = DTYPES["complex128"]

# All of them, and those that can also be reduced, by the frameworks' names.
CODES: Final = DTYPES
REDUCED: Final = {name: code for name, code in DTYPES.items() if code < REDUCIBLE_DTYPES}
NAMES: Final = {code: name for name, code in DTYPES.items()}

# Bytes of an element, by code.
BYTES: Final = DTYPE_BYTES

FLOATING: Final = frozenset((F16, BF16, F32, F64))
COMPLEX: Final = frozenset((C32, C64, C128))
