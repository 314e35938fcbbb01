"""What `make chaos` trains: counts its samples, and obeys orders to come to harm.

CHAOS_FOLDER: `order-N` makes process N raise, exit or take memory when it finds it; `stop` ends
training. Prints at the end of each epoch, and of training, what must be equal on all ranks.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import sirtaki as hvd
from sirtaki import elastic
from sirtaki.core.elastic import current_place
from sirtaki.core.operations.objects import broadcast_object
from tests.chaos.phases import at_collective, at_step, hold_in_meetings
from tests.chaos.samples import SAMPLES, WIDTH, digest_of, gradient

PROCESS = os.environ.get("SIRTAKI_PROCESS", "0")
FOLDER = Path(os.environ["CHAOS_FOLDER"])
STEP_SECONDS = 0.02


def obey_orders() -> None:
    """Come to harm where somebody has ordered it."""
    order = FOLDER / f"order-{PROCESS}"
    if not order.exists():
        return
    word = order.read_text()
    order.unlink()
    if word.startswith("raise"):
        raise ArithmeticError(word)
    if word == "exit":
        sys.exit(0)
    if word == "memory":
        hoard = [bytearray(os.urandom(1 << 20)) for _ in range(256)]
        raise MemoryError(f"{len(hoard)} MiB were more than the limit, and nobody minded")


def step(state: elastic.ObjectState) -> bool:
    """Train on the next samples, one a rank; returns whether somebody wants to stop."""
    sample = state.cursor + hvd.rank()
    used = np.zeros(SAMPLES + 1)
    mine = np.zeros(WIDTH)
    if sample < SAMPLES:
        used[sample] = 1
        mine = gradient(sample, state.epoch)
    used[SAMPLES] = (FOLDER / "stop").exists()
    at_collective(state.epoch, obey_orders)
    used = hvd.allreduce(used, op=hvd.Sum, name="samples")
    total = hvd.allreduce(mine, op=hvd.Sum, name="gradient")
    state.parameters = state.parameters + total
    # Depends on who computed what with whom, to the last bit.
    state.momentum = np.float32(0.9) * state.momentum + (total / hvd.size()).astype(np.float32)
    state.counts = state.counts + used[:SAMPLES]
    state.cursor += hvd.size()
    return bool(used[SAMPLES])


def digest(state: elastic.ObjectState) -> str:
    """Everything that must be equal on all ranks, shortened."""
    counts = f"{state.counts.min():g} {state.counts.max():g}"
    exact, own = digest_of(state.parameters), digest_of(state.momentum)
    return f"{state.epoch} {state.cursor} {counts} {exact} {own} {current_place().epoch}"


@elastic.run
def train(state: elastic.ObjectState) -> None:
    """Train until somebody wants to stop."""
    stop = False
    while not stop:
        obey_orders()
        at_step(state.epoch, obey_orders)
        stop = step(state)
        if ended := state.cursor >= SAMPLES:
            state.epoch, state.cursor = state.epoch + 1, 0
        state.commit()
        if ended:
            print("epoch", digest(state), flush=True)
        time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    hold_in_meetings(obey_orders)
    hvd.init()
    own_state = elastic.ObjectState(
        broadcast_object,
        hvd.rank,
        epoch=0,
        cursor=0,
        counts=np.zeros(SAMPLES),
        parameters=np.zeros(WIDTH),
        momentum=np.zeros(WIDTH, np.float32),
    )
    own_state.register_reset_callbacks(
        [lambda: print("stands", current_place().epoch, time.time(), flush=True)]
    )
    train(own_state)
    print("end", digest(own_state), flush=True)
