"""Elastic training with JAX: it goes on without lost processes, and from its checkpoints.

    horovodrun -np 2 python examples/jax_elastic.py --checkpoints runs/circle

The network learns which points lie within a circle. Run it with --min-np 1 to let it outlive a
process; with --lose-at 20, process 1 kills itself at step 20, to show what happens then.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

# One thread a process computes; before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np
import optax

import horovod.jax as hvd


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


def predict(params: Any, points: Any) -> jax.Array:
    return (jnp.tanh(points @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"])[:, 0]


def loss(params: Any, points: Any, inside: Any) -> jax.Array:
    return optax.sigmoid_binary_cross_entropy(predict(params, points), inside).mean()


@hvd.elastic.run
def train(state: hvd.elastic.JaxState, args: argparse.Namespace) -> None:
    # Called again in each new world, so the learning rate follows the size.
    tx = hvd.DistributedOptimizer(optax.adam(args.lr * hvd.size()))

    @jax.jit
    def update(params: Any, optimizer: Any, points: Any, inside: Any) -> Any:
        updates, optimizer = tx.update(jax.grad(loss)(params, points, inside), optimizer, params)
        return optax.apply_updates(params, updates), optimizer

    while state.epoch < args.epochs:
        while state.used < len(POINTS):
            come_to_harm(args, state.step)
            rows = my_batch(args, state.epoch, state.used)
            updated = update(state.params, state.optimizer, POINTS[rows], INSIDE[rows])
            state.params, state.optimizer = jax.block_until_ready(updated)
            state.used += args.batch_size * hvd.size()
            state.step += 1
            state.commit()
        state.epoch, state.used = state.epoch + 1, 0
        end_epoch(args, state, accuracy(state.params))


def accuracy(params: Any) -> float:
    return float(((predict(params, POINTS) > 0) == (INSIDE > 0)).mean())


def main() -> None:
    args = parse_arguments()
    hvd.init()
    keys = jax.random.split(jax.random.key(1))
    params = {
        "w1": jax.random.normal(keys[0], (2, 32)),
        "b1": jnp.zeros(32),
        "w2": jax.random.normal(keys[1], (32, 1)) / 6,
        "b2": jnp.zeros(1),
    }
    optimizer = hvd.DistributedOptimizer(optax.adam(args.lr)).init(params)
    state = hvd.elastic.JaxState(params=params, optimizer=optimizer, epoch=0, used=0, step=0)
    resume(args, state)
    train(state, args)
    hvd.checkpoint.wait()
    say(f"Accuracy: {accuracy(state.params):.1%}")


if __name__ == "__main__":
    main()
