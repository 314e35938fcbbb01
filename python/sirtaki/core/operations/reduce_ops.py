"""Reduction constants: plain ints with Horovod's values."""

from __future__ import annotations

from typing import Final

from sirtaki._core import REDUCTIONS

Average: Final = REDUCTIONS["Average"]
Sum: Final = REDUCTIONS["Sum"]
Adasum: Final = REDUCTIONS["Adasum"]
Min: Final = REDUCTIONS["Min"]
Max: Final = REDUCTIONS["Max"]
Product: Final = REDUCTIONS["Product"]

# The operators of Horovod's functions.
NAMES: Final = {number: name for name, number in REDUCTIONS.items() if not name.startswith("Bit")}

# For interfaces that have them; integers and bools only.
BitAnd: Final = REDUCTIONS["BitAnd"]
BitOr: Final = REDUCTIONS["BitOr"]
BitXor: Final = REDUCTIONS["BitXor"]
