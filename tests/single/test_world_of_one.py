"""Wheels for macOS and Windows: a world of one, without the compiled core."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import sirtaki
from sirtaki import _core

ROOT = Path(__file__).resolve().parents[2]
ALONE = ROOT / "python" / "alone" / "_core.py"
SCRIPT = Path(__file__).with_name("world_of_one_script.py")
_PATIENCE = 300  # PyTorch imports all of its compiler

# Takes away what a system lacks that Linux has, but not before PyTorch is there.
_LESS = """
import ctypes, faulthandler, os, runpy, signal, socket, sys
import torch, torch._dynamo, torch.distributed
import numpy.testing, pytest
system, script = sys.argv[1:]
NOWHERE = {
    os: ["sched_getaffinity", "sched_setaffinity", "eventfd", "memfd_create"],
    signal: ["SIGRTMIN", "SIGRTMAX"],
    socket: ["SO_PEERCRED", "SO_PASSCRED"],
}
NOT_ON_WINDOWS = {
    os: ["register_at_fork", "fork", "getuid", "geteuid", "uname", "killpg", "setsid", "sysconf"],
    signal: ["SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGSTOP", "pthread_sigmask"],
    socket: ["AF_UNIX", "send_fds", "recv_fds"],
    faulthandler: ["register"],
}
for module, names in [*NOWHERE.items(), *(NOT_ON_WINDOWS.items() if system == "win32" else ())]:
    for name in names:
        delattr(module, name)
if system == "win32":
    for name in ("fcntl", "termios", "resource", "pwd", "grp", "pty", "tty", "syslog"):
        sys.modules[name] = None
    linux = ctypes.CDLL
    class CDLL(linux):
        def __init__(self, name, *arguments, **more):
            if name is None:
                raise TypeError("LoadLibrary() argument 1 must be str, not None")
            super().__init__(name, *arguments, **more)
    ctypes.CDLL = CDLL
sys.platform = system
runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what such a wheel holds."""
    folder = tmp_path_factory.mktemp("packages")
    installed = Path(sirtaki.__file__).parent
    shutil.copytree(
        installed, folder / "sirtaki", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    shutil.copy(ALONE, folder / "sirtaki")
    return folder


@pytest.mark.job
@pytest.mark.timeout(_PATIENCE)
@pytest.mark.parametrize(
    "system",
    ["win32", pytest.param("darwin", marks=pytest.mark.slow)],  # lacks less
)
def test_a_script_of_one_rank_runs_without_what_linux_has(system: str, package: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LESS, system, str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        env={**os.environ, "PYTHONPATH": str(package)},
        check=False,
    )
    assert done.stdout == "all of it works\n", done.stderr
    assert "starts and watches processes on Linux only" in done.stderr


@pytest.fixture(scope="module")
def alone() -> ModuleType:
    spec = importlib.util.spec_from_file_location("alone", ALONE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_numbers_everything_as_the_compiled_core_does(alone: ModuleType) -> None:
    for name in ("KINDS", "DTYPES", "DTYPE_BYTES", "REDUCIBLE_DTYPES", "REDUCTIONS"):
        assert getattr(alone, name) == getattr(_core, name)
    assert [*_core.CODECS.items()][: len(alone.CODECS)] == [*alone.CODECS.items()]
    for codec, op in itertools.product(range(len(alone.CODECS)), _core.REDUCTIONS.values()):
        assert alone.has_coded_reduction(codec, op) == _core.has_coded_reduction(codec, op)


def test_its_functions_take_what_the_compiled_cores_take(alone: ModuleType) -> None:
    stub = ast.parse((ROOT / "python" / "sirtaki" / "_core.pyi").read_text())
    declared = {
        node.name: [argument.arg for argument in node.args.args]
        for node in stub.body
        if isinstance(node, ast.FunctionDef)
    }
    for node in ast.parse(ALONE.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name in declared:
            assert [argument.arg for argument in node.args.args] == declared[node.name]


_SAMPLES = [0, 1, 2, 3, 100, 127, 128, 200, 255, 1e5, 3e9, 1.5, 0.1, -1, -2.5, 7e4, 1e-7, 65504]


@pytest.mark.parametrize("name", [*_core.DTYPES][: _core.REDUCIBLE_DTYPES])
@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.3, 1.0), (1.0, 1e6), (-0.5, 7.0)])
@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_scaling_gives_the_bits_of_the_compiled_core(
    alone: ModuleType, name: str, op: str, factors: tuple[float, float]
) -> None:
    kind = {"bfloat16": "float16", "complex32": "float16"}.get(name, name)
    with np.errstate(all="ignore"):
        data = np.resize(np.array(_SAMPLES).astype(kind), 64).view(np.uint8)
    if name == "bool":
        data = np.arange(64, dtype=np.uint8)
    dtype = _core.DTYPES[name]
    count = data.size // _core.DTYPE_BYTES[dtype]
    expected = np.empty_like(data)
    _core.reduce(
        _core.address(expected),
        [_core.address(data)],
        dtype,
        _core.REDUCTIONS[op],
        count,
        *factors,
    )
    found = alone._scaled(data, dtype, _core.REDUCTIONS[op], *factors)
    assert found.tobytes() == expected.tobytes()
