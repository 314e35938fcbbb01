"""`make` builds the wheels again when what they are made of has changed, and only then."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
READS = ("Makefile",)
LIMIT = 60
FILES = (
    "pyproject.toml",
    "CMakeLists.txt",
    "compat/horovod/pyproject.toml",
    "sirtaki-caffe/pyproject.toml",
    "sirtaki-caffe/python/caffe.py",
    "cpp/core.cpp",
    "tests/cpp/test.cpp",
    "tests/fuzz/fuzz.cpp",
    "python/sirtaki.py",
    "third_party/header.h",
    "tools/requirements-build.txt",
)
# Stands for Python and pip, which would need minutes; it writes a wheel when it is asked for one.
PYTHON = """#!/bin/sh
case "$*" in
  -VV) echo "Python $(cat version)" ;;
  "-m pip wheel"*) mkdir -p dist; touch dist/a.whl; echo built >> calls ;;
  *--force-reinstall*) echo installed >> calls ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    (tmp_path / ".venv/.requirements-build").touch()
    (tmp_path / "version").write_text("3.12")
    make(tmp_path)
    return tmp_path


def make(tree: Path, target: str = "dist/.built") -> None:
    subprocess.run(["make", target], cwd=tree, check=True, capture_output=True, timeout=LIMIT)


def touch_all(tree: Path) -> None:
    """Make every file newer than the wheels, as a new clone or another branch does."""
    later = (tree / "dist/.built").stat().st_mtime + 10
    for name in FILES:
        os.utime(tree / name, (later, later))


def builds(tree: Path) -> int:
    return len((tree / "calls").read_text().splitlines())


def test_the_same_files_are_built_once_however_new_they_are(tree: Path) -> None:
    touch_all(tree)
    make(tree)
    assert builds(tree) == 1


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("tests/")])
def test_a_changed_file_is_built_again(tree: Path, name: str) -> None:
    touch_all(tree)
    (tree / name).write_text("changed")
    make(tree)
    assert builds(tree) == 2


def test_a_removed_file_is_built_again(tree: Path) -> None:
    touch_all(tree)
    (tree / "python/sirtaki.py").unlink()
    (tree / "python/other.py").write_text("python/sirtaki.py")
    make(tree)
    assert builds(tree) == 2


def test_wheels_are_installed_again_when_they_have_changed_and_not_for_a_folders_time(
    tree: Path,
) -> None:
    """Tests of one stage may be importing the package while another stage begins."""
    for change in ("none", "time", "content"):
        if change != "none":
            touch_all(tree)
        if change == "content":
            (tree / "python/sirtaki.py").write_text("changed")
        make(tree, ".venv/.installed")
    calls = (tree / "calls").read_text().split()
    assert calls == ["built", "installed", "built", "installed"]


def test_another_python_builds_its_own(tree: Path) -> None:
    touch_all(tree)
    (tree / "version").write_text("3.13")
    make(tree)
    assert builds(tree) == 2


def test_wheels_that_went_are_built_again(tree: Path) -> None:
    shutil.rmtree(tree / "dist")
    make(tree)
    assert builds(tree) == 2
