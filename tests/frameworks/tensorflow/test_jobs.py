"""Whole jobs: an example, a rank that dies, other frameworks, environments that do not fit."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import DOCS, programs
from tests.single.launching import HOROVODRUN, Job, python

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
LIMIT = 300

pytestmark = pytest.mark.timeout(2 * LIMIT)


def run(
    job: Job, *command: str, ranks: int = 2, folder: Path | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    environment = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", **extra}
    return subprocess.run(
        [*HOROVODRUN, "-np", str(ranks), sys.executable, *command],
        env={**job.environment, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        cwd=folder,
    )


def test_a_script_in_the_style_of_tensorflow_1_learns_and_keeps_checkpoints(
    job: Job, tmp_path: Path
) -> None:
    script = str(EXAMPLES / "tensorflow1_style_mnist.py")
    arguments = ("--steps", "200", "--compare-single", "--checkpoint-dir", str(tmp_path))
    done = run(job, script, *arguments)
    assert done.returncode == 0, done.stderr
    assert re.search(r"test accuracy: [789]\d\.\d%", done.stdout), done.stdout
    assert re.search(r"Speed-up: \d\.\d\d over one process alone", done.stdout), done.stdout
    assert list(tmp_path.glob("model.ckpt-100.*"))


HANGS = """
import time
import tensorflow as tf
import sirtaki.tensorflow as hvd
hvd.init()
step = tf.function(lambda x: hvd.allreduce(x, name="grad"))
step(tf.ones(3))
if hvd.rank() == 1:
    time.sleep(4)
step(tf.ones(3)).numpy()
"""


@pytest.mark.nightly
def test_a_job_that_hangs_is_told_who_is_missing_and_where_it_is(job: Job) -> None:
    flags = ("--stall-check-warning-time-seconds", "1")
    done = job.run(*flags, "-np", "2", *python(HANGS), limit=LIMIT, TF_CPP_MIN_LOG_LEVEL="3")
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"; rank 1 held up rank 0\n  allreduce '[^']*grad[^']*' has waited for \d s; "
        r"called by rank 0; missing ranks: 1 \(localhost\)\n",
        done.stderr,
    ), done.stderr
    assert re.search(r"\n  rank 1 .*\n      <string>:9 in <module>", done.stderr), done.stderr


def programs_of_the_page() -> list[str]:
    blocks = programs(DOCS / "reference/tensorflow.md")
    return [block.replace("20000", "20") for block in blocks if "hvd.init()" in block]


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["functions", "style of TensorFlow 1"])
def test_a_program_of_the_page_runs(job: Job, number: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(programs_of_the_page()[number])
    done = run(job, str(program), folder=tmp_path)
    assert done.returncode == 0, done.stderr


DYING = """
import os, signal, threading
import tensorflow as tf
import sirtaki.tensorflow as hvd
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()
weight = tf.Variable(1.0)
function = tf.function if {traced} else (lambda f: f)

@function
def step():
    weight.assign_add(hvd.allreduce(tf.constant(1.0), name="gradient"))

step()
if hvd.rank() == 1:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
try:
    while True:
        step()
except tf.errors.AbortedError as error:
    print("told:", "rank 1" in str(error), "kept:", float(weight) > 1, flush=True)
"""


@pytest.mark.parametrize("traced", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_rank_that_is_killed_is_an_error_of_the_others_who_keep_their_weights(
    job: Job, traced: bool
) -> None:
    done = run(job, "-c", DYING.format(traced=traced))
    assert done.returncode != 0
    assert "told: True kept: True" in done.stdout, done.stderr


THREE = """
import {modules}
import jax.numpy as jnp
import sirtaki.jax, sirtaki.tensorflow, sirtaki.torch
sirtaki.torch.init()
n = sirtaki.torch.size()
assert float(sirtaki.torch.allreduce(torch.ones(1), op=sirtaki.torch.Sum)) == n
assert float(sirtaki.tensorflow.allreduce(tensorflow.ones(1), op=sirtaki.torch.Sum)[0]) == n
assert float(jax.jit(lambda x: sirtaki.jax.allreduce(x, op=sirtaki.torch.Sum))(jnp.ones(1))[0]) == n
"""


# Each of them first, and each of them last.
ORDERS = [
    ("torch", "tensorflow", "jax"),
    pytest.param(("tensorflow", "jax", "torch"), marks=pytest.mark.nightly),
    pytest.param(("jax", "torch", "tensorflow"), marks=pytest.mark.nightly),
]


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_three_frameworks_share_a_process_in_any_order(job: Job, order: tuple[str, ...]) -> None:
    done = run(job, "-c", THREE.format(modules=", ".join(order)))
    assert done.returncode == 0, done.stderr


IN_PYTHON = """
import tensorflow as tf
import sirtaki.tensorflow as hvd
hvd.init()
n, r = hvd.size(), hvd.rank()

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum)) * (r + 1.0)
    rows, splits = hvd.alltoall(tf.range(2 * n), splits=[2] * n)
    return tape.gradient(loss, x), hvd.allgather(x[: r + 1]), hvd.reducescatter(x, op=hvd.Sum), rows

gradient, gathered, scattered, rows = step(tf.ones(4))
assert gradient.numpy().tolist() == [n * (n + 1) / 2] * 4
assert gathered.shape[0] == n * (n + 1) / 2
assert scattered.shape[0] == 4 // n and rows.shape[0] == 2 * n
variable = tf.Variable([float(r)] * 2)
hvd.broadcast_variables([variable, tf.Variable(1)], 0)
assert variable.numpy().tolist() == [0.0, 0.0]
try:
    hvd.allreduce(tf.ones(2 + r))
    assert n == 1
except tf.errors.FailedPreconditionError as error:
    assert "tensor shapes" in str(error)
assert int(hvd.join()) in range(n)
"""


@pytest.mark.slow
def test_operations_in_python_take_the_place_of_those_that_do_not_fit(job: Job) -> None:
    done = run(job, "-c", IN_PYTHON, SIRTAKI_TF_OPS="0")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("device", ["CPU:1", "GPU:0"])
def test_the_check_for_gpus_passes_on_another_device_and_says_where_there_is_none(
    device: str, job: Job
) -> None:
    done = run(job, str(Path(__file__).parents[2] / "gpu" / "check_tensorflow.py"), device)
    if device == "CPU:1":
        assert done.returncode == 0, done.stderr
    else:
        assert "not tried: TensorFlow sees no GPU" in done.stderr


def test_without_tensorflow_a_plain_sentence_says_what_to_install(job: Job) -> None:
    program = "import sys; sys.modules['tensorflow'] = None; import horovod.tensorflow"
    done = run(job, "-c", program, ranks=1)
    assert "sirtaki.tensorflow needs TensorFlow 2.16 or later: pip install" in done.stderr


@pytest.mark.parametrize("framework", ["tensorflow", "tensorflow.keras", "keras"])
def test_elastic_training_has_horovods_names(framework: str) -> None:
    ours = importlib.import_module(f"sirtaki.{framework}.elastic")
    assert importlib.import_module(f"horovod.{framework}.elastic") is ours
    assert importlib.import_module(f"horovod.{framework}").elastic.run is ours.run
