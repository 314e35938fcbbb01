"""What `make chaos REPRODUCIBLE=1` trains in parts, which has the same bits on any number of ranks.

CHAOS_FOLDER and the lines it prints: as those of train.py, but they have the epochs of data and the
hash of parameters and optimizer state. CHAOS_EPOCHS: how many; without it, until there is `stop`.
"""

from __future__ import annotations

import os

import numpy as np
import torch

import sirtaki.torch as hvd
from tests.chaos.samples import SAMPLES
from tests.chaos.train import FOLDER, obey_orders
from tests.faults.elastic.models import digest, digits, model_of

BATCH, PARTS = 1, 24
EPOCHS = int(os.environ.get("CHAOS_EPOCHS", "0"))


def take_step(state: hvd.elastic.TorchState) -> bool:
    """Train on the next samples; returns whether somebody wants to stop."""
    used = np.zeros(SAMPLES + 1)
    for part in state.parts():
        with part:
            loss = torch.nn.functional.cross_entropy(
                model(pictures[part.samples]), labels[part.samples]
            )
            loss.backward()
        used[part.samples] = 1
    used[SAMPLES] = (FOLDER / "stop").exists()
    used = hvd.allreduce(torch.from_numpy(used), op=hvd.Sum, name="samples").numpy()
    optimizer.step()
    optimizer.zero_grad()
    sampler.record_step()
    state.counts = state.counts + used[:SAMPLES]
    state.stop = state.stop or bool(used[SAMPLES])
    return bool(sampler.steps_left == 0)


def report(word: str, state: hvd.elastic.TorchState) -> None:
    """Print what must be equal on all ranks of all worlds."""
    found = digest(model, optimizer)
    counts = f"{state.counts.min():g} {state.counts.max():g}"
    print(word, state.epoch, 0, counts, found, found, 0, flush=True)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Train until somebody wants to stop, and to the end of that epoch."""
    while True:
        obey_orders()
        if ended := take_step(state):
            state.epoch += 1
            sampler.set_epoch(state.epoch)
        state.commit()
        if ended:
            report("epoch", state)
            if state.stop or state.epoch == EPOCHS:
                return


if __name__ == "__main__":
    hvd.init()
    torch.manual_seed(7)
    model = model_of("norm")
    pictures, labels = digits(SAMPLES)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters()),
        named_parameters=model.named_parameters(),
        reproducible=True,
    )
    sampler = hvd.elastic.ConstantBatchSampler(labels, batch_size=BATCH, parts=PARTS)
    own_state = hvd.elastic.TorchState(
        model,
        optimizer,
        sampler=sampler,
        epoch=0,
        counts=np.zeros(SAMPLES),
        stop=False,
        every_step=True,
    )
    train(own_state)
    report("end", own_state)
