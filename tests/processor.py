"""What this machine's processor can do, as the kernel says it."""

from __future__ import annotations

import re
from pathlib import Path


def kernel_level() -> str:
    """What `sirtaki._core.kernel_level()` is to be here."""
    found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    flags = set(found[1].split()) if found else set[str]()
    if not {"avx2", "f16c"} <= flags:
        return "baseline"
    return "AVX-512" if {"avx512f", "avx512bw"} <= flags else "AVX2"
