"""LeNet-5 learns handwritten digits on any number of processes, in JAX.

    horovodrun -np 2 python examples/jax_mnist.py

Without --data-dir it needs scikit-learn, which brings 1797 digits; in any case optax.

It differs from a script for one process where it says `hvd`; without horovodrun it is one.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

# One thread a process computes; before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from mnist_arrays import Digits, load_arrays

import horovod.jax as hvd

Params = dict[str, tuple[jax.Array, jax.Array]]
Step = Callable[[Params, Any, np.ndarray, np.ndarray], tuple[Params, Any, jax.Array]]

SHAPES = {
    "conv1": (5, 5, 1, 6),
    "conv2": (5, 5, 6, 16),
    "dense1": (400, 120),
    "dense2": (120, 84),
    "dense3": (84, 10),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="folder of MNIST's IDX files; default: small digits")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=16, help="images a step and process")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of one process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", metavar="FILE", help="continued from, and kept up to date")
    parser.add_argument(
        "--compare-single",
        action="store_true",
        help="measure one process alone as well, and print the speed-up over it",
    )
    return parser.parse_args()


def lenet5(seed: int) -> Params:
    """Return the weights of LeCun's network of 1998, not trained yet."""
    params = {}
    for key, (name, shape) in zip(
        jax.random.split(jax.random.PRNGKey(seed), len(SHAPES)), SHAPES.items(), strict=True
    ):
        deviation = math.sqrt(2 / math.prod(shape[:-1]))
        params[name] = deviation * jax.random.normal(key, shape), jnp.zeros(shape[-1])
    return params


def predict(params: Params, images: jax.Array) -> jax.Array:
    """Return the logits of each digit, with today's activation and pooling."""
    x = images[..., None]
    for name, padding in (("conv1", "SAME"), ("conv2", "VALID")):
        weights, bias = params[name]
        x = jax.lax.conv_general_dilated(
            x, weights, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + bias)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1)
    for name in ("dense1", "dense2"):
        weights, bias = params[name]
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = params["dense3"]
    return x @ weights + bias


def loss_of(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    # Smoothed labels: the digits are few, and learnt by heart otherwise.
    targets = optax.smooth_labels(jax.nn.one_hot(labels, 10), 0.1)
    return optax.softmax_cross_entropy(predict(params, images), targets).mean()


def learning_rate(args: argparse.Namespace, size: int, steps: int) -> Callable[[Any], Any]:
    """Return the rate of each step: it rises for four epochs, then falls to zero.

    A step follows the average gradient of all processes, so it can be that many times longer.
    """

    def rate(step: Any) -> Any:
        epoch = step // steps
        fall = 0.5 * (1 + jnp.cos(jnp.pi * epoch / args.epochs))
        return args.lr * size * jnp.minimum((epoch + 1) / 4, fall)

    return rate


def make_step(tx: optax.GradientTransformation) -> Step:
    """Return a compiled training step, which works in the memory of what it is given."""

    def step(params, state, images, labels):
        loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    return jax.jit(step, donate_argnums=(0, 1))


def batches(digits: Digits, args: argparse.Namespace, epoch: int) -> Iterator[Digits]:
    """Yield this process's share of the digits, in a new order each epoch."""
    images, labels = digits
    order = np.random.default_rng((args.seed, epoch)).permutation(len(labels))
    mine = order[hvd.rank() :: hvd.size()]
    for i in range(steps_of(digits, args)):
        rows = mine[i * args.batch_size : (i + 1) * args.batch_size]
        yield images[rows], labels[rows]


def steps_of(digits: Digits, args: argparse.Namespace) -> int:
    """Return how many whole batches every process has in an epoch."""
    return len(digits[1]) // hvd.size() // args.batch_size


def train_epoch(
    step: Step, params: Params, state: Any, digits: Digits, args: argparse.Namespace, epoch: int
) -> tuple[Params, Any, float, float]:
    """Return parameters and state after an epoch, the mean loss, and images/s of this process."""
    losses = []
    start = time.perf_counter()
    for images, labels in batches(digits, args, epoch):
        params, state, loss = step(params, state, images, labels)
        losses.append(loss)
    mean = float(jnp.stack(losses).mean())
    return params, state, mean, len(losses) * args.batch_size / (time.perf_counter() - start)


def accuracy(params: Params, digits: Digits) -> float:
    """Return the share of the test images that are recognised, over all processes."""
    images, labels = (array[hvd.rank() :: hvd.size()] for array in digits)
    hits = (jax.jit(predict)(params, images).argmax(1) == labels).sum()
    return int(hvd.allreduce(hits, op=hvd.Sum, name="hits")) / len(digits[1])


def say(text: str) -> None:
    """Print on the first process only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def speed_alone(digits: Digits, args: argparse.Namespace) -> float:
    """Return images/s of the first process alone; the others wait, and return nan."""
    speeds = [math.nan]
    if hvd.rank() == 0:
        tx = optax.sgd(args.lr, momentum=0.9)
        step, params = make_step(tx), lenet5(args.seed)
        state, speeds = tx.init(params), []
        for epoch in range(3):
            params, state, _, speed = train_epoch(step, params, state, digits, args, epoch)
            speeds.append(speed)
    hvd.barrier()
    return typical(speeds)


def typical(speeds: list[float]) -> float:
    """Return the median of all epochs but the first, which includes what happens only once."""
    return statistics.median(speeds[1:] or speeds)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    train_set, test_set, source = load_arrays(args.data_dir)
    say(f"Data: {source}: {len(train_set[1])} to train, {len(test_set[1])} to test")

    steps = steps_of(train_set, args)
    tx = optax.chain(
        optax.add_decayed_weights(5e-4),
        optax.sgd(learning_rate(args, hvd.size(), steps), momentum=0.9),
    )
    tx = hvd.DistributedOptimizer(tx)
    params = lenet5(args.seed + hvd.rank())  # the first process's are taken below
    state = {"params": params, "optimizer": tx.init(params), "epoch": 0}
    if args.checkpoint:
        state = hvd.restore_checkpoint(args.checkpoint, state)
    else:
        state = hvd.broadcast_tree(state)
    params, optimizer, first_epoch = state["params"], state["optimizer"], int(state["epoch"])

    step, speeds = make_step(tx), []
    for epoch in range(first_epoch, args.epochs):
        params, optimizer, loss, speed = train_epoch(
            step, params, optimizer, train_set, args, epoch
        )
        loss = float(hvd.allreduce(loss, name="loss"))
        speeds.append(hvd.size() * speed)
        correct = accuracy(params, test_set)
        say(
            f"epoch {epoch + 1}/{args.epochs}: loss {loss:.4f}, test accuracy {correct:.2%}, "
            f"{speeds[-1]:.0f} images/s"
        )
        if args.checkpoint:
            state = {"params": params, "optimizer": optimizer, "epoch": epoch + 1}
            hvd.save_checkpoint(args.checkpoint, state)

    say(f"Test accuracy: {accuracy(params, test_set):.2%}")
    if speeds:
        say(f"Speed: {typical(speeds):.0f} images/s over {hvd.size()} processes")
    if speeds and args.compare_single:
        alone = speed_alone(train_set, args)
        ratio = typical(speeds) / alone
        say(f"Speed-up: {ratio:.2f} over one process alone ({alone:.0f} images/s)")
    hvd.shutdown()


if __name__ == "__main__":
    main()
