"""One process of jax_step.py: a rank of ours, or one of JAX's own processes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# A core a process, alone or not.
os.environ["NPROC"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sirtaki.core.config import Config
from sirtaki.core.world import memory

DEPTH, BATCH = 3, 32
SMALL, LARGE = 8, 1 << 20  # elements of what is reduced alone
RATE = 1e-4

Params = list[tuple[Any, Any]]


def main(mode: str, folder: str, steps: int, width: int) -> None:
    memory.keep(Config.from_env())
    timings = measure_ours(steps, width) if mode == "ours" else measure_peer(steps, width)
    if timings is not None:
        (Path(folder) / f"{mode}.json").write_text(json.dumps(timings))


def timed(call: Callable[[], Any], count: int) -> list[float]:
    """Return the seconds of each of as many calls but the first three."""
    seconds = []
    for _ in range(count + 3):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return seconds[3:]


def model(width: int) -> tuple[Params, np.ndarray, np.ndarray]:
    """Return dense layers, inputs and targets."""
    random = np.random.default_rng(0)
    params = [
        (random.standard_normal((width, width), np.float32) * width**-0.5, np.zeros(width, "f"))
        for _ in range(DEPTH)
    ]
    x, y = random.standard_normal((2, BATCH, width), np.float32)
    return params, x, y


def make_step(reduce: Callable[[Any], Any]) -> Callable[..., Params]:
    """Return a step of SGD that reduces its gradients."""

    def loss(params: Params, x: Any, y: Any) -> Any:
        for weights, bias in params:
            x = jax.nn.relu(x @ weights + bias)
        return ((x - y) ** 2).mean()

    def step(params: Params, x: Any, y: Any) -> Params:
        grads = reduce(jax.grad(loss)(params, x, y))
        return jax.tree.map(lambda p, g: p - RATE * g, params, grads)

    return step


def trainer(step: Callable[..., Params], params: Params, x: Any, y: Any) -> Callable[[], Params]:
    """Return what does one step after another."""
    kept = [params]

    def call() -> Params:
        kept[0] = step(kept[0], x, y)
        return kept[0]

    return call


def measure_ours(steps: int, width: int) -> dict[str, list[float]] | None:
    """Measure a rank; None where it is not the first."""
    import sirtaki.jax as hvd

    hvd.init()
    timings = {}
    if hvd.rank() == 0:
        alone = jax.jit(make_step(lambda grads: grads), donate_argnums=0)
        timings["step, one process"] = timed(trainer(alone, *on_device(width)), steps)
    hvd.barrier()
    ours = jax.jit(make_step(hvd.allreduce_tree), donate_argnums=0)
    timings["step, Sirtaki"] = timed(trainer(ours, *on_device(width)), steps)
    add, total = jax.jit(lambda x: x + 1), jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    for name, elements, count in (("small", SMALL, 100 * steps), ("4 MiB", LARGE, 5 * steps)):
        x = jnp.ones(elements)
        hvd.barrier()
        if name == "small":
            timings["x + 1"] = timed(lambda x=x: add(x), count)
        timings[f"{name}, Sirtaki"] = timed(lambda x=x: total(x), count)
    first = hvd.rank() == 0
    hvd.shutdown()
    return timings if first else None


def on_device(width: int) -> tuple[Params, Any, Any]:
    params, x, y = model(width)
    return jax.tree.map(jnp.array, params), jnp.array(x), jnp.array(y)


def measure_peer(steps: int, width: int) -> dict[str, list[float]] | None:
    """Measure one of JAX's own processes, which it connects with Gloo; None if not the first."""
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(os.environ["JAX_COORDINATOR"], size, rank)
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    split, copied = PartitionSpec("ranks"), PartitionSpec()

    def everywhere(array: np.ndarray) -> jax.Array:
        sharding = NamedSharding(mesh, copied)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    def own(array: np.ndarray) -> jax.Array:
        return jax.make_array_from_process_local_data(NamedSharding(mesh, split), array)

    params, x, y = model(width)
    step = jax.jit(
        jax.shard_map(
            make_step(lambda grads: jax.lax.pmean(grads, "ranks")),
            mesh=mesh,
            in_specs=(copied, split, split),
            out_specs=copied,
            check_vma=False,
        ),
        donate_argnums=0,
    )
    total = jax.jit(
        jax.shard_map(
            lambda x: jax.lax.psum(x, "ranks"), mesh=mesh, in_specs=split, out_specs=copied
        )
    )
    placed = jax.tree.map(everywhere, params)
    timings = {"step, JAX's processes": timed(trainer(step, placed, own(x), own(y)), steps)}
    for name, elements, count in (("small", SMALL, 10 * steps), ("4 MiB", LARGE, 5 * steps)):
        array = own(np.ones((1, elements), np.float32))
        timings[f"{name}, JAX's processes"] = timed(lambda a=array: total(a), count)
    jax.distributed.shutdown()
    return timings if rank == 0 else None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
