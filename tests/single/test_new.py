"""`sirtaki new`: scripts to start from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sirtaki.new import FRAMEWORKS, main, script
from tests.single.launching import LIMIT, SIRTAKI, Job


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_there_is_a_script_for_each_framework(framework: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    assert main([framework, str(path)]) == 0
    assert path.read_text() == script(framework)
    compile(path.read_text(), str(path), "exec")


def test_a_file_that_exists_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.py"
    path.write_text("mine")
    assert main(["jax", str(path)]) == 2
    assert path.read_text() == "mine"
    assert f"{path} exists and is not overwritten" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["jax", str(tmp_path / "none" / "train.py")]) == 2
    assert "train.py: No such file or directory" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.job
def test_the_script_for_pytorch_trains_as_the_output_says(tmp_path: Path) -> None:
    path = tmp_path / "my script.py"
    done = subprocess.run(
        [*SIRTAKI, "new", "pytorch", str(path)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert f"  sirtaki run -np 2 python '{path}'\n" in done.stdout
    trained = Job().run(
        "-np", "2", *("bash", "-c", f"cd '{tmp_path}' && {sys.executable} '{path}'")
    )
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert "[0]<stdout>:epoch 5: loss 0.0" in trained.stdout
    assert "[1]" not in trained.stdout
    assert (tmp_path / "model.pt").exists()
