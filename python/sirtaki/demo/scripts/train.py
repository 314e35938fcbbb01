"""Train a network on two processes, and measure the gain from the second process.

sirtaki run -np 2 python train.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np
from network import BATCH_SIZE, FRAMEWORK, Network, hvd, mean
from shapes import make_shapes

EPOCHS = 5
TURNS = 2  # per epoch
STEPS = 3  # per turn
IMAGES = TURNS * STEPS * BATCH_SIZE  # per process and epoch


def steps(network: Network, epoch: int, turn: int) -> tuple[float, float]:
    """Run the steps of a turn on this process's images; return mean loss and seconds."""
    order = np.random.default_rng(epoch).permutation(IMAGES)
    start = time.perf_counter()
    losses = []
    for step in range(turn * STEPS, (turn + 1) * STEPS):
        batch = order[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]
        losses.append(network.step(images[batch], kinds[batch]))
    return statistics.mean(losses), time.perf_counter() - start


def train_epoch(networks: Sequence[Network], epoch: int) -> tuple[float, list[float]]:
    """Train together, without exchange and alone in turns; return loss and images per second."""
    losses = []
    seconds = np.zeros(3)
    for turn in range(TURNS):
        for kind, network in enumerate(networks):
            hvd.barrier()
            if kind < 2 or hvd.rank() == 0:  # in the third turn the others wait
                loss, taken = steps(network, epoch, turn)
                seconds[kind] += taken
                losses += [loss] * (kind == 0)
    means = [mean(each, "seconds") for each in seconds]
    means[2] *= hvd.size()
    processes = (hvd.size(), hvd.size(), 1)
    speeds = [many * IMAGES / each for many, each in zip(processes, means, strict=True)]
    return mean(statistics.mean(losses), "loss"), speeds


def main() -> None:
    """Print a line per epoch, and the speed-up of the processes."""
    both, apart, alone = Network(), Network(exchange=False), Network(exchange=False)
    unseen = make_shapes(1024, seed=0)
    speed_ups, efficiencies = [], []
    for epoch in range(EPOCHS):
        loss, (shared, limit, one) = train_epoch((both, apart, alone), epoch)
        speed_ups.append(shared / one)
        efficiencies.append(shared / limit)
        if hvd.rank() == 0:
            print(
                f"epoch {epoch + 1}/{EPOCHS}: loss {loss:.3f}, "
                f"accuracy {both.accuracy(*unseen):.1%}; images/s: {shared:,.0f} by "
                f"{hvd.size()} processes, {limit:,.0f} without exchange, {one:,.0f} by one",
                flush=True,
            )
    if hvd.rank() == 0:
        # The first epoch includes one-time costs.
        print(
            f"{FRAMEWORK}: {hvd.size()} processes are {statistics.median(speed_ups[1:]):.2f} times "
            f"as fast as one; efficiency {statistics.median(efficiencies[1:]):.2f} of processes "
            "that exchange nothing",
            flush=True,
        )


hvd.init()
images, kinds = make_shapes(IMAGES, seed=1 + hvd.rank())  # this process's part of the data
main()
hvd.shutdown()
