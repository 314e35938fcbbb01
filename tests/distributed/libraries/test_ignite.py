"""Ignite's own tests of its backend for Horovod, from the source archive of its version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests import needs

LIMIT = 600
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(2 * LIMIT)]
FILES = ("comp_models/test_horovod.py", "utils/test_horovod.py")


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_ignites_tests_of_horovod_pass(tmp_path: Path) -> None:
    version = needs.package("ignite").__version__
    archive = ("--no-deps", "--no-binary", "pytorch-ignite", f"pytorch-ignite=={version}")
    run("-m", "pip", "download", "--quiet", *archive, folder=tmp_path)
    (found,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(found) as tar:
        tests = [each for each in tar.getmembers() if "/tests/" in each.name]
        tar.extractall(tmp_path, tests, filter="data")
    # Without its sources, so that the package is the installed one.
    folder = tmp_path / f"pytorch_ignite-{version}"
    files = [f"tests/ignite/distributed/{name}" for name in FILES]
    told = run("-m", "pytest", "-q", "-p", "no:cacheprovider", *files, folder=folder)
    passed = re.search(r"(\d+) passed", told)
    assert passed is not None, told
    assert int(passed[1]) >= 10, told
