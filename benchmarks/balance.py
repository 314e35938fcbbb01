"""Two ranks of which one has half of its core: equal shares, and shares in proportion to speeds.

python benchmarks/balance.py        (needs root: it makes a control group)
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from models import Convolutions
from output import RESULTS, write_result
from targets import check_balance

import sirtaki.torch as hvd
from sirtaki.launch.api import run
from sirtaki.observe.machine import machine_facts
from sirtaki.rendezvous.words import aligned

_PARTS = 12
_GROUP = Path("/sys/fs/cgroup/cpu/sirtaki-balance")
_PERIOD_US = 20_000

EQUAL = "equal shares"
BALANCED = "balance=True"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (10)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of balance.json")
    args = parser.parse_args(arguments)
    if (reason := reason_to_skip()) is not None:
        raise SystemExit(f"no control group here: {reason}")
    facts = machine_facts()
    measured: dict[str, Any] = run(_measure, (args.seconds,), num_proc=2)[0]
    print(*aligned(rows(measured)), sep="\n")
    checks = check_balance(measured)
    print(*(check.line() for check in checks), sep="\n")
    result = {
        "benchmark": "balance",
        "command": shlex.join(["python", "benchmarks/balance.py", *arguments]),
        "machine": facts,
        **measured,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "balance.json", result)
    return 0


def rows(measured: dict[str, Any]) -> list[list[str]]:
    """Return a table of the speeds, with its header."""
    alone = sum(measured["alone"])
    return [
        ["", "parts/s", "of both alone", "parts of each rank"],
        *(
            [name, f"{speed:.1f}", f"{speed / alone:.2f}", f"{measured['shares'][name]}"]
            for name, speed in measured["speeds"].items()
        ),
    ]


def reason_to_skip() -> str | None:
    """Return why no rank can be held to a share of its core, None if one can."""
    if not (_GROUP.parent / "cpu.cfs_quota_us").exists():
        return "there is no controller of version 1 for processor time"
    return None if os.access(_GROUP.parent, os.W_OK) else "it needs root"


def _measure(seconds: float) -> dict[str, Any]:
    hvd.init()
    torch.set_num_threads(1)
    with _half_of_a_core() if hvd.rank() == 1 else _untouched():
        hvd.barrier()
        alone = hvd.allgather_object(_speed_alone(seconds))
        speeds, shares = {}, {}
        for name in (EQUAL, BALANCED):
            hvd.barrier()
            speeds[name], shares[name] = _speed_together(name == BALANCED, seconds)
        return {"alone": alone, "speeds": speeds, "shares": shares}


@contextmanager
def _half_of_a_core() -> Iterator[None]:
    _GROUP.mkdir(exist_ok=True)
    try:
        (_GROUP / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (_GROUP / "cpu.cfs_quota_us").write_text(str(_PERIOD_US // 2))
        (_GROUP / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (_GROUP.parent / "cgroup.procs").write_text(str(os.getpid()))
        _GROUP.rmdir()


@contextmanager
def _untouched() -> Iterator[None]:
    yield


def _backward(model: torch.nn.Module, batch: Any) -> None:
    torch.nn.functional.mse_loss(model(batch[0]), batch[1]).backward()


def _speed_alone(seconds: float) -> float:
    """Return parts a second of this rank, which exchanges nothing."""
    task = Convolutions(32)
    model, batch = task.model(), task.data()
    _backward(model, batch)
    began, parts = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        _backward(model, batch)
        parts += 1
    return parts / (time.perf_counter() - began)


def _speed_together(balance: bool, seconds: float) -> tuple[float, list[int]]:
    """Return parts a second of both ranks once the shares have settled, and the shares."""
    task = Convolutions(32)
    model, batch = task.model(), task.data()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3),
        ((f"{balance}.{name}", p) for name, p in model.named_parameters()),
        reproducible=True,
    )
    sampler = hvd.elastic.ConstantBatchSampler(range(10**6), 1, _PARTS, balance=balance)
    state = hvd.elastic.TorchState(model, optimizer, every_step=True, sampler=sampler)

    def steps_for(limit: float) -> float:
        began, steps, goes_on = time.perf_counter(), 0, True
        while goes_on:
            for part in state.parts():
                with part:
                    _backward(model, batch)
            optimizer.step()
            optimizer.zero_grad()
            sampler.record_step()
            state.commit()
            steps += 1
            over = torch.tensor(float(time.perf_counter() > began + limit))
            goes_on = not bool(hvd.allreduce(over, op=hvd.Max))
        return _PARTS * steps / (time.perf_counter() - began)

    steps_for(10.0)
    return steps_for(seconds), list(sampler.shares.counts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
