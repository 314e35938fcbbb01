"""A rank is killed in mid-operation: the others raise within 5 s, and the memory comes back."""

from __future__ import annotations

import os
import signal
import time

import torch

import sirtaki.torch as hvd

BYTES = 256 << 20
SECONDS = 5.0


def main() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    before = torch.cuda.memory_allocated()
    tensors = [torch.ones(BYTES // 4, device="cuda") for _ in range(4)]
    hvd.allreduce_(tensors[0], op=hvd.Sum, name="first")
    torch.cuda.synchronize()
    handles = [
        hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"x{number}")
        for number, tensor in enumerate(tensors)
    ]
    if hvd.rank() == hvd.size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        while True:
            for number, handle in enumerate(handles):
                hvd.synchronize(handle)
                handles[number] = hvd.allreduce_async_(
                    tensors[number], op=hvd.Sum, name=f"x{number}"
                )
    except hvd.HorovodInternalError as error:
        seconds = time.monotonic() - begin
        if seconds > SECONDS:
            raise AssertionError(f"the error came after {seconds:.1f} s") from error
        if f"rank {hvd.size() - 1}" not in str(error):
            raise
    del handles, tensors, handle
    torch.cuda.synchronize()
    hvd.shutdown()
    while (left := torch.cuda.memory_allocated() - before) >= BYTES:
        if time.monotonic() < begin + 2 * SECONDS:
            time.sleep(0.1)
            continue
        raise AssertionError(f"{left >> 20} MiB of the device are still held")
    print(f"figure seconds_to_the_error {seconds:.2f}", flush=True)


if __name__ == "__main__":
    main()
