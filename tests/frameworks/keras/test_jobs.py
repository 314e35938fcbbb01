"""Whole jobs: a rank that dies in `fit`, and the examples, on every backend of Keras."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.single.launching import HOROVODRUN, Job, python

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
LIMIT = 240
KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}

BACKENDS = {
    **{name: {"KERAS_BACKEND": name} for name in ("tensorflow", "torch", "jax")},
    "keras2": KERAS_2,
}
pytestmark = pytest.mark.timeout(2 * LIMIT)


def run(job: Job, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HOROVODRUN, "-np", "2", *command],
        env={**job.environment, **ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@pytest.mark.slow
def test_the_program_of_the_page_runs(job: Job) -> None:
    page = (EXAMPLES.parent / "docs" / "keras.md").read_text()
    program = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    done = run(job, *python(program), KERAS_BACKEND="torch")
    assert done.returncode == 0, done.stderr


DYING = """
import os, signal, threading, time
import numpy as np
import horovod.keras as hvd
from sirtaki.keras.library import keras
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
x, y = np.ones((4000, 8), "f"), np.ones((4000, 4), "f")
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)

class Dies(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if hvd.rank() == 1 and batch == 20:
            os.kill(os.getpid(), signal.SIGKILL)

try:
    model.fit(x, y, batch_size=1, epochs=1000, verbose=0, callbacks=[broadcast, Dies()])
except Exception as error:
    print("told:", " ".join(str(error).split()), flush=True)
try:
    print("weights:", np.isfinite(model.get_weights()[0]).all(), flush=True)
except Exception as error:
    print("weights lost:", " ".join(str(error).split()), flush=True)
"""


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param(variables, id=name, marks=() if name == "tensorflow" else pytest.mark.slow)
        for name, variables in BACKENDS.items()
    ],
)
def test_a_rank_that_is_killed_in_fit_raises_on_the_others(
    job: Job, variables: dict[str, str]
) -> None:
    options = ("--termination-grace-seconds", "60")
    done = run(job, *options, *python(DYING), **variables)
    assert done.returncode != 0
    told = re.search(r"^\[0\]<stdout>:told: (.*)", done.stdout, re.MULTILINE)
    assert told is not None, done.stdout + done.stderr
    assert "rank 1" in told[1]
    # XLA has given the memory of the weights to the step that failed.
    kept = "weights lost: " if variables.get("KERAS_BACKEND") == "jax" else "weights: True"
    assert f"[0]<stdout>:{kept}" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "variables"),
    [
        *(("keras_mnist.py", variables) for variables in BACKENDS.values()),
        ("tensorflow2_keras_mnist.py", {}),
        ("tensorflow2_mnist.py", {}),
    ],
    ids=[*BACKENDS, "tf.keras", "tape"],
)
def test_digits_are_learnt(script: str, variables: dict[str, str], job: Job) -> None:
    arguments = ("--epochs", "4", "--compare-single")
    done = run(job, sys.executable, str(EXAMPLES / script), *arguments, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout
    accuracy = re.search(r"^\[0\]<stdout>:Test accuracy: ([\d.]+)%$", output, re.MULTILINE)
    assert accuracy is not None, output
    assert float(accuracy[1]) > 80
    assert re.search(r"^\[0\]<stdout>:Speed: \d+ images/s over 2 processes$", output, re.MULTILINE)
    speed_up = r"^\[0\]<stdout>:Speed-up: \d+\.\d+ over one process alone \(\d+ images/s\)$"
    assert re.search(speed_up, output, re.MULTILINE)
    assert "[1]<stdout>" not in output
