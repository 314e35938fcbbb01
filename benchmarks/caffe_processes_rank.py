"""One process of caffe_processes.py: a solver alone, one with the others, and the gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

import sirtaki.torch as hvd
from sirtaki.observe.contenders import Run
from sirtaki.observe.measure import Quantiles, interleave
from sirtaki_caffe.parallel import Processes
from sirtaki_caffe.proto.schema import NetParameter, SolverParameter
from sirtaki_caffe.proto.text import parse
from sirtaki_caffe.solver.solver import Solver

APART, TOGETHER, BYTES = "exchange nothing", "train together", "the gradients alone"


def measure(text: str, rounds: int) -> dict[str, Quantiles]:
    """Seconds of an iteration in each of two processes, and of adding the gradients up."""
    torch.set_num_threads(1)
    hvd.init()
    solvers = {
        APART: _solver(text, Processes()),
        TOGETHER: _solver(text, Processes.current()),
    }
    runs = {name: _steps(solver) for name, solver in solvers.items()}
    runs[BYTES] = _reductions([param.data for param in solvers[APART].net.learnable])
    return interleave(runs, dict.fromkeys(runs, 2), rounds)


def _solver(text: str, processes: Processes) -> Solver:
    param = SolverParameter(base_lr=0.01, lr_policy="fixed", momentum=0.9, random_seed=1)
    param.net_param.CopyFrom(parse(text, NetParameter, "zoo"))
    return Solver(param, lambda source, line: None, processes)


def _steps(solver: Solver) -> Run:
    def steps(count: int) -> list[float]:
        return [_seconds(lambda: solver.step(1)) for _ in range(count)]

    return steps


def _reductions(params: Sequence[torch.Tensor]) -> Run:
    gradients = [torch.zeros_like(param) for param in params]

    def reductions(count: int) -> list[float]:
        return [
            _seconds(lambda: hvd.grouped_allreduce_(gradients, name="bytes")) for _ in range(count)
        ]

    return reductions


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
