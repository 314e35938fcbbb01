"""Train a small JAX network on any number of processes.

python train.py                                one process
sirtaki run -np 4 python train.py              four processes on this machine
sirtaki run -np 8 -H a:4,b:4 python train.py   eight processes on two machines
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import sirtaki.jax as hvd

EPOCHS = 5
BATCH_SIZE = 32  # samples in a step of one process
LEARNING_RATE = 0.2  # of one process
CHECKPOINT = "model.npz"

Params = dict[str, jax.Array]


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Make points in a plane, and whether each lies inside a circle. Put your data here."""
    points = np.random.default_rng(0).uniform(-1, 1, (4096, 2)).astype(np.float32)
    return points, (np.linalg.norm(points, axis=1) < 0.8).astype(np.int32)


def make_params() -> Params:
    """Make the weights of the network. Put your model here and in `loss_of`."""
    first, second = jax.random.split(jax.random.key(0))
    return {
        "w1": jax.random.normal(first, (2, 64)),
        "b1": jnp.zeros(64),
        "w2": jax.random.normal(second, (64, 2)) / 8,
        "b2": jnp.zeros(2),
    }


def loss_of(params: Params, points: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean loss of a batch."""
    hidden = jax.nn.relu(points @ params["w1"] + params["b1"])
    scores = jax.nn.log_softmax(hidden @ params["w2"] + params["b2"])
    return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()


@jax.jit
def train_step(
    params: Params, rate: float, points: jax.Array, labels: jax.Array
) -> tuple[Params, jax.Array]:
    """Follow the gradient that is the mean over all processes."""
    loss, gradients = jax.value_and_grad(loss_of)(params, points, labels)
    gradients = hvd.allreduce_tree(gradients)
    return jax.tree.map(lambda p, g: p - rate * g, params, gradients), loss


def main() -> None:
    """Train, print the loss of each epoch, and save the model."""
    hvd.init()  # one process of many, or the only one

    # Each process reads its own part of the data, as many samples as every other.
    points, labels = make_data()
    each = len(points) // hvd.size()
    mine = slice(hvd.rank() * each, (hvd.rank() + 1) * each)
    points, labels = points[mine], labels[mine]

    # All processes start from the weights of rank 0.
    params = hvd.broadcast_tree(make_params(), root_rank=0)
    rate = LEARNING_RATE * hvd.size()  # the mean of more gradients allows longer steps

    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(each)
        losses = []
        for start in range(0, each - BATCH_SIZE + 1, BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            params, loss = train_step(params, rate, points[batch], labels[batch])
            losses.append(loss)
        # The mean over all processes; every process calls it, one prints it.
        mean = float(hvd.allreduce(jnp.stack(losses).mean(), name="loss"))
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {mean:.4f}", flush=True)

    if hvd.rank() == 0:
        np.savez(CHECKPOINT, **params)
        print(f"saved {CHECKPOINT}", flush=True)


if __name__ == "__main__":
    main()
