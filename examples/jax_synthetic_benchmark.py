"""How many rows a second a model trains on in JAX, with random numbers.

    horovodrun -np 2 python examples/jax_synthetic_benchmark.py

Compare with one process: `python examples/jax_synthetic_benchmark.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

# One thread a process computes; before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import optax

import horovod.jax as hvd

CONFIDENCE = 1.96  # standard deviations that hold 95 % of normal samples


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=1024, help="of each layer")
    parser.add_argument("--depth", type=int, default=6, help="layers")
    parser.add_argument("--batch-size", type=int, default=32, help="rows a step and process")
    parser.add_argument("--num-warmup-batches", type=int, default=5)
    parser.add_argument("--num-batches-per-iter", type=int, default=5)
    parser.add_argument("--num-iters", type=int, default=5, help="measurements")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    return parser.parse_args()


def perceptron(width: int, depth: int) -> list[jax.Array]:
    """Return the weights of dense layers."""
    keys = jax.random.split(jax.random.PRNGKey(0), depth)
    return [jax.random.normal(key, (width, width)) * width**-0.5 for key in keys]


def loss_of(params: list[jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    for weights in params:
        x = jax.nn.relu(x @ weights)
    return ((x - y) ** 2).mean()


def say(text: str) -> None:
    """Print on the first process only."""
    if hvd.rank() == 0:
        print(text, flush=True)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    tx = hvd.DistributedOptimizer(optax.sgd(0.01 * hvd.size()), compression=compression)
    params = hvd.broadcast_tree(perceptron(args.width, args.depth))
    state: Any = tx.init(params)

    @jax.jit
    def step(params, state, x, y):
        updates, state = tx.update(jax.grad(loss_of)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    keys = jax.random.split(jax.random.PRNGKey(hvd.rank()))
    x, y = (jax.random.normal(key, (args.batch_size, args.width)) for key in keys)

    def speed(steps: int) -> float:
        """Return rows a second of this process over some training steps."""
        nonlocal params, state
        start = time.perf_counter()
        for _ in range(steps):
            params, state = step(params, state, x, y)
        jax.block_until_ready(params)
        return steps * args.batch_size / (time.perf_counter() - start)

    count = sum(weights.size for weights in params)
    say(f"Model: {args.depth} layers of {args.width}, {count} parameters")
    say(f"Batch size: {args.batch_size}\nNumber of CPUs: {hvd.size()}")
    if args.num_warmup_batches:
        speed(args.num_warmup_batches)
    speeds = []
    for i in range(args.num_iters):
        speeds.append(speed(args.num_batches_per_iter))
        say(f"Iter #{i}: {speeds[-1]:.1f} rows/sec per CPU")
    mean, spread = statistics.mean(speeds), CONFIDENCE * statistics.pstdev(speeds)
    n = hvd.size()
    say(f"Rows/sec per CPU: {mean:.1f} +-{spread:.1f}")
    say(f"Total rows/sec on {n} CPU(s): {n * mean:.1f} +-{n * spread:.1f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
