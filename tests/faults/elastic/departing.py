"""Trains a small network with one framework, while one process leaves politely.

FRAMEWORK: torch, tensorflow, jax, or keras with KERAS_BACKEND. At step AT the last rank leaves, by
a signal to itself; or, with HOSTS, the first host does, which is removed from that file.
Each process prints its steps as `step NUMBER SIZE END_TIME`, and at its end the sum of the last
bias's gradients. Each gradient is 1, or with SCALED the size of the world, which the step then
reads. Training ends AFTER steps in the smaller world.
"""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FRAMEWORK = os.environ["FRAMEWORK"]
SCALED = "SCALED" in os.environ
AT, AFTER, PER_EPOCH = 9, 12, 20
RATE = 2.0**-10
INPUTS = np.ones((8, 64), np.float32)
hvd: Any = importlib.import_module(f"horovod.{FRAMEWORK}" if FRAMEWORK != "jax" else "sirtaki.jax")


class Progress:
    """Counts the steps in the smaller world. first: the size of the first world."""

    def __init__(self) -> None:
        self.first = 0
        self.alone = 0

    def step_done(self, step: int) -> None:
        """Print a step that the optimizer has taken, and leave if it is time to."""
        print("step", step, hvd.size(), time.time(), flush=True)
        self.first = self.first or hvd.size()
        self.alone += hvd.size() < self.first
        if step == AT and hvd.rank() == hvd.size() - 1:
            if "HOSTS" in os.environ:
                hosts = Path(os.environ["HOSTS"])
                hosts.write_text(hosts.read_text().partition("\n")[2])
            else:
                os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.005)

    @property
    def is_over(self) -> bool:
        """Whether training is to end; all ranks agree."""
        return self.alone >= AFTER


progress = Progress()


def scale() -> int:
    """What a step multiplies its loss by."""
    return int(hvd.size()) if SCALED else 1


def loop(state: Any, take_step: Callable[[], object]) -> None:
    """Train with a loop of one's own."""

    @hvd.elastic.run
    def train(state: Any) -> None:
        while not progress.is_over:
            take_step()
            state.step += 1
            progress.step_done(state.step)
            state.commit()

    train(state)


def train_torch() -> float:
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    torch.nn.init.zeros_(model[2].bias)
    plain = torch.optim.SGD(model.parameters(), lr=RATE)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())

    def take_step() -> None:
        optimizer.zero_grad()
        (scale() * model(torch.from_numpy(INPUTS)).mean()).backward()
        optimizer.step()

    loop(hvd.elastic.TorchState(model, optimizer, step=0), take_step)
    return model[2].bias.item()


def train_tensorflow() -> float:
    import tensorflow as tf

    weights = [tf.Variable(tf.random.normal(shape)) for shape in ((64, 64), (64, 1))]
    weights.append(tf.Variable(0.0))

    @tf.function
    def take_step() -> None:
        with tf.GradientTape() as plain:
            found = tf.nn.relu(INPUTS @ weights[0]) @ weights[1] + weights[2]
            loss = tf.reduce_mean(found)
        tape = hvd.DistributedGradientTape(plain)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(RATE * gradient)

    loop(hvd.elastic.TensorFlowState(weights, step=0), take_step)
    return float(weights[2].numpy())


def train_jax() -> float:
    import jax
    import jax.numpy as jnp
    import optax

    optimizer = hvd.DistributedOptimizer(optax.sgd(RATE))
    params = [jnp.full((64, 64), 0.01), jnp.full((64, 1), 0.01), jnp.zeros(())]

    def loss(params: Any) -> Any:
        print("traced for", hvd.size() if SCALED else "any world")
        return scale() * jnp.mean(jax.nn.relu(INPUTS @ params[0]) @ params[1] + params[2])

    @jax.jit
    def update(params: Any, inner: Any) -> Any:
        changes, inner = optimizer.update(jax.grad(loss)(params), inner, params)
        return optax.apply_updates(params, changes), inner

    state = hvd.elastic.JaxState(params=params, inner=optimizer.init(params), step=0)

    def take_step() -> None:
        state.params, state.inner = jax.block_until_ready(update(state.params, state.inner))

    loop(state, take_step)
    return float(state.params[2])


def train_keras() -> float:
    import keras

    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(1),
        ]
    )

    def loss(_: Any, found: Any) -> Any:
        print("traced for", hvd.size() if SCALED else "any world")
        return scale() * found

    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(RATE)), loss)
    data = np.repeat(INPUTS, 50 * PER_EPOCH, 0)

    class Steps(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            progress.step_done(PER_EPOCH * state.epoch + state.batch)
            model.stop_training = progress.is_over

    @hvd.elastic.run
    def train(state: Any) -> None:
        callbacks = [
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            Steps(),
            hvd.elastic.CommitStateCallback(state),
        ]
        of_fit = {"steps_per_epoch": PER_EPOCH, "epochs": 50, "initial_epoch": state.epoch}
        model.fit(data, data[:, :1], 8, verbose=0, callbacks=callbacks, **of_fit)

    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    train(state)
    return float(model.get_weights()[-1].item())


hvd.init()
bias = {"torch": train_torch, "tensorflow": train_tensorflow, "jax": train_jax}.get(
    FRAMEWORK, train_keras
)()
print("gradients", -bias / RATE)
