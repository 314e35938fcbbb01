"""All ranks come to the same bits, whatever floating-point state the thread of a rank is in."""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import sirtaki as hvd

_libm = ctypes.CDLL("libm.so.6")
_X86 = platform.machine() == "x86_64"
# Where glibc's fenv_t has the control word of the processor, and which bits of it say what.
_OFFSET = 28 if _X86 else 0
_WORDS = (
    {"flush to zero": 0x8040, "down": 0x2000, "up": 0x4000, "toward zero": 0x6000}
    if _X86
    else {"flush to zero": 1 << 24, "down": 2 << 22, "up": 1 << 22, "toward zero": 3 << 22}
)
SIZES = (1, 5000, 100_000)


@contextmanager
def control_word(bits: int) -> Iterator[None]:
    """Change how this thread computes."""
    before = ctypes.create_string_buffer(64)
    _libm.fegetenv(before)
    changed = ctypes.create_string_buffer(before.raw, 64)
    word = ctypes.c_uint32.from_buffer(changed, _OFFSET)
    word.value |= bits
    _libm.fesetenv(changed)
    try:
        yield
    finally:
        _libm.fesetenv(before)


def bits_of(mode: str, op: int, dtype: type, size: int) -> tuple[bytes, ...]:
    """Reduce numbers that are rounded, and denormal ones, in several ways."""
    least = 1e-40 if dtype is np.float32 else 1e-310 if dtype is np.float64 else 6e-8
    values = np.where(np.arange(size) % 2, 1 / (3 + hvd.rank()), least).astype(dtype)
    in_place = values.copy()
    word = _WORDS.get(mode, 0) if hvd.rank() == 0 else 0
    with control_word(word):
        blocking = hvd.allreduce(values, op=op)
        started = hvd.allreduce_async(values, op=op)
        waited_for = hvd.synchronize(started)
        handle = hvd.allreduce_async_(in_place, op=op)
        while not hvd.poll(handle):
            time.sleep(0)
        hvd.synchronize(handle)
        results = [blocking, waited_for, in_place]
        if op != hvd.Adasum:
            results.append(hvd.reducescatter(values, op=op))
    return tuple(result.tobytes() for result in results)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, hvd.Adasum], ids=("sum", "average", "adasum"))
def test_results_do_not_depend_on_the_state_of_one_ranks_thread(op: int, dtype: type) -> None:
    for size in SIZES:
        expected = bits_of("default", op, dtype, size)
        for mode in _WORDS:
            assert bits_of(mode, op, dtype, size) == expected, (size, mode)
        assert len({every[0] for every in hvd.allgather_object(expected)}) == 1


def test_the_caller_has_its_own_state_back() -> None:
    for mode, bits in _WORDS.items():
        with control_word(bits):
            hvd.allreduce(np.ones(1000, np.float32))
            after = ctypes.create_string_buffer(64)
            _libm.fegetenv(after)
        word = ctypes.c_uint32.from_buffer(after, _OFFSET).value
        assert word & 0xE040 == bits & 0xE040 if _X86 else word & bits == bits, mode
