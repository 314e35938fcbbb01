"""Elastic training with TensorFlow 2: it goes on without lost processes, and from its checkpoints.

    horovodrun -np 2 python examples/tensorflow2_elastic.py --checkpoints runs/circle

The network learns which points lie within a circle. Run it with --min-np 1 to let it outlive a
process; with --lose-at 20, process 1 kills itself at step 20, to show what happens then.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=16, help="points a step and process")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of one process")
    parser.add_argument("--checkpoints", metavar="FOLDER", help="continued from, and written to")
    parser.add_argument("--lose-at", type=int, metavar="STEP", help="process 1 kills itself there")
    return parser.parse_args()


def come_to_harm(args: argparse.Namespace, step: int) -> None:
    if step == args.lose_at and os.environ.get("SIRTAKI_PROCESS") == "1":
        os.kill(os.getpid(), signal.SIGKILL)


def say(text: str) -> None:
    """Print on the first process only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def resume(args: argparse.Namespace, state: Any) -> None:
    """Go on from the newest checkpoint, if there is one; `run` gives it to all processes."""
    loaded = hvd.checkpoint.load(args.checkpoints, state) if args.checkpoints else None
    if loaded:
        say(f"continues from step {loaded.step}")


def end_epoch(args: argparse.Namespace, state: Any, correct: float) -> None:
    say(f"epoch {state.epoch}/{args.epochs}: {correct:.1%} on {hvd.size()} processes")
    if args.checkpoints:
        hvd.checkpoint.save(args.checkpoints, state, state.step)


def circle(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points of a square, and whether each lies within a circle of half its area."""
    points = np.random.default_rng(1).uniform(-1, 1, (count, 2)).astype(np.float32)
    return points, ((points**2).sum(1) < 0.64).astype(np.float32)


POINTS, INSIDE = circle(1600)


def my_batch(args: argparse.Namespace, epoch: int, used: int) -> np.ndarray:
    """Return this process's part of the next batch; `used` points of the epoch are behind it.

    The order depends on the epoch alone, so that a new world goes on where the old one was.
    """
    order = np.random.default_rng((1, epoch)).permutation(len(POINTS))
    size = args.batch_size * hvd.size()
    # At the end a few come twice, so that all have equally many.
    return np.resize(order[used : used + size], size)[hvd.rank() :: hvd.size()]


def make_variables() -> list[tf.Variable]:
    random = tf.random.Generator.from_seed(1)
    return [
        tf.Variable(random.normal((2, 32))),
        tf.Variable(tf.zeros(32)),
        tf.Variable(random.normal((32, 1)) / 6),
        tf.Variable(tf.zeros(1)),
    ]


def predict(variables: list[tf.Variable], points: Any) -> tf.Tensor:
    w1, b1, w2, b2 = variables
    return (tf.tanh(points @ w1 + b1) @ w2 + b2)[:, 0]


@hvd.elastic.run
def train(state: hvd.elastic.TensorFlowState, args: argparse.Namespace) -> None:
    variables = state.variables

    # Traced again in each new world, for this function is called again; so the rate follows.
    @tf.function
    def update(points: Any, inside: Any) -> None:
        with tf.GradientTape() as tape:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(inside, predict(variables, points))
            loss = tf.reduce_mean(losses)
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(10 * args.lr * hvd.size() * gradient)

    while state.epoch < args.epochs:
        while state.used < len(POINTS):
            come_to_harm(args, state.step)
            rows = my_batch(args, state.epoch, state.used)
            update(tf.constant(POINTS[rows]), tf.constant(INSIDE[rows]))
            state.used += args.batch_size * hvd.size()
            state.step += 1
            state.commit()
        state.epoch, state.used = state.epoch + 1, 0
        end_epoch(args, state, accuracy(variables))


def accuracy(variables: list[tf.Variable]) -> float:
    return float(((predict(variables, POINTS).numpy() > 0) == (INSIDE > 0)).mean())


def main() -> None:
    args = parse_arguments()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    state = hvd.elastic.TensorFlowState(make_variables(), epoch=0, used=0, step=0)
    resume(args, state)
    train(state, args)
    hvd.checkpoint.wait()
    say(f"Accuracy: {accuracy(state.variables):.1%}")


if __name__ == "__main__":
    main()
