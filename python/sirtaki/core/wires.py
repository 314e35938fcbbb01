"""What float32 numbers are rounded to on their way, as the core numbers it."""

from __future__ import annotations

from typing import Final

from sirtaki._core import WIRES

NONE: Final = WIRES["none"]
F16: Final = WIRES["float16"]
BF16: Final = WIRES["bfloat16"]
