"""Whole jobs: a rank that dies in `fit`, and the examples, on every backend of Keras."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import DOCS, programs
from tests.single.launching import HOROVODRUN, Job, python

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
LIMIT = 300
KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}

BACKENDS = {
    **{name: {"KERAS_BACKEND": name} for name in ("tensorflow", "torch", "jax")},
    "keras2": KERAS_2,
}
pytestmark = pytest.mark.timeout(2 * LIMIT)
NIGHTLY = pytest.mark.nightly


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
    [program] = programs(DOCS / "reference/keras.md")
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
        pytest.param(variables, id=name, marks=() if name == "tensorflow" else NIGHTLY)
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


GRAPH = """
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
from tensorflow.compat.v1 import keras
import horovod.tensorflow.keras as hvd
hvd.init()
r = hvd.rank()
x = np.random.RandomState(5).rand(64, 8).astype("float32")
y = x.sum(1, keepdims=True)
tf.set_random_seed(r)

def model(passes=1):
    optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
    made = keras.Sequential([keras.layers.Dense(1, use_bias=False, input_shape=(8,))])
    made.compile(hvd.DistributedOptimizer(optimizer, backward_passes_per_step=passes), "mse")
    return made

def fit(model, *callbacks, **options):
    own = slice(32 * r, 32 * r + 32)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), *callbacks]
    options.update(batch_size=8, shuffle=False, verbose=0, callbacks=callbacks)
    return model.fit(x[own], y[own], **options).history

def alone(w, passes):
    velocity = 0
    for step in range(0, 32, 8 * passes):
        gradient = 0
        for first in range(step, step + 8 * passes, 8):
            rows = np.r_[first : first + 8, 32 + first : 40 + first]
            gradient += 2 * x[rows].T @ (x[rows] @ w - y[rows]) / 16
        velocity = 0.5 * velocity - 0.1 * gradient
        w = w + velocity
    return w

for passes in (1, 2):
    trained = model(passes)
    begin = hvd.broadcast(trained.get_weights()[0], 0)
    fit(trained)
    np.testing.assert_allclose(trained.get_weights()[0], alone(begin, passes), rtol=1e-5)

warmup = hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2)
rates = fit(model(), warmup, hvd.callbacks.MetricAverageCallback(), epochs=3)["lr"]
np.testing.assert_allclose(rates, [0.075, 0.1, 0.1], rtol=1e-6)

assert hvd.allreduce(tf.constant(float(r)), op=hvd.Sum) == 1.0
own = keras.backend.variable(float(r))
hvd.broadcast_global_variables(1)
assert keras.backend.get_value(own) == 1.0
"""


def test_models_in_graphs_of_tensorflow_1_train_as_one_process_does(job: Job) -> None:
    done = run(job, *python(GRAPH), **KERAS_2)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "variables"),
    [
        pytest.param("keras_mnist.py", BACKENDS["torch"], id="torch"),
        pytest.param("keras_mnist.py", BACKENDS["keras2"], id="keras2"),
        pytest.param("keras_mnist.py", BACKENDS["tensorflow"], id="tensorflow", marks=NIGHTLY),
        pytest.param("keras_mnist.py", BACKENDS["jax"], id="jax", marks=NIGHTLY),
        pytest.param("tensorflow2_keras_mnist.py", {}, id="tf.keras", marks=NIGHTLY),
        pytest.param("tensorflow2_mnist.py", {}, id="tape", marks=NIGHTLY),
    ],
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
