"""One rank of compressed_step.py; rank 0 writes what was measured into the folder that all share.

python benchmarks/compressed_step_rank.py FOLDER digits|transformer ROUNDS STEPS
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from peers import GLOO, join_gloo
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import sirtaki.torch as hvd
from sirtaki.observe.measure import Quantiles, interleave

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from mnist_data import load_digits
from pytorch_mnist import LeNet5

FLOAT32 = "float32"
BF16 = "bf16"
INT8 = "int8"
INT4 = "int4"
TOP_K = "top-k, 1/64"
LOW_RANK = "PowerSGD"
_SYNC_EVERY = 50
DILOCO = f"DiLoCo, every {_SYNC_EVERY} steps"
DDP = f"DDP, {GLOO}"
POWER_SGD = f"PowerSGD, {GLOO}"
INTERFACE = "eth0"

Batch = tuple[torch.Tensor, torch.Tensor]


class Digits:
    """LeNet-5 and the digits of the examples."""

    batch = 16
    learning_rate = 0.02

    def __init__(self) -> None:
        dataset = load_digits(None)[0]
        self.inputs = torch.stack([image for image, _ in dataset])
        self.targets = torch.tensor([int(label) for _, label in dataset])

    def model(self) -> nn.Module:
        return LeNet5()


class Text:
    """A transformer that reads a module of the standard library, byte by byte."""

    batch = 8
    learning_rate = 0.05
    _CONTEXT = 32

    def __init__(self) -> None:
        text = torch.frombuffer(bytearray(Path(argparse.__file__).read_bytes()), dtype=torch.uint8)
        pieces = text[: len(text) // (self._CONTEXT + 1) * (self._CONTEXT + 1)].long()
        pieces = pieces.view(-1, self._CONTEXT + 1)
        self.inputs, self.targets = pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()

    def model(self) -> nn.Module:
        return Transformer(self._CONTEXT)


class Transformer(nn.Module):
    """Two layers with causal attention: 0.47 M parameters."""

    def __init__(self, context: int, width: int = 128) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.place = nn.Parameter(torch.zeros(context, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(self.embed(inputs) + self.place, mask=self.mask, is_causal=True)
        return self.head(hidden).transpose(1, 2)


Task = Digits | Text


class Contender:
    """One training from the same start, on the same batches; counts what its host sends."""

    def __init__(self, task: Task, name: str) -> None:
        torch.manual_seed(0)
        self.task = task
        self.sent_bytes = 0
        self.steps = 0
        self._model, self._optimizer = _trained(task, name)
        self._batches = _batches(task)

    def __call__(self, repeats: int) -> list[float]:
        """Return the seconds of so many steps."""
        seconds = []
        before = sent_bytes()
        for _ in range(repeats):
            start = time.perf_counter()
            self._step()
            seconds.append(time.perf_counter() - start)
        hvd.barrier()
        self.sent_bytes += sent_bytes() - before
        return seconds

    def _step(self) -> None:
        inputs, targets = next(self._batches)
        torch.manual_seed(self.steps * hvd.size() + hvd.rank())  # of dropout
        self._optimizer.zero_grad()
        _loss(self._model(inputs), targets).backward()
        self._optimizer.step()
        self.steps += 1

    def finish(self) -> None:
        """Average what ranks have learnt alone."""
        self._optimizer.finish()

    @torch.no_grad()
    def loss(self) -> float:
        """Return the loss of all that is learnt from."""
        self._model.eval()
        return _loss(self._model(self.task.inputs), self.task.targets).item()


def sent_bytes() -> int:
    """Return what this host has sent; in /sys are the interfaces of whoever mounted it."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    (counters,) = (line.split(":")[1] for line in lines if line.strip().startswith(INTERFACE))
    return int(counters.split()[8])


def _loss(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    # Smoothed labels: the loss of what is learnt by heart would be noise.
    return functional.cross_entropy(output, targets, label_smoothing=0.1)


def _batches(task: Task) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(1)
    while True:
        order = torch.randperm(len(task.inputs), generator=generator)
        whole = len(order) // (task.batch * hvd.size())
        for mine in order.split(task.batch)[hvd.rank() : whole * hvd.size() : hvd.size()]:
            yield task.inputs[mine], task.targets[mine]


def _trained(task: Task, name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), task.learning_rate, momentum=0.9)
    if name in (DDP, POWER_SGD):
        return in_ddp(model, name), optimizer
    if name == DILOCO:
        return model, hvd.DiLoCo(optimizer, model, _SYNC_EVERY)
    compressions = {
        FLOAT32: hvd.Compression.none,
        BF16: hvd.Compression.bf16,
        INT8: hvd.Compression.int8,
        INT4: hvd.Compression.int4,
        TOP_K: hvd.Compression.topk(1 / 64),
        LOW_RANK: hvd.Compression.powersgd(2),
    }
    names = model.named_parameters()
    return model, hvd.DistributedOptimizer(optimizer, names, compression=compressions[name])


def in_ddp(model: nn.Module, name: str) -> DistributedDataParallel:
    """Return DDP, if so named with PyTorch's PowerSGD hook."""
    if name != POWER_SGD:
        return DistributedDataParallel(model)
    # The hook's operations of several buckets come in another order on each rank of Gloo's.
    wrapped = DistributedDataParallel(model, bucket_cap_mb=100)
    state = powersgd.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
    wrapped.register_comm_hook(state, powersgd.powerSGD_hook)
    return wrapped


def measure(task: Task, rounds: int, steps: int) -> dict[str, Any]:
    """Return, by contender, the seconds of a step, the bytes a host sends in one, and the loss."""
    names = (FLOAT32, BF16, INT8, INT4, TOP_K, LOW_RANK, DILOCO, DDP, POWER_SGD)
    contenders = {name: Contender(task, name) for name in names}
    seconds: dict[str, Quantiles] = interleave(contenders, dict.fromkeys(names, steps), rounds)
    result = {}
    contenders[DILOCO].finish()
    for name, contender in contenders.items():
        sent = hvd.allreduce(torch.tensor(contender.sent_bytes / contender.steps)).item()
        result[name] = {**seconds[name], "bytes": sent, "loss": contender.loss()}
    parameters = sum(p.numel() for p in task.model().parameters())
    return {"parameters": parameters, "steps": rounds * (1 + steps), "contenders": result}


def main() -> None:
    folder, what, rounds, steps = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    hvd.init()
    join_gloo(folder / f"gloo-{what}", hvd.rank(), hvd.size())
    result = measure({"digits": Digits, "transformer": Text}[what](), rounds, steps)
    if hvd.rank() == 0:
        (folder / "result.json").write_text(json.dumps(result))
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
