"""Elastic training with Keras: it goes on without lost processes, and from checkpoints.

    horovodrun -np 2 python examples/keras_elastic.py --checkpoints runs/circle

The network learns which points lie within a circle. Run it with --min-np 1 to let it outlive a
process; with --lose-at 20, process 1 kills itself at step 20, to show what happens then.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import keras
import numpy as np

import horovod.keras as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
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

STEPS = 50  # of an epoch, in a world of any size


class Watch(keras.callbacks.Callback):
    """Counts the steps, and lets process 1 kill itself."""

    def __init__(self, args: argparse.Namespace, state: Any) -> None:
        super().__init__()
        self.args, self.state = args, state

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        come_to_harm(self.args, self.state.step)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.step += 1


@hvd.elastic.run
def train(state: hvd.elastic.KerasState, args: argparse.Namespace) -> None:
    # Called again in each new world, so the learning rate follows the size.
    state.model.optimizer.learning_rate = args.lr * hvd.size()
    while state.epoch < args.epochs:
        callbacks = [Watch(args, state), hvd.elastic.CommitStateCallback(state)]
        order = np.random.default_rng((1, state.epoch)).permutation(len(POINTS))
        # A row for each step; those that are left are shared out among the processes.
        left = order.reshape(STEPS, -1)[state.step - state.epoch * STEPS :]
        mine = left[:, hvd.rank() : left.shape[1] // hvd.size() * hvd.size() : hvd.size()]
        if len(mine):
            data = POINTS[mine.ravel()], INSIDE[mine.ravel()][:, None]
            how = {"verbose": 0, "shuffle": False, "callbacks": callbacks}
            state.model.fit(*data, batch_size=mine.shape[1], **how)
        state.epoch += 1
        end_epoch(args, state, accuracy(state.model))


def accuracy(model: Any) -> float:
    return float(((model.predict(POINTS, verbose=0)[:, 0] > 0) == (INSIDE > 0)).mean())


def main() -> None:
    args = parse_arguments()
    hvd.init()
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((2,)), layers.Dense(32, activation="tanh"), layers.Dense(1)]
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(args.lr))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    state = hvd.elastic.KerasState(model, epoch=0, step=0)
    resume(args, state)
    train(state, args)
    hvd.checkpoint.wait()
    say(f"Accuracy: {accuracy(model):.1%}")


if __name__ == "__main__":
    main()
