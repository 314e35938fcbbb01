"""Hang: one process does not call what the others call.

sirtaki run -np 2 python hang.py
"""

from __future__ import annotations

from network import BATCH_SIZE, Network, hvd, mean
from shapes import make_shapes


def report(network: Network) -> None:
    """Print the accuracy over all processes."""
    images, kinds = make_shapes(256, seed=100 + hvd.rank())
    accuracy = mean(network.accuracy(images, kinds), "accuracy")  # every process must call this
    if hvd.rank() == 0:
        print(f"accuracy {accuracy:.1%}", flush=True)


def main() -> None:
    """Train for an epoch, then report on rank 0 alone, which is the mistake."""
    hvd.init()
    images, kinds = make_shapes(16 * BATCH_SIZE, seed=1)
    network = Network()
    report(network)
    while True:
        for at in range(hvd.rank() * BATCH_SIZE, len(images), hvd.size() * BATCH_SIZE):
            network.step(images[at : at + BATCH_SIZE], kinds[at : at + BATCH_SIZE])
        if hvd.rank() == 0:
            report(network)


if __name__ == "__main__":
    main()
