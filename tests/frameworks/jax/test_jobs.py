"""Whole jobs: examples, a rank that dies, and environments that do not fit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import DOCS, programs
from tests.single.launching import HOROVODRUN, Job, python

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
LIMIT = 300

pytestmark = [pytest.mark.job, pytest.mark.timeout(2 * LIMIT)]


def run(job: Job, script: str, *arguments: str) -> str:
    command = (sys.executable, str(EXAMPLES / script), *arguments)
    done = subprocess.run(
        [*HOROVODRUN, "-np", "2", *command],
        env={**job.environment, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_digits_are_learnt_and_training_continues_from_a_checkpoint(
    job: Job, tmp_path: Path
) -> None:
    arguments = ("--checkpoint", str(tmp_path / "state"), "--epochs", "2")
    output = run(job, "jax_mnist.py", *arguments, "--compare-single")
    assert re.search(r"^\[0\]<stdout>:Test accuracy: [89]\d\.\d+%", output, re.MULTILINE), output
    assert re.search(r"Speed-up: \d+\.\d\d over one process alone", output), output
    again = run(job, "jax_mnist.py", *arguments)
    assert "epoch" not in again
    assert re.search(r"Test accuracy: .*", again).group() in output


HANGS = """
import time
import jax, jax.numpy as jnp
import sirtaki.jax as hvd
hvd.init()
step = jax.jit(lambda x: hvd.allreduce(x, name="grad"))
step(jnp.ones(3)).block_until_ready()
if hvd.rank() == 1:
    time.sleep(4)
step(jnp.ones(3)).block_until_ready()
"""


@pytest.mark.slow
def test_a_job_that_hangs_is_told_who_is_missing_and_where_it_is(job: Job) -> None:
    flags = ("--stall-check-warning-time-seconds", "1")
    done = job.run(*flags, "-np", "2", *python(HANGS), limit=LIMIT, **ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"; rank 1 held up rank 0\n  allreduce '[^']*grad[^']*' has waited for \d s; "
        r"called by rank 0; missing ranks: 1 \(localhost\)\n",
        done.stderr,
    ), done.stderr
    assert re.search(r"\n  rank 1 .*\n      <string>:9 in <module>", done.stderr), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [("--fp16-allreduce",), pytest.param((), marks=pytest.mark.nightly)]
)
def test_the_synthetic_benchmark_says_how_fast(job: Job, more: tuple[str, ...]) -> None:
    short = "--width 64 --depth 2 --num-warmup-batches 1 --num-batches-per-iter 1 --num-iters 2"
    output = run(job, "jax_synthetic_benchmark.py", *short.split(), *more)
    assert re.search(r"Total rows/sec on 2 CPU\(s\): \d+\.\d \+-", output), output


@pytest.mark.nightly
def test_the_elastic_example_continues_from_its_checkpoint(job: Job, tmp_path: Path) -> None:
    arguments = ("jax_elastic.py", "--checkpoints", str(tmp_path / "points"), "--epochs")
    assert "epoch 1/1" in run(job, *arguments, "1")
    again = run(job, *arguments, "2")
    assert "continues from step 50" in again
    assert "epoch 2/2" in again


DYING = """
import os, signal, sys, threading
import jax, jax.numpy as jnp
import sirtaki.jax as hvd
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()
params = jnp.ones(1000)
step = jax.jit(lambda x: hvd.allreduce(x, name="gradients") + 1)
step(params)
if hvd.rank() == 1:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
try:
    while True:
        params = jax.block_until_ready({call})
except {error} as error:
    print("told:", error, "kept:", float(params[0]) > 1, flush=True)
"""


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("step(params)", "jax.errors.JaxRuntimeError"),
        ("hvd.allreduce(params, name='gradients') + 1", "hvd.PeerLostError"),
    ],
    ids=["jit", "eager"],
)
def test_a_rank_that_is_killed_raises_on_the_others_and_their_weights_stay(
    job: Job, call: str, error: str
) -> None:
    code = DYING.replace("{call}", call).replace("{error}", error)
    flags = ("--termination-grace-seconds", "20")
    done = job.run(*flags, "-np", "2", *python(code), limit=LIMIT, **ENVIRONMENT)
    assert done.returncode == 1
    assert "status code 137" in done.stderr
    assert re.search(r"(?s)told: .*rank 1.* kept: True", done.stdout), done.stdout + done.stderr


def after_shutdown(call: str) -> str:
    """What a collective in one process says after the world's end."""
    code = f"""
import jax, jax.numpy as jnp
import sirtaki.jax as hvd
hvd.init()
f = jax.jit(lambda x: hvd.allreduce(x))
f(jnp.ones(2))
hvd.shutdown()
try:
    jax.block_until_ready({call})
except Exception as error:
    print(type(error).__name__, error)
"""
    return subprocess.check_output([sys.executable, "-c", code], text=True)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("f(jnp.ones(2))", "JaxRuntimeError"),
        ("f(jnp.ones(3))", "HorovodInternalError"),
        ("hvd.allreduce(jnp.ones(2))", "HorovodInternalError"),
    ],
    ids=["compiled", "being_compiled", "eager"],
)
def test_without_a_world_calls_say_so(call: str, error: str) -> None:
    told = after_shutdown(call)
    assert told.startswith(error)
    assert "has not been initialized; use hvd.init()" in told


def test_without_optax_the_optimizer_is_a_pair_of_functions(tmp_path: Path) -> None:
    (tmp_path / "optax.py").write_text("raise ImportError('no optax')")
    code = """
from types import SimpleNamespace
import jax.numpy as jnp
import horovod.jax as hvd
hvd.init()
sgd = SimpleNamespace(init=lambda p: (), update=lambda g, s, p=None: (-g, s))
tx = hvd.DistributedOptimizer(sgd)
updates, _ = tx.update(jnp.ones(2), tx.init(jnp.ones(2)))
print(updates.tolist())
"""
    told = subprocess.check_output(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        text=True,
    )
    assert told == "[-1.0, -1.0]\n"


def test_horovods_name_is_the_same_module() -> None:
    code = "import horovod.jax, sirtaki.jax; print(horovod.jax is sirtaki.jax)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True\n"


@pytest.mark.slow
def test_the_code_of_the_page_runs_alone() -> None:
    code = programs(DOCS / "reference/jax.md")
    assert code
    subprocess.run([sys.executable, "-c", "\n".join(code)], check=True, timeout=LIMIT)


@pytest.mark.nightly
def test_the_benchmark_compares_with_jaxs_own_processes(tmp_path: Path) -> None:
    script = EXAMPLES.parent / "benchmarks" / "jax_step.py"
    arguments = ("--steps", "1", "--width", "64", "--output", str(tmp_path))
    shown = subprocess.check_output([sys.executable, str(script), *arguments], text=True)
    assert "a step of 2 ranks against one process alone at most 1.3" in shown
    timings = json.loads((tmp_path / "jax_step.json").read_text())["timings"]
    assert {"step, one process", "step, Sirtaki", "step, JAX's processes"} < set(timings)
    assert all(taken["median"] > 0 for taken in timings.values())
