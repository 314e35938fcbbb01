"""Trains in parts for five steps, and comes to harm in part 7 of step 3 where HARM says so.

HARM: gradient, report, part, loader, step or half. WIDTH and SHUFFLE change the program. It prints
the bits of each part of that step: of parameters and buffers, of moments, of gradients.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import torch

import sirtaki.torch as hvd

HARM = os.environ.get("HARM", "")
WIDTH = int(os.environ.get("WIDTH", "16"))

hvd.init()
if "THREADS" in os.environ:
    torch.set_num_threads(int(os.environ["THREADS"]))
torch.manual_seed(0)


class Log(torch.nn.Module):
    """The logarithm, whose gradient is infinite at 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return it."""
        return torch.log(x)


class Data(torch.utils.data.Dataset[torch.Tensor]):
    """Samples, of which one cannot be read if HARM says so."""

    def __init__(self) -> None:
        self.all = torch.randn(96, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return a sample."""
        if HARM == "loader" and state.step == 3 and index in sampler.step_samples()[7]:
            raise OSError("cannot be read")
        return self.all[index]


class Stubborn(torch.optim.Adam):
    """Fails before it changes parameters, or after it."""

    def step(self, closure: Any = None) -> Any:
        """Step, and fail."""
        if HARM == "step" and state.step == 3:
            raise ArithmeticError("no step")
        result = super().step(closure)
        if HARM == "half" and state.step == 3:
            raise ArithmeticError("half done")
        return result


model = torch.nn.Sequential(
    torch.nn.Linear(8, WIDTH),
    torch.nn.Dropout(0.2),
    torch.nn.Softplus(),
    Log(),
    torch.nn.BatchNorm1d(WIDTH),
    torch.nn.Linear(WIDTH, 1),
)
data = Data()
optimizer = hvd.DistributedOptimizer(
    Stubborn(model.parameters()), named_parameters=model.named_parameters(), reproducible=True
)
sampler = hvd.elastic.ConstantBatchSampler(
    data, batch_size=4, parts=12, shuffle="SHUFFLE" not in os.environ
)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, step=0, every_step=True)
loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)


def digest(tensors: Any) -> str:
    """Return a hash of the bits of tensors."""
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in tensors)).hexdigest()[:16]


def compute(part: hvd.elastic.Part, x: torch.Tensor) -> None:
    """Compute a part."""
    harmed = part.index == 7 and state.step == 3
    if harmed and HARM == "part":
        raise ArithmeticError("no such sample")
    before = digest(model.state_dict().values())
    loss = model(x * 1e30 if harmed and HARM == "gradient" else x).square().mean()
    loss.backward()
    part.report(loss=float("inf") if harmed and HARM == "report" else loss)
    if state.step == 3:
        grads = digest(p.grad for p in model.parameters())
        moments = [v for p in model.parameters() for v in optimizer.state[p].values()]
        print("bits", part.index, before, digest(moments), grads, float(loss.detach()), flush=True)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Train."""
    while state.step < 5:
        if sampler.steps_left == 0:
            sampler.set_epoch(sampler.epoch + 1)
        for part, x in state.parts(loader):
            with part:
                compute(part, x)
        optimizer.step()
        optimizer.zero_grad()
        sampler.record_step()
        state.step += 1
        state.commit()


train(state)
print("done", flush=True)
