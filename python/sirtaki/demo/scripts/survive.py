"""Train until it is stopped, on the processes that are left.

sirtaki run -np 2 --min-np 1 python survive.py
"""

from __future__ import annotations

import os
import time
from typing import Any

from network import BATCH_SIZE, Network, hvd
from shapes import make_shapes

from sirtaki import elastic

SAY_SECONDS = 4.0


def main() -> None:
    """Train, and print the step and the number of processes."""
    hvd.init()
    print(f"rank {hvd.rank()} is process {os.getpid()}", flush=True)
    images, kinds = make_shapes(16 * BATCH_SIZE, seed=1)
    network = Network()

    @elastic.run
    def train(state: Any) -> None:
        said, size = time.monotonic(), 0
        while True:
            at = (state.step * hvd.size() + hvd.rank()) % 16 * BATCH_SIZE
            loss = network.step(images[at : at + BATCH_SIZE], kinds[at : at + BATCH_SIZE])
            state.step += 1
            if hvd.rank() == 0 and (hvd.size() != size or time.monotonic() - said > SAY_SECONDS):
                said, size = time.monotonic(), hvd.size()
                many = "1 process" if size == 1 else f"{size} processes"
                print(f"step {state.step} with {many}: loss {loss:.3f}", flush=True)
            state.commit()

    train(network.elastic_state(step=0))


if __name__ == "__main__":
    main()
