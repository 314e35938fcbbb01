"""Uses each sample of two epochs once; a process dies at POINT, near the end of the first.

37 samples in batches of 4 on 3 ranks: rank 0 has a fourth batch, while the others have joined.
TORCH: with PyTorch's sampler and state, and a model whose steps are kept without copies.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np

import sirtaki as hvd
from sirtaki import elastic
from sirtaki.core.operations.objects import broadcast_object
from sirtaki.data import ShardSampler

POINT, SAMPLES, BATCH = os.environ["POINT"], 37, 4
PROCESS = int(os.environ["SIRTAKI_PROCESS"])


def here(point: str, process: int) -> bool:
    """Whether this process is to act at a point of the first world."""
    return (point, process, hvd.size(), state.epoch) == (POINT, PROCESS, 3, 0)


def die_if(is_time: bool) -> None:
    if is_time:
        os.kill(os.getpid(), signal.SIGKILL)


def learn(count: int) -> None:
    """Only PyTorch has a model here."""


def step(number: int, batch: list[int]) -> None:
    used = np.zeros(SAMPLES)
    used[batch] = 1
    die_if(number == 2 and here("in the last batch of all", 1))
    if number == 3 and here("after it has joined", 0):
        os.kill(int(pids[1]), signal.SIGKILL)
    state.used = state.used + hvd.allreduce(used, op=hvd.Sum, name="used")
    learn(len(batch))
    die_if(number == 3 and here("before it commits the last batch", 0))
    state.sampler.record_batch(number, BATCH)
    state.commit()
    die_if(number == 3 and here("before it joins", 0))


@elastic.run
def train(state: Any) -> None:
    while state.epoch < 2:
        mine = list(state.sampler)
        for number in range(-(-len(mine) // BATCH)):
            step(number, mine[number * BATCH : (number + 1) * BATCH])
        hvd.join()
        die_if(here("before all have the same state", 0))
        state.sync()
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)


def state_with_torch() -> Any:
    from sirtaki.torch.elastic import ElasticSampler, TorchState

    sampler = ElasticSampler(range(SAMPLES), even="join")
    return TorchState(*learner_of_torch(), every_step=True, sampler=sampler, **objects)


def learner_of_torch() -> tuple[Any, Any]:
    global learn
    import torch

    from sirtaki.torch import DistributedOptimizer

    model = torch.nn.Linear(2, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = DistributedOptimizer(sgd, model.named_parameters())

    def step_of_torch(count: int) -> None:
        optimizer.zero_grad()
        model(torch.ones(count, 2)).square().sum().backward()
        optimizer.step()

    learn = step_of_torch
    return model, optimizer


hvd.init()
pids = hvd.allgather(np.array([os.getpid()]))
objects: dict[str, Any] = {"used": np.zeros(SAMPLES), "epoch": 0}
if "TORCH" in os.environ:
    state = state_with_torch()
else:
    plain = ShardSampler(SAMPLES, even="join")
    state = elastic.ObjectState(broadcast_object, hvd.rank, sampler=plain, **objects)
train(state)
if "TORCH" in os.environ:
    weights = hvd.allgather(state.model.weight.detach().numpy())
    assert (weights == weights[0]).all(), weights
print("end", PROCESS, hvd.size(), *sorted(set(state.used.tolist())), file=sys.stdout, flush=True)
