"""Files in memory, with and without the help of Python."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sirtaki.doctor import probe
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.processes.local import require_system
from sirtaki.rendezvous.files import memory_file
from tests.single.launching import Job, python

# As a Python that was built for glibc 2.17 comes up.
OLD_PYTHON = """
import fcntl, os
for module in (os, fcntl):
    for name in list(vars(module)):
        if name.startswith(("memfd_", "MFD_", "F_SEAL_", "F_ADD_SEALS", "F_GET_SEALS")):
            delattr(module, name)
"""
REDUCE = python(
    "import os, numpy, sirtaki\n"
    "assert not hasattr(os, 'memfd_create')\n"
    "sirtaki.init()\n"
    "print(sirtaki.allreduce(numpy.ones(3), op=sirtaki.Sum))"
)


class _OldLibrary:
    """A C library without `memfd_create`."""

    def __init__(self, name: None, use_errno: bool) -> None:
        self.syscall = _LIBRARY.syscall


_LIBRARY = ctypes.CDLL(None, use_errno=True)


class _OldKernel(_OldLibrary):
    def syscall_refused(self, *arguments: Any) -> int:
        ctypes.set_errno(errno.ENOSYS)
        return -1

    def __init__(self, name: None, use_errno: bool) -> None:
        self.syscall = self.syscall_refused


@pytest.fixture
def old_python(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delattr(os, "memfd_create")
    return monkeypatch


def sealed_file() -> tuple[str, bool, int]:
    """The name of a new file, whether it is closed on exec, and its seals."""
    file = memory_file.create("some name", sealable=True)
    try:
        memory_file.add_seals(file, memory_file.SHRINK | memory_file.GROW)
        with pytest.raises(PermissionError):
            os.ftruncate(file, 1)
        name = str(Path(f"/proc/self/fd/{file}").readlink())
        return name, os.get_inheritable(file), memory_file.seals_of(file)
    finally:
        os.close(file)


SEALED = ("/memfd:some name (deleted)", False, memory_file.SHRINK | memory_file.GROW)


def test_a_file_in_memory_is_closed_on_exec_and_keeps_its_seals() -> None:
    assert sealed_file() == SEALED


def test_where_python_makes_none_the_c_library_does(old_python: pytest.MonkeyPatch) -> None:
    assert sealed_file() == SEALED


@pytest.mark.skipif(
    platform.machine() not in memory_file._SYSCALLS, reason="the number is not known"
)
def test_where_the_c_library_makes_none_the_kernel_does(old_python: pytest.MonkeyPatch) -> None:
    old_python.setattr(ctypes, "CDLL", _OldLibrary)
    assert sealed_file() == SEALED


@pytest.mark.parametrize("machine", [platform.machine(), "a machine that nobody knows"])
def test_a_kernel_without_files_in_memory_is_named(
    old_python: pytest.MonkeyPatch, machine: str
) -> None:
    old_python.setattr(ctypes, "CDLL", _OldKernel)
    named = SimpleNamespace(machine=machine, release=platform.release())
    old_python.setattr(os, "uname", lambda: named)
    words = r"the kernel of \S+ \(.*\) makes no files in memory .* Linux 3\.17 or newer"
    with pytest.raises(OSError, match=words):
        memory_file.create("some name")
    with pytest.raises(LaunchError, match=words):
        require_system()


def test_doctor_finds_files_in_memory_without_pythons_help(old_python: pytest.MonkeyPatch) -> None:
    found = {finding.name: finding for finding in probe.system()}
    assert found["memory files"].works, found["memory files"].detail


def test_ranks_run_on_a_python_that_makes_no_files_in_memory(job: Job, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(OLD_PYTHON)
    done = job.run("-np", "2", *REDUCE, PYTHONPATH=str(tmp_path))
    assert done.stdout.count("[2. 2. 2.]") == 2, done.stderr
