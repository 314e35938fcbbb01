"""What PyTorch's own C++ code and its compiler do with our works and groups."""

from __future__ import annotations

import gc
import inspect
import re
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel


def sum_of_ranks() -> float:
    return dist.get_world_size() * (dist.get_world_size() - 1) / 2


def started(kind: str, tensor: torch.Tensor) -> dist.Work:
    """An all_reduce that is under way, as one work or as one of several."""
    if kind == "one":
        work = dist.all_reduce(tensor, async_op=True)
    else:
        with dist._coalescing_manager(async_ops=True) as manager:
            dist.all_reduce(tensor)
        (work,) = manager.works
    assert work is not None
    return work


@pytest.mark.parametrize("kind", ["one", "several"])
def test_a_boxed_work_outlives_what_python_had_of_it(kind: str) -> None:
    tensor = torch.full((1000,), float(dist.get_rank()))
    boxed = started(kind, tensor).boxed()
    gc.collect()
    assert dist.Work.unbox(boxed).wait()
    assert bool((tensor == sum_of_ranks()).all())


@pytest.mark.parametrize("kind", ["one", "several"])
def test_a_registered_work_outlives_what_python_had_of_it(kind: str) -> None:
    tensor = torch.full((1000,), float(dist.get_rank()))
    c10d._register_work(tensor, started(kind, tensor))
    gc.collect()
    torch.ops._c10d_functional.wait_tensor(tensor)
    assert bool((tensor == sum_of_ranks()).all())


def test_pytorch_takes_works_from_python_nowhere_else() -> None:
    """What is found here in a newer version must be served as the others are."""

    def functions(owner: object) -> Iterator[Callable[..., object]]:
        for _, member in inspect.getmembers(owner):
            if inspect.isclass(member) and owner is c10d:
                yield from functions(member)
            elif callable(member):
                yield member

    signature = re.compile(r"(\w+)\((?:self: [^,)]*)?(.*)\) -> ")
    found = set()
    for function in functions(c10d):
        for name, parameters in signature.findall(function.__doc__ or ""):
            if re.search(r"\bWork\b", parameters):
                found.add(name)
    # The first is of NCCL's tests.
    others = {"_verify_work_timeout", "_register_work", "_set_forward_pass_work_handle"}
    assert found <= others


def test_a_compiled_ddp_learns_what_an_eager_one_does() -> None:
    def learned(compiled: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
        step = torch.compile(model, backend="eager") if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            step(torch.full((4, 8), float(dist.get_rank()))).square().mean().backward()
            optimizer.step()
        return list(model.parameters())

    for compiled, eager in zip(learned(True), learned(False), strict=True):
        torch.testing.assert_close(compiled, eager)
