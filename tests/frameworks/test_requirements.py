"""What an import says where a framework is missing or too old; modules stand in for these."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NEEDED = {
    "jax": "ImportError: sirtaki.jax needs JAX 0.6 or later: pip install 'jax>=0.6'",
    "tensorflow": "ImportError: sirtaki.tensorflow needs TensorFlow 2.16 or later: "
    "pip install 'tensorflow>=2.16'",
    "keras": "ImportError: sirtaki.keras needs Keras 3: pip install 'keras>=3.8'",
}


def refusal(name: str, source: str, folder: Path) -> str:
    """Return the last line of what an import says that finds this source as the framework."""
    (folder / f"{name}.py").write_text(source)
    environment = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    path = f"{folder}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-c", f"import sirtaki.{name}"],
        env={**environment, "PYTHONPATH": path.strip(os.pathsep)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("name", NEEDED)
def test_a_framework_that_is_missing(name: str, tmp_path: Path) -> None:
    assert refusal(name, f"raise ImportError('no {name}')", tmp_path) == NEEDED[name]


def test_a_jax_that_is_too_old(tmp_path: Path) -> None:
    stand_in = "__version__ = '0.5.3'\n__version_info__ = (0, 5, 3)"
    assert refusal("jax", stand_in, tmp_path) == f"{NEEDED['jax']}; here is JAX 0.5.3"


@pytest.mark.parametrize("version", ["1.15.5", "2.15.1", "2.9.0-rc2"])
def test_a_tensorflow_that_is_too_old(version: str, tmp_path: Path) -> None:
    line = refusal("tensorflow", f"__version__ = {version!r}", tmp_path)
    assert line == f"{NEEDED['tensorflow']}; here is TensorFlow {version}"


def test_a_keras_that_is_too_old(tmp_path: Path) -> None:
    assert refusal("keras", "__version__ = '2.15.0'", tmp_path) == (
        "ImportError: sirtaki.keras needs Keras 3, not 2.15.0: pip install 'keras>=3.8'; for Keras "
        "2, pip install tf_keras and set TF_USE_LEGACY_KERAS=1"
    )


def test_a_keras_so_old_that_this_tensorflow_breaks_it(tmp_path: Path) -> None:
    # As of Keras 2.15 on TensorFlow 2.21.
    stand_in = "import types\ntypes.ModuleType('tensorflow').register_load_context_function"
    assert refusal("keras", stand_in, tmp_path) == NEEDED["keras"]
