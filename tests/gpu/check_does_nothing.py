"""One rank's NCCL does nothing: a guard names the rank, or the report of the hang does.

`check_does_nothing.py COMMAND [ARGUMENT …]` runs a job of this script and reads what it says;
without arguments the script is a rank of that job.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import torch

import sirtaki.torch as hvd
from sirtaki.torch.device.groups import InnerGroup
from sirtaki.torch.device.operation import Agreed

EXPECTED = (
    FOUND := "a guard found the wrong result",
    "; rank 2 held up ranks 0-1",
    "the accelerator of rank 2 did nothing in allreduce 'gradient'",
    "CollectiveTimeoutError: allreduce 'next'",
)
CODE_OF_A_HANG = 70
_run = InnerGroup.run


def writes_nothing(group: InnerGroup, batch: Sequence[Agreed]) -> None:
    """Take part, and leave the results as they were."""
    outputs = [tensor for agreed in batch for tensor in agreed.operation.outputs]
    before = [tensor.clone() for tensor in outputs]
    _run(group, batch)
    for tensor, values in zip(outputs, before, strict=True):
        tensor.copy_(values)


def does_nothing(group: InnerGroup, batch: Sequence[Agreed]) -> None:
    """Return at once."""


def rank_of_a_job() -> None:
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    last = hvd.size() - 1
    weights = torch.full((1000,), float(hvd.rank()), device="cuda")
    if hvd.rank() == last:
        InnerGroup.run = writes_nothing
    hvd.broadcast_(weights, 0, name="weights")
    try:
        hvd.guards.require_equal({"weights": weights})
    except hvd.guards.DivergedError as error:
        if f"ranks {last} (" not in str(error):
            raise
        print(FOUND, flush=True)
    if hvd.rank() == last:
        InnerGroup.run = does_nothing
    hvd.allreduce_(weights, name="gradient")
    torch.cuda.synchronize()
    hvd.allreduce_(weights, name="next")


def main(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(done.stdout, flush=True)
    assert done.returncode == CODE_OF_A_HANG, done.returncode
    for part in EXPECTED:
        assert part in done.stdout, f"the job did not say: {part}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1:])
    else:
        rank_of_a_job()
