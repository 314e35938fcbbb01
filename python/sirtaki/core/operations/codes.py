"""The core's numbers of operations, of the formats in which it sends float32, and of dtypes."""

from __future__ import annotations

from typing import Final

from sirtaki import _core

# Operations.
ALLREDUCE: Final = _core.KINDS["allreduce"]
ALLGATHER: Final = _core.KINDS["allgather"]
BROADCAST: Final = _core.KINDS["broadcast"]
ALLTOALL: Final = _core.KINDS["alltoall"]
REDUCESCATTER: Final = _core.KINDS["reducescatter"]
BARRIER: Final = _core.KINDS["barrier"]
REDUCE: Final = _core.KINDS["reduce"]
GATHER: Final = _core.KINDS["gather"]
SCATTER: Final = _core.KINDS["scatter"]
JOIN: Final = _core.KINDS["join"]
ADD_SET: Final = _core.KINDS["add_process_set"]
REMOVE_SET: Final = _core.KINDS["remove_process_set"]
KIND_NAMES: Final = {number: name for name, number in _core.KINDS.items()}

# What is sent, for users, by the names of the codecs and in the order of their numbers.
FORMATS: Final = _core.CODECS
NO_CODEC: Final = 0
# The supported pairs of a codec and a reduction.
CODED_REDUCTIONS: Final = frozenset(
    (codec, op)
    for codec in range(len(_core.CODECS))
    for op in _core.REDUCTIONS.values()
    if _core.has_coded_reduction(codec, op)
)

# Types of elements.
BOOL: Final = _core.DTYPES["bool"]
U8: Final = _core.DTYPES["uint8"]
I8: Final = _core.DTYPES["int8"]
I16: Final = _core.DTYPES["int16"]
I32: Final = _core.DTYPES["int32"]
I64: Final = _core.DTYPES["int64"]
F16: Final = _core.DTYPES["float16"]
BF16: Final = _core.DTYPES["bfloat16"]
F32: Final = _core.DTYPES["float32"]
F64: Final = _core.DTYPES["float64"]

U16: Final = _core.DTYPES["uint16"]
U32: Final = _core.DTYPES["uint32"]
U64: Final = _core.DTYPES["uint64"]
C32: Final = _core.DTYPES["complex32"]
C64: Final = _core.DTYPES["complex64"]
C128: Final = _core.DTYPES["complex128"]

# All of them, and those that can also be reduced, by the frameworks' names.
DTYPES: Final = _core.DTYPES
REDUCED_DTYPES: Final = {
    name: code for name, code in _core.DTYPES.items() if code < _core.REDUCIBLE_DTYPES
}
DTYPE_NAMES: Final = {code: name for name, code in _core.DTYPES.items()}

# Bytes of an element, by code.
DTYPE_BYTES: Final = _core.DTYPE_BYTES

FLOATING: Final = frozenset((F16, BF16, F32, F64))
COMPLEX: Final = frozenset((C32, C64, C128))
