"""Linux 3.17 is enough: a filter takes away every system call that came later."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tests.single.launching import LIMIT

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="knows the numbers of x86-64"),
]

MEMFD_CREATE = 319
FIRST_OF_3_18 = 321

# Answers ENOSYS to calls from a number on, or to one call, here and in all children.
_FILTERED = """
import ctypes, errno, os, struct, sys
first, only, *command = sys.argv[1:]
LOAD, AT_LEAST, EQUAL, RETURN = 0x20, 0x35, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.ENOSYS
steps = [(LOAD, 0, 0, 0), (AT_LEAST, 2, 0, int(first)), (EQUAL, 1, 0, int(only))]
steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))
program = Program(len(steps), ctypes.addressof(code))
library = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
assert library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
assert library.prctl(SECCOMP, FILTER, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()
os.execv(command[0], command)
"""
_RANK = """
import os, numpy, sirtaki
try:
    os.close(os.pidfd_open(os.getpid()))
except OSError as error:
    print("no pidfd_open:", error.errno)
sirtaki.init()
got = numpy.zeros(1 << 18)
waiting = sirtaki.irecv(got, 1 - sirtaki.rank())
sirtaki.send(numpy.full(1 << 18, 2.0), 1 - sirtaki.rank())
sirtaki.synchronize(waiting)
print(sirtaki.allreduce(numpy.ones(2), op=sirtaki.Sum), got.sum())
"""


def two_ranks(first: int, only: int) -> subprocess.CompletedProcess[str]:
    launch = ("-m", "sirtaki.launch.cli", "run", "-np", "2", sys.executable, "-c", _RANK)
    return subprocess.run(
        [sys.executable, "-c", _FILTERED, str(first), str(only), sys.executable, *launch],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_ranks_need_no_system_call_that_is_newer() -> None:
    done = two_ranks(FIRST_OF_3_18, FIRST_OF_3_18)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no pidfd_open: 38") == 2  # so the filter filters
    assert done.stdout.count("[2. 2.] 524288.0") == 2


def test_an_older_kernel_is_named() -> None:
    done = two_ranks(FIRST_OF_3_18, MEMFD_CREATE)
    assert done.returncode != 0
    assert "makes no files in memory (memfd_create)" in done.stderr
    assert "use Linux 3.17 or newer" in done.stderr
