"""Trains with `every_step`, kills process 1 at POINT of step 4, and prints each state in short.

OP=Adasum: with that, which has no whole steps.

Lines: "loaded BEFORE THEN", whether what PyTorch loads with an optimizer was there before the first
world and is there in it; "at WORLD STEP PARAMETERS BUFFERS RANDOM" when a step begins; "applied
STEP" after each.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

import torch

import sirtaki.torch as hvd

PROCESS = int(os.environ["SIRTAKI_PROCESS"])
POINT, KILL_AT, STEPS = os.environ.get("POINT", ""), 4, 7


class Momentum(torch.optim.Optimizer):
    """Steps one parameter after the other, so that a process can die among them."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for number, parameter in enumerate(self.param_groups[0]["params"]):
            if number == 1:
                die("in step")
            buffer = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
            buffer.mul_(0.9).add_(parameter.grad)
            parameter.sub_(buffer, alpha=0.1)


def here(point: str) -> bool:
    return point == POINT and state.step == KILL_AT and worlds == 1


def die(point: str, process: int = 1) -> None:
    if here(point) and process == PROCESS:
        os.kill(os.getpid(), signal.SIGKILL)


def harm_backward(*_: object) -> None:
    die("in backward")
    if here("in the allreduce"):
        if PROCESS == 1:  # has given all gradients when that happens, and waits for process 2
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
        elif PROCESS == 2:
            time.sleep(0.5)


def harm_before_step(*_: object) -> None:
    if here("one is behind") and PROCESS == 0:
        raise hvd.PeerLostError("noticed when the others had all gradients")


def short(tensors: Iterable[torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().numpy().tobytes())
    return digest.hexdigest()[:12]


def say() -> None:
    moments = [each["momentum"] for each in optimizer.state.values()]
    random = short([torch.get_rng_state()])
    parts = short([*model.parameters(), *moments]), short(model.buffers()), random
    print("at", worlds, state.step, *parts, flush=True)


before = "torch._dynamo" in sys.modules
hvd.init()
print("loaded", before, "torch._dynamo" in sys.modules, flush=True)
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1)
)
torch.manual_seed(1 + PROCESS)
optimizer = hvd.DistributedOptimizer(
    Momentum(model.parameters()),
    model.named_parameters(),
    op=getattr(hvd, os.environ.get("OP", "Average")),
)
next(model.parameters()).register_hook(harm_backward)
optimizer.register_step_pre_hook(harm_before_step)
optimizer.register_step_post_hook(lambda *_: print("applied", state.step + 1, flush=True))
worlds = 0


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    global worlds
    worlds += 1
    while state.step < STEPS:
        say()
        die("before forward")
        outputs = model(torch.randn(4, 8))
        optimizer.zero_grad()
        outputs.sum().backward()
        die("before step")
        optimizer.step()
        die("before bookkeeping")
        die("one is behind")
        state.step += 1
        die("before commit")
        state.commit()


state = hvd.elastic.TorchState(model, optimizer, every_step=True, step=0)
train(state)
print("end", hvd.size(), short(model.parameters()), file=sys.stdout, flush=True)
