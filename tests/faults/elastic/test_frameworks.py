"""Each framework goes on in a smaller world, with nothing left of the size of the old one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests import needs
from tests.single.launching import Job

BACKENDS_OF_NIGHTLY = [
    pytest.param(name, marks=pytest.mark.nightly) for name in ("tensorflow", "jax")
]

DIE = """
import os, signal
def die(step):
    if os.environ["SIRTAKI_PROCESS"] == "1" and step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
"""
# A sum over all ranks, divided by their number, is 1; the number is compiled in.
JAX = """
import jax, jax.numpy as jnp
import sirtaki.jax as hvd
hvd.init()
@jax.jit
def update(w):
    return w + hvd.allreduce(jnp.ones(3), op=hvd.Sum) / hvd.size()
@hvd.elastic.run
def train(state):
    while state.step < 10:
        die(state.step)
        state.w = update(state.w)
        state.w.block_until_ready()
        state.step += 1
        state.commit()
    return hvd.size(), state.w.tolist()
print(train(hvd.elastic.JaxState(w=jnp.zeros(3), step=0)))
"""
# The size is in what Dynamo compiles.
COMPILED = """
import torch
import horovod.torch as hvd
hvd.init()
@torch.compile(backend="eager")
def share(w):
    return w / hvd.size()
@hvd.elastic.run
def train(state):
    while state.step < 10:
        die(state.step)
        state.w = state.w + hvd.allreduce(share(torch.ones(3)), op=hvd.Sum)
        state.step += 1
        state.commit()
    return hvd.size(), state.w.tolist()
print(train(hvd.elastic.TorchState(w=torch.zeros(3), step=0)))
"""
# PyTorch's own groups move the data of devices: a loss aborts them, the next world makes others.
INNER = """
import torch
import horovod.torch as hvd
from sirtaki.torch.device import layer
from tests.parallel.device.fake_device import FakeDevice
torch.set_num_threads(1)
hvd.init()
layer.devices["cpu"] = FakeDevice(os.environ["SIRTAKI_PROCESS"], eager=True)
@hvd.elastic.run
def train(state):
    while state.step < 10:
        die(state.step)
        state.w = state.w + hvd.allreduce(torch.ones(3), op=hvd.Average)
        state.step += 1
        state.commit()
    return hvd.size(), state.w.tolist()
print(train(hvd.elastic.TorchState(w=torch.zeros(3), step=0)))
"""
TENSORFLOW = """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
w = tf.Variable(tf.zeros(3))
@tf.function
def update():
    w.assign_add(hvd.allreduce(tf.ones(3), op=hvd.Sum) / tf.cast(hvd.size_op(), tf.float32))
@hvd.elastic.run
def train(state):
    while state.step < 10:
        die(state.step)
        update()
        state.step += 1
        state.commit()
    return hvd.size(), w.numpy().tolist()
print(train(hvd.elastic.TensorFlowState([w], step=0)))
"""
KERAS = """
import numpy as np, keras
import horovod.keras as hvd
hvd.init()
# Its gradient is 1 on every rank: each step takes 1 from the weight.
model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
model.set_weights([np.full((1, 1), 20.0)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)), lambda y, p: p - y)
class Die(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        die(5 * state.epoch + state.batch)
@hvd.elastic.run
def train(state):
    callbacks = [
        Die(),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.CommitStateCallback(state),
    ]
    while state.epoch < 2:
        left = 5 - state.batch
        if left == 0:  # the last commit was that of the epoch's last batch
            state.batch, state.epoch = 0, state.epoch + 1
            continue
        model.fit(np.ones((left, 1)), np.ones((left, 1)), 1, 1, verbose=0, callbacks=callbacks)
    return hvd.size(), model.get_weights()[0].ravel().tolist()
state = hvd.elastic.KerasState(model, batch=0, epoch=0)
print(train(state))
"""


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


def survivor(job: Job, code: str, size: int = 2, **extra: str) -> list[str]:
    """What the process 0 prints, which is left."""
    command = (sys.executable, "-c", DIE + code)
    done = job.run("-np", str(size), "--min-np", "1", *command, limit=150, **extra)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "process 1 on localhost ended with SIGKILL" in done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("[0]<stdout>:(")]


@pytest.mark.slow
@needs.installed("jax")
def test_jax(job: Job) -> None:
    assert survivor(job, JAX) == ["[0]<stdout>:(1, [10.0, 10.0, 10.0])"]


@pytest.mark.slow
def test_what_torch_compiles_with_the_size_is_compiled_again(job: Job) -> None:
    assert survivor(job, COMPILED) == ["[0]<stdout>:(1, [10.0, 10.0, 10.0])"]


@pytest.mark.slow
def test_groups_of_devices_are_made_again(job: Job) -> None:
    assert survivor(job, INNER, 3) == ["[0]<stdout>:(2, [10.0, 10.0, 10.0])"]


@pytest.mark.slow
@needs.installed("jax")
def test_jax_saves_each_step_by_itself_though_steps_run_in_the_background(job: Job) -> None:
    alone = JAX.replace("state.commit()", "pass").replace("state.w.block_until_ready()", "pass")
    kept = alone.replace("JaxState(", "JaxState(every_step=True, ")
    assert survivor(job, kept) == ["[0]<stdout>:(1, [10.0, 10.0, 10.0])"]


@pytest.mark.slow
@needs.installed("tensorflow")
def test_tensorflow(job: Job) -> None:
    assert survivor(job, TENSORFLOW) == ["[0]<stdout>:(1, [10.0, 10.0, 10.0])"]


@pytest.mark.slow
@needs.installed("keras")
@pytest.mark.parametrize("backend", ["torch", *BACKENDS_OF_NIGHTLY])
def test_keras(job: Job, backend: str) -> None:
    assert survivor(job, KERAS, KERAS_BACKEND=backend) == ["[0]<stdout>:(1, [10.0])"]


@pytest.mark.slow
@needs.installed("keras")
@pytest.mark.parametrize("backend", ["torch", *BACKENDS_OF_NIGHTLY])
def test_keras_with_every_step(job: Job, backend: str) -> None:
    kept = KERAS.replace("KerasState(model, ", "KerasState(model, every_step=True, ")
    assert survivor(job, kept, KERAS_BACKEND=backend) == ["[0]<stdout>:(1, [10.0])"]
