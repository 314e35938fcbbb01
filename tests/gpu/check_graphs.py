"""CUDA graphs: a capture beside pending operations, operations within one, and torch.compile."""

from __future__ import annotations

import torch

import sirtaki.torch as hvd

COUNT = 1 << 16


def check_capture_beside_an_operation() -> None:
    """The launcher's thread puts an operation on its stream while this thread captures."""
    tensor, other = (torch.ones(COUNT, device="cuda") for _ in range(2))
    for _ in range(10):
        torch.cuda._sleep(20_000_000)
        handle = hvd.allreduce_async(other, op=hvd.Sum, name="beside")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            doubled = tensor * 2
        result = hvd.synchronize(handle)
        graph.replay()
        torch.cuda.synchronize()
        assert bool((doubled == 2).all())
        assert bool((result == hvd.size()).all())


def check_operation_within_a_capture() -> None:
    """It raises an error that says what to do, and later operations run."""
    tensor = torch.ones(COUNT, device="cuda")
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            hvd.allreduce_(tensor, op=hvd.Sum, name="within")
    except (RuntimeError, ValueError) as error:
        if "graph" not in str(error):
            raise
        if hvd.rank() == 0:
            print(f"refused: {error}", flush=True)
    else:
        raise AssertionError("an operation was captured without a word")
    torch.cuda.synchronize()
    result = hvd.allreduce(torch.ones(COUNT, device="cuda"), op=hvd.Sum, name="after")
    assert bool((result == hvd.size()).all())


def check_compiled_model() -> None:
    """The model is compiled with CUDA graphs; hooks submit its gradients outside of them."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    model.cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )
    for step in range(6):
        inputs = torch.full((4, 32), float(hvd.rank() + step), device="cuda")
        optimizer.zero_grad()
        compiled(inputs).square().mean().backward()
        optimizer.step()
    for parameter in model.parameters():
        torch.testing.assert_close(hvd.broadcast(parameter.data, 0), parameter.data)


def main() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    for check in (
        check_capture_beside_an_operation,
        check_operation_within_a_capture,
        check_compiled_model,
    ):
        check()
        if hvd.rank() == 0:
            print(f"{check.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
