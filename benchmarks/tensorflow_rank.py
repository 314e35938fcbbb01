"""One process of tensorflow_step.py: a rank of ours, or one of MultiWorkerMirroredStrategy's."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

import sirtaki.tensorflow as hvd
from sirtaki.core.config import Config
from sirtaki.core.world import memory

DEPTH, BATCH = 3, 32
MANY_WIDTH, MANY_DEPTH, MANY_BATCH = 64, 50, 64  # 100 tensors, 0.8 MB
SMALL, LARGE = 8, 1 << 20  # elements of what is reduced alone
RATE = 1e-4
PEER = "MultiWorkerMirroredStrategy"

Reduce = Callable[[list[Any]], list[Any]]
# By the name of the model: width, depth, rows of a batch.
Shapes = dict[str, tuple[int, int, int]]


def main(mode: str, folder: str, steps: int, width: int) -> None:
    memory.keep(Config.from_env())
    # A core a process, alone or not.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    shapes = {
        "step": (width, DEPTH, BATCH),
        "100 tensors": (MANY_WIDTH, MANY_DEPTH, MANY_BATCH),
    }
    timings = measure_ours(steps, shapes) if mode == "ours" else measure_peer(steps, shapes)
    if timings is not None:
        (Path(folder) / f"{mode}.json").write_text(json.dumps(timings))


def timed(call: Callable[[], Any], count: int) -> list[float]:
    """Return the seconds of each of as many calls but the first three."""
    seconds = []
    for _ in range(count + 3):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds[3:]


class Model:
    """Dense layers with ReLU, and one batch that they are trained on."""

    def __init__(self, width: int, depth: int, batch: int) -> None:
        random = np.random.default_rng(0)
        self.variables = []
        for _ in range(depth):
            weights = random.standard_normal((width, width), np.float32) * width**-0.5
            self.variables += [tf.Variable(weights), tf.Variable(tf.zeros(width))]
        self._x, self._y = map(tf.constant, random.standard_normal((2, batch, width), np.float32))

    def train(self, reduce: Reduce) -> Any:
        """Do a step of SGD with gradients that are reduced; return the loss."""
        with tf.GradientTape() as tape:
            hidden = self._x
            for weights, bias in zip(self.variables[::2], self.variables[1::2], strict=True):
                hidden = tf.nn.relu(hidden @ weights + bias)
            loss = tf.reduce_mean((hidden - self._y) ** 2)
        gradients = reduce(tape.gradient(loss, self.variables))
        for variable, gradient in zip(self.variables, gradients, strict=True):
            variable.assign_sub(RATE * gradient)
        return loss


def trainer(model: Model, reduce: Reduce) -> Callable[[], float]:
    """Return what does one compiled step, to its end."""
    step = tf.function(lambda: model.train(reduce))
    return lambda: float(step())


def measure_ours(steps: int, shapes: Shapes) -> dict[str, list[float]] | None:
    """Measure a rank; None where it is not the first."""
    hvd.init()
    timings = {}
    for name, shape in shapes.items():
        if hvd.rank() == 0:
            alone = trainer(Model(*shape), lambda gradients: gradients)
            timings[f"{name}, one process"] = timed(alone, steps)
        hvd.barrier()
        timings[f"{name}, Sirtaki"] = timed(trainer(Model(*shape), hvd.grouped_allreduce), steps)
    add = tf.function(lambda x: x + 1)
    total = tf.function(lambda x: hvd.grouped_allreduce([x], op=hvd.Sum)[0])
    for name, elements, count in (("small", SMALL, 100 * steps), ("4 MiB", LARGE, 5 * steps)):
        x = tf.ones(elements)
        hvd.barrier()
        if name == "small":
            timings["x + 1"] = timed(lambda x=x: add(x).numpy(), count)
        timings[f"{name}, Sirtaki"] = timed(lambda x=x: total(x).numpy(), count)
    first = hvd.rank() == 0
    hvd.shutdown()
    return timings if first else None


def measure_peer(steps: int, shapes: Shapes) -> dict[str, list[float]] | None:
    """Measure one of the strategy's own processes, in a ring; None if it is not the first."""
    rank = int(os.environ["HOROVOD_RANK"])
    workers = {"worker": os.environ["TF_WORKERS"].split(",")}
    config = {"cluster": workers, "task": {"type": "worker", "index": rank}}
    os.environ["TF_CONFIG"] = json.dumps(config)
    ring = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)

    @tf.function
    def step(model: Model) -> Any:
        return strategy.run(model.train, (reduce,))

    def reduce(tensors: list[Any]) -> list[Any]:
        replica = tf.distribute.get_replica_context()
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, tensors, ring)

    timings = {}
    for name, shape in shapes.items():
        with strategy.scope():
            model = Model(*shape)
        timings[f"{name}, {PEER}"] = timed(lambda model=model: float(step(model)), steps)
    for name, elements, count in (("small", SMALL, 10 * steps), ("4 MiB", LARGE, 5 * steps)):
        total = summing(strategy, reduce, elements)
        timings[f"{name}, {PEER}"] = timed(lambda total=total: total().numpy(), count)
    # A worker that leaves before the other one makes it fail.
    hvd.init()
    hvd.barrier()
    hvd.shutdown()
    return timings if rank == 0 else None


def summing(strategy: Any, reduce: Reduce, elements: int) -> Callable[[], Any]:
    """Return what sums a constant: the strategy asks on which device it lies."""
    x = tf.ones(elements)

    @tf.function
    def total() -> Any:
        return strategy.run(reduce, ([x],))[0]

    return total


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
