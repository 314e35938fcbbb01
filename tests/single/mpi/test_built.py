"""Whether there is an MPI that could be used."""

from __future__ import annotations

import ctypes.util
import importlib.util
import shutil

import pytest

from sirtaki.backends import mpi


@pytest.mark.parametrize(
    ("package", "program", "library", "built"),
    [
        (True, "/usr/bin/mpirun", None, True),
        (True, None, "libmpi.so.40", True),
        (True, None, None, False),
        (False, "/usr/bin/mpirun", "libmpi.so.40", False),
    ],
)
def test_mpi_is_built_where_mpi4py_has_an_mpi_to_work_with(
    monkeypatch: pytest.MonkeyPatch,
    package: bool,
    program: str | None,
    library: str | None,
    built: bool,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: package or None)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: program)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: library)
    assert mpi.built() is built
