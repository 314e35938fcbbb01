"""Trains MODEL for STEPS steps in parts, comes to harm where FAULTS says so, and prints a hash.

FAULTS: words such as 1@5:part:KILL, which means that process 1 kills itself at step 5 there, or
stops itself: in a part, before or after `step`, before `commit`. COMPANY: the step at which a rank
that is alone waits for others. Lines: "parts STEP NUMBER..." of each step that is done; "hash HEX".
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Iterable

import torch

import sirtaki.torch as hvd

MODEL, STEPS = os.environ["MODEL"], int(os.environ["STEPS"])
PROCESS = os.environ.get("SIRTAKI_PROCESS", "0")
PARTS, BATCH, CLASSES = 12, 4, 10
COMPANY = int(os.environ.get("COMPANY", "-1"))
FAULTS = set(os.environ.get("FAULTS", "").split())

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(7)


class Transformer(torch.nn.Module):
    """Attends to the rows of a picture, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(8, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, CLASSES)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.layers(self.embed(pictures.flatten(0, 1)))
        out: torch.Tensor = self.head(rows.mean(1))
        return out


def lenet(norm: bool) -> torch.nn.Module:
    layers: Iterable[torch.nn.Module] = (
        torch.nn.Conv2d(1, 6, 3),
        torch.nn.BatchNorm2d(6) if norm else torch.nn.Identity(),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(54, 32),
        torch.nn.Tanh(),
        torch.nn.Linear(32, CLASSES),
    )
    return torch.nn.Sequential(*layers)


def die(step: int, where: str) -> None:
    if hvd.size() > 1:
        for kind in ("KILL", "STOP"):
            if f"{PROCESS}@{step}:{where}:{kind}" in FAULTS:
                os.kill(os.getpid(), signal.Signals[f"SIG{kind}"])


def digest(tensors: Iterable[torch.Tensor]) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().numpy().tobytes())
    return found.hexdigest()


model = Transformer() if MODEL == "transformer" else lenet(MODEL == "norm")
generator = torch.Generator().manual_seed(1)
pictures = torch.randn(500, 1, 8, 8, generator=generator)
labels = torch.randint(CLASSES, (500,), generator=generator)
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
        while state.step == COMPANY and hvd.size() == 1:
            time.sleep(0.05)
            state.commit()
        if sampler.steps_left == 0:
            sampler.set_epoch(sampler.epoch + 1)
        take_step()


train(state)
moments = [
    value
    for kept in optimizer.state_dict()["state"].values()
    for value in kept.values()
    if isinstance(value, torch.Tensor)
]
print("hash", digest([*model.state_dict().values(), *moments]), flush=True)
