"""One rank of low_communication.py; rank 0 writes what was measured into the folder that all share.

python benchmarks/low_communication_rank.py FOLDER steps|pair ROUNDS
"""

from __future__ import annotations

import json
import math
import os
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from compressed_step_rank import (
    DDP,
    FLOAT32,
    INT4,
    INT8,
    INTERFACE,
    POWER_SGD,
    Transformer,
    in_ddp,
    sent_bytes,
)
from peers import join_gloo
from torch.nn import functional

import sirtaki.torch as hvd
from sirtaki.observe.measure import interleave

ALONE = "no exchange"
DILOCO = "DiLoCo"
# Of `DiLoCo`, in every case. In the trainings that are compared, RATE is AdamW's learning rate.
RATE = 8e-3
SYNC_EVERY = 60
OPTIONS: dict[str, Any] = {
    "sync_every": SYNC_EVERY,
    "outer_lr": 0.7,
    "outer_momentum": 0.6,
    "compression": hvd.Compression.int4,
}

_CONTEXT = 32
_WARMUP = 100
_HELD_OUT = 8  # of so many files one is not learnt from
_MOST_BYTES = 4_000_000


class Size(NamedTuple):
    """A transformer of two layers, and the sequences that a rank takes in a step."""

    width: int
    batch: int


SMALL = Size(136, 96)
LARGE = Size(640, 128)


class Text:
    """The standard library's modules, byte by byte: pieces to learn from, and others."""

    def __init__(self) -> None:
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        self.learnt = _pieces([file for at, file in enumerate(files) if at % _HELD_OUT])
        self.held_out = _pieces(files[::_HELD_OUT])[::16]


def _pieces(files: list[Path]) -> torch.Tensor:
    data = b"".join(file.read_bytes() for file in files)[:_MOST_BYTES]
    text = torch.frombuffer(bytearray(data), dtype=torch.uint8).long()
    return text[: len(text) // (_CONTEXT + 1) * (_CONTEXT + 1)].view(-1, _CONTEXT + 1)


def loss_of(model: torch.nn.Module, pieces: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(pieces[:, :-1]), pieces[:, 1:])


class Training:
    """One training from the same start; ranks take different pieces of the same text.

    Args:
        text: To learn from.
        name: The contender.
        size: Of the model.
        seed: Of its start and of the order of pieces.
        rate: The learning rate of AdamW.
        steps: Of the schedule, a warm-up and then a cosine.
    """

    def __init__(
        self, text: Text, name: str, size: Size, seed: int = 0, rate: float = 2e-3,
        steps: int = 1_000_000,
    ) -> None:  # fmt: skip
        torch.manual_seed(seed)
        self._text, self._batch = text, size.batch
        self.model: torch.nn.Module = Transformer(_CONTEXT, size.width)
        optimizer = torch.optim.AdamW(self.model.parameters(), rate)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / _WARMUP) * _cosine(step, steps)
        )
        self._forward, self.optimizer = _wrapped(name, self.model, optimizer)
        self._order = torch.Generator().manual_seed(1000 * seed + hvd.rank())
        self.sent_bytes = self.steps = 0
        self.sleeps = False  # and does not take part
        self.seconds: list[float] = []

    def __call__(self, repeats: int) -> list[float]:
        """Return the seconds of so many steps."""
        if self.sleeps:
            hvd.barrier()
            return []
        before, took = sent_bytes(), []
        for _ in range(repeats):
            start = time.perf_counter()
            self.step()
            took.append(time.perf_counter() - start)
        hvd.barrier()
        self.sent_bytes += sent_bytes() - before
        self.seconds += took[1:]
        return took

    def step(self) -> None:
        pieces = self._text.learnt
        chosen = torch.randint(len(pieces), (self._batch,), generator=self._order)
        self.optimizer.zero_grad()
        loss_of(self._forward, pieces[chosen]).backward()
        self.optimizer.step()
        self._schedule.step()
        self.steps += 1


def _cosine(step: int, steps: int) -> float:
    return 0.05 + 0.95 * (1 + math.cos(math.pi * min(1.0, step / steps))) / 2


def _wrapped(
    name: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[torch.nn.Module, Any]:
    if name in (DDP, POWER_SGD):
        return in_ddp(model, name), optimizer
    if name == ALONE:
        return model, optimizer
    if name == DILOCO:
        return model, hvd.DiLoCo(optimizer, model, **OPTIONS)
    codecs = hvd.Compression
    compression = {FLOAT32: codecs.none, INT8: codecs.int8, INT4: codecs.int4}[name]
    named = model.named_parameters()
    return model, hvd.DistributedOptimizer(optimizer, named, compression=compression)


def train(name: str, seed: int, rate: float, steps: int) -> dict[str, float]:
    """Train on all ranks; return the loss of held-out text, and the seconds that it took."""
    torch.set_num_threads(1)
    hvd.init()
    text = Text()
    training = Training(text, name, SMALL, seed, rate, steps)
    start = time.perf_counter()
    for _ in range(steps):
        training.step()
    if name == DILOCO:
        training.optimizer.finish()
    took = time.perf_counter() - start
    with torch.no_grad():
        loss = loss_of(training.model.eval(), text.held_out).item()
    return {"loss": loss, "seconds": took}


def _steps(text: Text, rounds: int) -> dict[str, Any]:
    """Measure steps of all contenders by turns."""
    names = (ALONE, FLOAT32, INT8, DILOCO, DDP, POWER_SGD)
    return _by_turns({name: Training(text, name, SMALL) for name in names}, rounds, 8)


def _pair(text: Text, rounds: int) -> dict[str, Any]:
    """Measure both hosts, and the first one while the other sleeps."""
    names = (ALONE, FLOAT32, INT8, INT4, DILOCO)
    trainings = {name: Training(text, name, LARGE) for name in names}
    trainings[ALONE].sleeps = hvd.rank() > 0
    return _by_turns(trainings, rounds, 15)


def _by_turns(trainings: dict[str, Training], rounds: int, steps: int) -> dict[str, Any]:
    """Return what so many steps a turn have taken and sent; a turn of DiLoCo is a whole cycle."""
    repeats = {name: SYNC_EVERY if name == DILOCO else steps for name in trainings}
    quantiles = interleave(trainings, repeats, rounds)
    result = {}
    for name, training in trainings.items():
        slept = training.sleeps
        mean = 0.0 if slept else sum(training.seconds) / len(training.seconds)
        sent = 0.0 if slept else training.sent_bytes / training.steps
        slowest = hvd.allreduce(torch.tensor([mean, sent]), op=hvd.Max).tolist()
        result[name] = {**quantiles[name], "mean": slowest[0], "bytes": slowest[1]}
    parameters = sum(p.numel() for p in trainings[DILOCO].model.parameters())
    return {"parameters": parameters, "contenders": result}


def main() -> None:
    folder, what, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    hvd.init()
    join_gloo(folder / f"gloo-{what}", hvd.rank(), hvd.size())
    result = {"steps": _steps, "pair": _pair}[what](Text(), rounds)
    if hvd.rank() == 0:
        (folder / "result.json").write_text(json.dumps(result))
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
