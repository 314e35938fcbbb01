"""A process is killed while all train on GPUs; the others make NCCL's groups anew and go on."""

from __future__ import annotations

import os
import signal

import torch

import sirtaki.torch as hvd

STEPS, KILL_AT = 20, 7
DEVICES = torch.cuda.device_count()


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    while state.step < STEPS:
        if state.step == KILL_AT and os.environ["SIRTAKI_PROCESS"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        one = hvd.allreduce(torch.ones_like(total.weight), op=hvd.Average, name="gradient")
        with torch.no_grad():
            total.weight += one
        state.step += 1
        state.sizes = sorted({*state.sizes, hvd.size()})
        state.commit()


hvd.init()
device = f"cuda:{hvd.local_rank() % DEVICES}" if DEVICES else "cpu"
total = torch.nn.Linear(1024, 1024, bias=False, device=device)
torch.nn.init.zeros_(total.weight)
state = hvd.elastic.TorchState(total, step=0, sizes=[])
train(state)
if state.sizes != [2, 3] or not bool((total.weight == STEPS).all()):
    raise AssertionError(f"worlds of {state.sizes}, {total.weight.mean()} in place of {STEPS}")
print(f"rank {hvd.rank()}: {STEPS} steps in worlds of 3 and 2 ranks on {device}")
