"""The same source gives the same bytes, wherever it lies."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wheels.conftest import LIMIT, ROOT, WHEELS
from tools.wheels.build import environment
from tools.wheels.interpreters import builders, found

pytestmark = [pytest.mark.job, pytest.mark.timeout(LIMIT)]


def copy_of_the_source(folder: Path) -> None:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def test_a_copy_in_another_folder_gives_the_same_files(tmp_path: Path) -> None:
    source, output = tmp_path / "elsewhere", tmp_path / "output"
    copy_of_the_source(source)
    chosen = builders(found())[0]
    command = ["-m", "tools.wheels", "--python", chosen.path, "--output", str(output)]
    subprocess.run(
        [sys.executable, *command, "--architecture", platform.machine()],
        check=True,
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": environment()["SOURCE_DATE_EPOCH"]},
        timeout=LIMIT,
    )
    made = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in output.iterdir()}
    kept = {name: hashlib.sha256((WHEELS / name).read_bytes()).hexdigest() for name in made}
    assert any(f"-{chosen.tag}-" in name for name in made)
    assert made == kept
