"""What pip installs: the wheel is what its tag says, and the name horovod has one owner."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sirtaki
from sirtaki.interface import HOROVOD_VERSION, second_owner_of_horovod
from tests.single.launching import LIMIT, SIRTAKI

pytestmark = pytest.mark.job

ROOT = Path(__file__).resolve().parents[3]
BUILD_LIMIT = 600
# The wheel's tag says that it is for all of these.
STABLE_ABI = range(12, 15)
_CAN_BUILD_AND_INSTALL = """
import ensurepip, pathlib, sys, sysconfig, venv
header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
sys.exit(sysconfig.get_config_var("Py_GIL_DISABLED") == 1 or not header.exists())
"""


def candidates(minor: int) -> list[str]:
    name = f"python3.{minor}"
    home = Path.home()
    found = [
        *home.glob(f".pyenv/versions/3.{minor}.*/bin/{name}"),
        *home.glob(f".local/share/uv/python/cpython-3.{minor}.*/bin/{name}"),
    ]
    return [path for path in (shutil.which(name), *map(str, found)) if path]


def usable(python: str) -> bool:
    command = [python, "-c", _CAN_BUILD_AND_INSTALL]
    return subprocess.run(command, capture_output=True, timeout=LIMIT, check=False).returncode == 0


@pytest.fixture(scope="module")
def two_pythons() -> list[str]:
    found = [next(filter(usable, candidates(minor)), None) for minor in STABLE_ABI]
    pythons = [python for python in found if python]
    if len(pythons) < 2:
        pytest.skip(f"needs two Pythons of 3.12 or newer with headers; here are {pythons}")
    return pythons[:2]


def pip(python: Path | str, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", *arguments], check=True, timeout=BUILD_LIMIT)


@pytest.mark.timeout(2 * BUILD_LIMIT)
@pytest.mark.nightly
def test_one_wheel_serves_two_pythons(two_pythons: list[str], tmp_path: Path) -> None:
    pip(
        two_pythons[0],
        *("wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)),
        *("--config-settings", f"build-dir={tmp_path / 'build'}"),
        *("--config-settings", "cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0"),
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp312-abi3-" in wheel.name
    for number, python in enumerate(two_pythons):
        venv = tmp_path / f"venv{number}"
        subprocess.run([python, "-m", "venv", venv], check=True, timeout=LIMIT)
        pip(venv / "bin" / "python", "install", str(wheel))
        code = "import numpy, sirtaki; sirtaki.init(); print(sirtaki.allreduce(numpy.ones(2)))"
        done = subprocess.run(
            [venv / "bin" / "python", "-c", code],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            cwd=tmp_path,
        )
        assert (done.stdout, done.stderr) == ("[1. 1.]\n", "")


def test_the_distribution_horovod_holds_no_code_and_needs_sirtaki() -> None:
    distribution = importlib.metadata.distribution("horovod")
    assert distribution.version == f"{HOROVOD_VERSION}+sirtaki"
    assert distribution.requires is not None
    assert "sirtaki" in distribution.requires
    assert distribution.files is not None
    assert {path.parts[0] for path in distribution.files} == {
        f"horovod-{distribution.version}.dist-info"
    }


_MET = "Requirement already satisfied: horovod"


@pytest.mark.parametrize("requirement", ["horovod", "horovod>=0.27", "horovod[pytorch]==0.28.1"])
def test_requirements_that_name_horovod_are_met(requirement: str) -> None:
    command = ["install", "--dry-run", "--no-index", "--no-deps", requirement]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *command],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Some versions of pip leave out the extra here, and name the whole requirement behind it.
    [line] = [line for line in done.stdout.splitlines() if line.startswith(_MET)]
    assert requirement in line


@pytest.fixture
def beside_horovod(tmp_path: Path) -> Path:
    """A folder of packages where Horovod itself has been installed too."""
    installed = Path(sirtaki.__file__).parents[1]
    for name in ("horovod", "sirtaki"):
        (tmp_path / name).symlink_to(installed / name)
    (tmp_path / "horovod-0.28.1.dist-info").mkdir()
    return tmp_path


def run_beside(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment
    )


def test_beside_a_real_horovod_the_import_says_so_and_works(beside_horovod: Path) -> None:
    done = run_beside(beside_horovod, sys.executable, "-c", "import horovod; print(horovod.run)")
    assert "function run" in done.stdout
    assert f"two packages own the name horovod in {beside_horovod}" in done.stderr
    assert "Sirtaki and Horovod 0.28.1" in done.stderr
    assert "pip uninstall sirtaki horovod" in done.stderr


def test_beside_a_real_horovod_the_doctor_says_so(beside_horovod: Path) -> None:
    done = run_beside(beside_horovod, *SIRTAKI, "doctor", "--quick")
    assert "[ ] horovod          two packages own the name horovod" in done.stdout


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("horovod-0.28.1.dist-info", "0.28.1"),
        ("horovod-0.19.5-py3.11.egg-info", "0.19.5"),
        ("horovod-0.28.1+sirtaki.dist-info", None),
        ("horovod_tools-0.28.1.dist-info", None),
        ("horovod", None),
    ],
)
def test_a_second_owner_is_known_by_its_folder(
    tmp_path: Path, name: str, version: str | None
) -> None:
    (tmp_path / name).mkdir()
    advice = second_owner_of_horovod(tmp_path)
    assert advice is None if version is None else f"Horovod {version}." in str(advice)


def test_without_a_second_owner_the_import_is_silent() -> None:
    done = run_beside(Path("/"), sys.executable, "-W", "error", "-c", "import horovod")
    assert (done.returncode, done.stderr) == (0, "")


def refusal_of_cmake(compiler: str, folder: Path) -> str:
    """The words with which CMake ends when it finds this compiler."""
    done = subprocess.run(
        [Path(sys.executable).parent / "cmake", "-S", ROOT, "-B", folder / "build"],
        env={**os.environ, "CXX": compiler},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode != 0
    words = " ".join(done.stderr.split())
    assert words.count("CMake Error") == 1
    assert len(done.stderr.splitlines()) < 10
    return words


def test_without_a_compiler_a_sentence_says_what_to_install(tmp_path: Path) -> None:
    words = refusal_of_cmake("no-such-compiler", tmp_path)
    assert "Sirtaki needs a C++20 compiler and finds none: install GCC 12 or Clang 16" in words


def test_a_compiler_that_is_too_old_is_named(tmp_path: Path) -> None:
    old = tmp_path / "g++"
    old.write_text('#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=11 "$@"\n')
    old.chmod(0o755)
    words = refusal_of_cmake(str(old), tmp_path)
    assert "Sirtaki needs a C++20 compiler, GCC 12 or Clang 16, or newer;" in words
    assert f"{old} is GNU 11." in words
