"""In a profile of backward the reduction of gradients runs beside the script's own kernels."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

import sirtaki.torch as hvd

LAYERS = 8
WIDTH = 4096


def spans(trace: profile, nccl: bool) -> list[tuple[float, float]]:
    """When kernels of NCCL, or all others, ran on the device."""
    return [
        (event.time_range.start, event.time_range.end)
        for event in trace.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
        and ("nccl" in event.name.lower()) == nccl
    ]


def overlap(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> float:
    return sum(
        max(0.0, min(end, other_end) - max(begin, other_begin))
        for begin, end in a
        for other_begin, other_end in b
    )


def main() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]).cuda()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
    )
    inputs = torch.randn(256, WIDTH, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        step()
        torch.cuda.synchronize()
    reduction = spans(trace, nccl=True)
    total = sum(end - begin for begin, end in reduction)
    hidden = overlap(reduction, spans(trace, nccl=False))
    if hvd.rank() == 0:
        print(f"{hidden:.0f} of {total:.0f} us of NCCL's kernels beside others", flush=True)
        print(f"figure share_beside_backward {hidden / max(total, 1):.3f}", flush=True)
    if hvd.size() > 1 and not hidden:
        raise AssertionError("the reduction of gradients runs alone")


if __name__ == "__main__":
    main()
