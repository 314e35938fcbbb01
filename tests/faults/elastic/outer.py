"""Trains with DiLoCo for STEPS steps; process 1 kills itself at step KILL.

Lines: "end STEP COUNTED HASH" with the steps that the optimizer has counted, and the parameters'
hash.
"""

from __future__ import annotations

import hashlib
import os
import signal
from typing import Any

import torch

import sirtaki.torch as hvd

STEPS, KILL = int(os.environ["STEPS"]), int(os.environ["KILL"])

hvd.init()
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
inner = torch.optim.AdamW(model.parameters(), lr=0.01)
optimizer: Any = hvd.DiLoCo(inner, model, sync_every=6, fragments=2, delay=1)
state = hvd.elastic.TorchState(model, optimizer, step=0)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    generator = torch.Generator()
    while state.step < STEPS:
        if state.step == KILL and os.environ.get("SIRTAKI_PROCESS") == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        generator.manual_seed(1000 * state.step + hvd.rank())
        inputs = torch.randn(16, 4, generator=generator)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.step += 1
        state.commit()
    optimizer.finish()


train(state)
digest = hashlib.sha256()
for param in model.parameters():
    digest.update(param.detach().numpy().tobytes())
print("end", state.step, optimizer.state_dict()["outer"]["step"], digest.hexdigest(), flush=True)
