"""The scripts of `sirtaki new` train on TensorFlow, Keras and JAX."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sirtaki.new import main
from tests.single.launching import Job

LIMIT = 300
pytestmark = [pytest.mark.job, pytest.mark.nightly, pytest.mark.timeout(2 * LIMIT)]


@pytest.mark.parametrize("framework", ["keras", "tensorflow", "jax"])
def test_a_script_trains(tmp_path: Path, framework: str) -> None:
    path = tmp_path / "train.py"
    assert main([framework, str(path)]) == 0
    done = Job().run(
        *("-np", "2", "bash", "-c", f"cd '{tmp_path}' && {sys.executable} train.py"),
        limit=LIMIT,
        KERAS_BACKEND="tensorflow" if framework == "tensorflow" else "torch",
        TF_CPP_MIN_LOG_LEVEL="2",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if "loss" in line]
    assert len(losses) == 5
    assert losses[-1] < 0.5 * losses[0]
