"""Each wheel installs without a compiler, runs on every Python that it is for, and gives the same
bits as the source build."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests import processor
from tests.needs import missing
from tests.single.test_ending import THREAD_IN_A_CALL
from tests.wheels.conftest import LIMIT, WHEELS, run_ranks, wheel
from tools.wheels import emulated
from tools.wheels.interpreters import STABLE_ABI, Interpreter, found

pytestmark = [pytest.mark.job, pytest.mark.timeout(LIMIT)]

HERE = platform.machine()
KEPT = WHEELS.parent / "build" / "wheels" / "emulated"
PYTHONS = found()
# The oldest NumPy that there is for a Python, where pyproject.toml's is older.
OLDEST_NUMPY = {(3, 10): "1.23.0", (3, 11): "1.23.2", (3, 12): "1.26.0", (3, 13): "2.1.0"}


def tag(version: tuple[int, int]) -> str:
    return "abi3" if version >= STABLE_ABI else "cp{}{}-".format(*version)


def fresh(folder: Path, python: Interpreter, numpy: str) -> Path:
    """An environment with NumPy, and the Python in it."""
    subprocess.run([python.path, "-m", "venv", str(folder)], check=True, timeout=LIMIT)
    own = folder / "bin" / "python"
    pip_install(own, f"numpy=={numpy}" if numpy else "numpy", "cloudpickle", "PyYAML")
    return own


def pip_install(python: Path, *what: str, **extra: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", *what]
    subprocess.run(command, check=True, timeout=LIMIT, env={**os.environ, **extra})


@pytest.mark.parametrize("numpy", ["oldest", "newest"])
@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.tag)
def test_a_wheel_runs_in_a_fresh_environment(
    python: Interpreter, numpy: str, tmp_path: Path, from_source: dict[int, dict[str, Any]]
) -> None:
    release = OLDEST_NUMPY.get(python.version, "") if numpy == "oldest" else ""
    own = fresh(tmp_path / "venv", python, release)
    begin = time.monotonic()
    # No program but Python's own, so no compiler.
    pip_install(own, "--no-index", str(wheel(tag(python.version), HERE)), PATH="/nowhere")
    seconds = time.monotonic() - begin
    print(f"{python.tag}, NumPy {release or 'newest'}: installed in {seconds:.1f} s")
    for ranks, expected in from_source.items():
        assert run_ranks([str(own.with_name("horovodrun"))], ranks, str(own)) == expected


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.tag)
def test_a_wheel_reduces_by_the_widest_instructions_of_the_processor(
    python: Interpreter, tmp_path: Path
) -> None:
    """Zig's library says of every processor that it has none of them."""
    zipfile.ZipFile(wheel(tag(python.version), HERE)).extractall(tmp_path)
    code = "from sirtaki import _core; print(_core.kernel_level())"
    level = subprocess.check_output([python.path, "-c", code], text=True, cwd=tmp_path)
    assert level.strip() == processor.kernel_level()


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.tag)
def test_a_thread_in_a_call_does_not_abort_the_process_that_ends(
    python: Interpreter, tmp_path: Path
) -> None:
    """Zig's C++ library cannot unwind what glibc's exit of a thread unwinds."""
    zipfile.ZipFile(wheel(tag(python.version), HERE)).extractall(tmp_path)
    subprocess.run([python.path, "-c", THREAD_IN_A_CALL], check=True, cwd=tmp_path, timeout=LIMIT)


@pytest.mark.parametrize(("suite", "version"), [("bookworm", (3, 11)), ("trixie", (3, 13))])
def test_the_wheel_for_aarch64_runs_in_an_emulator(
    suite: str, version: tuple[int, int], from_source: dict[int, dict[str, Any]]
) -> None:
    reason = emulated.why_not()
    if reason is not None:
        pytest.skip(missing(reason))
    python = emulated.make(KEPT, suite)
    assert python.version == "{}.{}".format(*version)
    needed = ("numpy", "cloudpickle", "PyYAML")
    emulated.install(sys.executable, python, *needed, str(wheel(tag(version), "aarch64")))
    # Only the ranks are emulated.
    launcher = [str(Path(sys.executable).with_name("horovodrun"))]
    assert run_ranks(launcher, 2, str(python.command)) == from_source[2]


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
@pytest.mark.parametrize("abi", ["cp310-", "cp311-", "abi3"])
def test_a_compiled_wheel_has_licences_and_a_bill(abi: str, architecture: str) -> None:
    archive = zipfile.ZipFile(wheel(abi, architecture))
    names = archive.namelist()
    (bill,) = (name for name in names if name.endswith(".dist-info/sboms/sirtaki.cdx.json"))
    parts = {part["name"]: part for part in json.loads(archive.read(bill))["components"]}
    assert set(parts) == {"nanobind", "robin-map", "xla-ffi", "libc++"}
    for licence in ("LICENSE", "third_party/xla_ffi/LICENSE", "nanobind.txt", "robin-map.txt"):
        assert any(name.endswith(f".dist-info/licenses/{licence}") for name in names), names
    assert not any(name.endswith("sirtaki/_core.py") for name in names)


@pytest.mark.parametrize("system", ["macosx_11_0_universal2", "win_amd64"])
def test_wheels_for_other_systems_have_the_core_of_one_rank(system: str) -> None:
    names = zipfile.ZipFile(wheel(f"py3-none-{system}")).namelist()
    assert "sirtaki/_core.py" in names
    assert not any(name.endswith(".so") for name in names)


def test_no_wheel_of_sirtaki_is_for_any_system() -> None:
    """pip would prefer it to the source where there is no compiled one."""
    assert not list(WHEELS.glob("sirtaki-*none-any.whl"))
    for name in ("sirtaki_caffe", "horovod"):
        assert len(list(WHEELS.glob(f"{name}-*-py3-none-any.whl"))) == 1
