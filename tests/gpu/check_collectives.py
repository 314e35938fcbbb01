"""Every collective on CUDA tensors gives what it gives on the host, for all types."""

from __future__ import annotations

import itertools

import torch

import sirtaki.torch as hvd

INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
OPERATORS = (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product)


def values(dtype: torch.dtype, rows: int) -> torch.Tensor:
    return ((torch.arange(rows * 3) + hvd.rank()) % 3).to(dtype).view(rows, 3)


def compare(what: str, on_device: torch.Tensor, on_host: torch.Tensor) -> None:
    if not on_device.is_cuda:
        raise AssertionError(f"{what}: the result is on {on_device.device}")
    try:
        torch.testing.assert_close(on_device.cpu(), on_host)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None


def check_reductions() -> None:
    even, uneven = 2 * hvd.size(), 2 * hvd.size() + 1
    for dtype, op in itertools.product((*INTEGERS, *FLOATS), OPERATORS):
        for rows in (even, uneven):
            host, device = values(dtype, rows), values(dtype, rows).cuda()
            compare(
                f"allreduce {dtype} {op}", hvd.allreduce(device, op=op), hvd.allreduce(host, op=op)
            )
            compare(
                f"reducescatter {dtype} {op}",
                hvd.reducescatter(device, op=op),
                hvd.reducescatter(host, op=op),
            )


def check_moves() -> None:
    rank, size = hvd.rank(), hvd.size()
    for dtype in (*INTEGERS, *FLOATS, torch.complex64):
        host = values(dtype, rank + 1)
        compare(f"allgather {dtype}", hvd.allgather(host.cuda()), hvd.allgather(host))
        host = values(dtype, 2)
        root = size - 1
        compare(f"broadcast {dtype}", hvd.broadcast(host.cuda(), root), hvd.broadcast(host, root))
        host = values(dtype, size * (rank + 1))
        splits = [rank + 1] * size
        received, _ = hvd.alltoall(host.cuda(), splits)
        expected, _ = hvd.alltoall(host, splits)
        compare(f"alltoall {dtype}", received, expected)


def check_groups() -> None:
    tensors = [torch.full((n,), 1.0, device="cuda") for n in (1, 1000, 1 << 20)]
    for tensor in hvd.grouped_allreduce(tensors, op=hvd.Sum):
        compare("grouped_allreduce", tensor, torch.full((len(tensor),), float(hvd.size())))
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.allreduce(tensors[1], op=hvd.Sum, compression=compression)
        compare("compression", result, torch.full((1000,), float(hvd.size())))


def check_order() -> None:
    """Names in opposite orders, with work before and after on the script's stream."""
    names = [str(number) for number in range(20)]
    tensors = {name: torch.zeros(1 << 16, device="cuda") for name in names}
    if hvd.rank() % 2:
        names.reverse()
    handles = {}
    for name in names:
        tensors[name] += int(name)
        handles[name] = hvd.allreduce_async_(tensors[name], op=hvd.Sum, name=name)
    for name in names:
        doubled = hvd.synchronize(handles[name]) * 2
        expected = torch.full((1 << 16,), 2.0 * int(name) * hvd.size())
        compare(f"order {name}", doubled, expected)


def main() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    for check in (check_reductions, check_moves, check_groups, check_order):
        check()
        if hvd.rank() == 0:
            print(f"{check.__name__}: ok", flush=True)
    hvd.join()


if __name__ == "__main__":
    main()
