"""Groups of torch.distributed with a rank on each of three hosts, which meet as PyTorch does."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from tests.hosts.bed import Bed

PROGRAM = """
import sys, torch, torch.distributed as dist
method, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("sirtaki", init_method=method, rank=rank, world_size=size)
total = torch.full((100_000,), rank + 1.0)
dist.all_reduce(total)
received = torch.zeros(1)
works = [dist.isend(torch.tensor([rank * 1.0]), (rank + 1) % size),
         dist.irecv(received, (rank - 1) % size)]
for work in works:
    work.wait()
part = dist.new_group([1, 2])
if rank > 0:
    dist.barrier(group=part)
print(int(total[-1]), int(received.item()), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["tcp", pytest.param("file", marks=pytest.mark.nightly)])
def test_ranks_of_three_hosts_are_a_group(bed: Bed, scheme: str, tmp_path: Path) -> None:
    port = f"tcp://{bed.hosts[0].address}:29511"
    method = port if scheme == "tcp" else f"file://{tmp_path}/store"
    with contextlib.ExitStack() as stack:
        ranks = []
        for rank, host in enumerate(bed.hosts):
            command = (sys.executable, "-c", PROGRAM, method, str(rank), str(len(bed.hosts)))
            ranks.append(stack.enter_context(host.running(*command)))
        answers = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [answer.splitlines()[-1] for answer in answers] == ["6 2", "6 0", "6 1"], answers
