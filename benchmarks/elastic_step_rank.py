"""A rank of `elastic.py`: steps of an MLP of 50 million parameters, and commits that copy nothing.

Rank 0 writes the median seconds of a step and of a commit, and what a commit allocates, to FOLDER.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

import sirtaki.torch as hvd

WIDTH, LAYERS, BATCH, STEPS, WARMUP = 3536, 4, 32, 12, 2


def main() -> None:
    hvd.init()
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    plain = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    inputs = torch.ones(BATCH, WIDTH)
    state = hvd.elastic.TorchState(model, optimizer, every_step=True, epoch=0, batch=0)
    train(state, inputs)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState, inputs: torch.Tensor) -> None:
    steps, commits = [], []
    for _ in range(STEPS):
        begun = time.perf_counter()
        state.optimizer.zero_grad()
        state.model(inputs).sum().backward()
        state.optimizer.step()
        state.batch += 1
        hvd.barrier()  # a commit does not pay for ranks that are late
        stepped = time.perf_counter()
        state.commit()
        commits.append(time.perf_counter() - stepped)
        steps.append(stepped - begun)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        state.commit()
    allocated = sum(max(0, each.self_cpu_memory_usage) for each in profiled.key_averages())
    if hvd.rank() == 0:
        parameters = sum(each.numel() for each in state.model.parameters())
        cost = {
            "parameters": parameters,
            "step": statistics.median(steps[WARMUP:]),
            "commit": statistics.median(commits[WARMUP:]),
            "model_bytes": 4 * parameters,
            "allocated_bytes": allocated,
        }
        Path(os.environ["FOLDER"], "cost").write_text(json.dumps(cost))


main()
