"""Tensors that are dropped or change while an operation runs, on several streams."""

from __future__ import annotations

import torch

import sirtaki.torch as hvd

COUNT = 1 << 20
# About 50 ms of the device.
CYCLES = 100_000_000


def expect(what: str, tensor: torch.Tensor, value: float) -> None:
    if not bool((tensor == value).all()):
        raise AssertionError(f"{what}: {tensor.flatten()[:4].tolist()} in place of {value}")


def check_side_stream() -> None:
    """An operation of a side stream, whose tensor is dropped and whose memory is used again."""
    total = float(sum(range(1, hvd.size() + 1)))
    for _ in range(20):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(CYCLES)
            tensor = torch.full((COUNT,), hvd.rank() + 1.0, device="cuda")
            handle = hvd.allreduce_async(tensor, op=hvd.Sum, name="side")
            del tensor
            result = hvd.synchronize(handle)
            # The memory of the dropped tensor is this one's, before the operation has run.
            torch.full((COUNT,), -1.0, device="cuda")
            copy = result.clone()
        torch.cuda.current_stream().wait_stream(stream)
        expect("side stream", copy, total)


def check_reuse_behind_the_result() -> None:
    """The result is dropped while the stream that computes with it is still far behind."""
    for step in range(20):
        torch.cuda._sleep(CYCLES)
        result = hvd.allreduce(torch.full((COUNT,), float(step), device="cuda"), name="reuse")
        doubled = result * 2
        del result
        torch.full((COUNT,), -1.0, device="cuda")
        expect("dropped result", doubled, 2.0 * step)


def check_nothing_waits() -> None:
    """Steps of training in which no call waits for the device, but as CUDA allows."""
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    inputs = torch.ones(8, 64, device="cuda")
    for step in range(5):
        # The first step makes the streams, the communicator and the memory.
        torch.cuda.set_sync_debug_mode("error" if step else "default")
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()


def main() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    for check in (check_side_stream, check_reuse_behind_the_result, check_nothing_waits):
        check()
        if hvd.rank() == 0:
            print(f"{check.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
