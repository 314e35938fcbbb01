"""Trains with DiLoCo for STEPS steps; process 1 kills itself at step KILL, or waits if CUT=1.

A world of fewer than COMPANY ranks goes on, a step in 20 ms, and one of so many takes 12 steps
at least. Lines: "here" by the process that waits; "world STEP IDS" by rank 0 at the beginning of
each world, with the processes of its ranks; "end ID STEP COUNTED PARAMETERS" with the steps that
the optimizer has counted.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import sirtaki.torch as hvd

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.outer_oracle import LR, target

STEPS, KILL = int(os.environ["STEPS"]), int(os.environ["KILL"])
COMPANY = int(os.environ.get("COMPANY", 1))
PROCESS = int(os.environ["SIRTAKI_PROCESS"])

hvd.init()
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2)).double()
with torch.no_grad():
    for param in model.parameters():
        param.fill_(1.0)
inner = torch.optim.SGD(model.parameters(), lr=LR)
optimizer: Any = hvd.DiLoCo(
    inner, model, sync_every=6, fragments=[model[0], model[1]], delay=1, mix=0.25
)
state = hvd.elastic.TorchState(model, optimizer, step=0)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    members = hvd.allgather_object(PROCESS)
    if hvd.rank() == 0:
        print("world", state.step, *members, flush=True)
    until = max(STEPS, state.step + 12 if COMPANY > 1 else 0)
    while state.step < until or hvd.size() < COMPANY:
        if (state.step, PROCESS) == (KILL, 1):
            if "CUT" in os.environ:
                print("here", flush=True)
                time.sleep(600)
            time.sleep(1)  # the others come to where they wait for it
            os.kill(os.getpid(), signal.SIGKILL)
        if hvd.size() < COMPANY:
            time.sleep(0.02)
        for param in model.parameters():
            goal = torch.from_numpy(target(PROCESS, state.step, tuple(param.shape)))
            param.grad = param.detach() - goal
        optimizer.step()
        state.step += 1
        state.commit()
    optimizer.finish()


train(state)
values = [value for param in model.parameters() for value in param.detach().flatten().tolist()]
counted = optimizer.state_dict()["outer"]["step"]
print("end", PROCESS, state.step, counted, *map(repr, values), flush=True)
