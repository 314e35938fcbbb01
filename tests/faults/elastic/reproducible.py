"""Trains MODEL for STEPS steps in parts, comes to harm where FAULTS says so, and prints a hash.

FAULTS: words such as 1@5:part:KILL, which means that process 1 kills itself at step 5 there, or
stops itself: in a part, before or after `step`, before `commit`. COMPANY: words such as 6:2, which
means that step 6 waits for two ranks. Lines: "parts STEP NUMBER..." of each step that is done;
"hash HEX".
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch

import sirtaki.torch as hvd

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.faults.elastic.models import digest, digits, model_of

MODEL, STEPS = os.environ["MODEL"], int(os.environ["STEPS"])
PROCESS = os.environ.get("SIRTAKI_PROCESS", "0")
PARTS, BATCH = 12, 4
COMPANY = dict(word.split(":") for word in os.environ.get("COMPANY", "").split())
FAULTS = set(os.environ.get("FAULTS", "").split())

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(7)


def die(step: int, where: str) -> None:
    if hvd.size() > 1:
        for kind in ("KILL", "STOP"):
            if f"{PROCESS}@{step}:{where}:{kind}" in FAULTS:
                os.kill(os.getpid(), signal.Signals[f"SIG{kind}"])


model = model_of(MODEL)
pictures, labels = digits(500)
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(model.parameters(), lr=0.01),
    named_parameters=model.named_parameters(),
    reproducible=True,
)
sampler = hvd.elastic.ConstantBatchSampler(labels, batch_size=BATCH, parts=PARTS)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, step=0, every_step=True)


def take_step() -> None:
    done = []
    for part in state.parts():
        with part:
            die(state.step, "part")
            loss = torch.nn.functional.cross_entropy(
                model(pictures[part.samples]), labels[part.samples]
            )
            loss.backward()
            part.report(loss=loss)
        done.append(part.index)
    die(state.step, "before")
    optimizer.step()
    die(state.step, "after")
    optimizer.zero_grad()
    sampler.record_step()
    print("parts", state.step, *sorted(set(done)), flush=True)
    state.step += 1
    die(state.step - 1, "commit")
    state.commit()


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    while state.step < STEPS:
        while hvd.size() < int(COMPANY.get(str(state.step), 1)):
            time.sleep(0.05)
            state.commit()
        if sampler.steps_left == 0:
            sampler.set_epoch(sampler.epoch + 1)
        take_step()


train(state)
print("hash", digest(model, optimizer), flush=True)
