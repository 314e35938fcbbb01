"""A rank of `elastic.py`: small steps of PyTorch, and SIGKILL or SIGSTOP of one at one of them.

It writes when the process was killed, and when the others had computed the next step, into FOLDER.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch

FOLDER, KIND = Path(os.environ["FOLDER"]), sys.argv[1]
KILLED, AGAIN, STEPS, KILL_AT = FOLDER / "killed", FOLDER / "again", 60, 20


def model_and_optimizer() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def step_done(step: int, victim: bool) -> None:
    """Die at one step; note when a step was done after that."""
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if KILLED.exists() and (step > KILL_AT or restarted):
        if not AGAIN.exists():
            AGAIN.write_text(str(time.time()))
    elif victim and step == KILL_AT:
        KILLED.write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGSTOP if KIND == "stopped" else signal.SIGKILL)
    time.sleep(0.005)


def ours() -> None:
    import sirtaki.torch as hvd

    hvd.init()
    model, plain = model_and_optimizer()
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    inputs = torch.ones(8, 64)

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        while state.step < STEPS:
            optimizer.zero_grad()
            model(inputs).sum().backward()
            optimizer.step()
            state.step += 1
            state.commit()
            step_done(state.step, os.environ["SIRTAKI_PROCESS"] == "1")

    train(hvd.elastic.TorchState(model, optimizer, step=0))


def torchrun() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model, optimizer = model_and_optimizer()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    inputs = torch.ones(8, 64)
    for step in range(STEPS):
        optimizer.zero_grad()
        parallel(inputs).sum().backward()
        optimizer.step()
        step_done(step, dist.get_rank() == 1)
    dist.destroy_process_group()


{"ours": ours, "stopped": ours, "torchrun": torchrun}[KIND]()
