"""More hosts than all talk to each other directly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts.bed import Bed, reason_to_skip
from tests.hosts.jobs import python, run

HOSTS = 16


@pytest.fixture(scope="module")
def wide_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    with Bed(HOSTS, tmp_path_factory.mktemp("wide"), "100mbit") as bed:
        yield bed


# Sizes for each exchange: gathered, halved, and halved in many chunks.
COLLECTIVES = """
import numpy as np, sirtaki as hvd
hvd.init()
rank, size = hvd.rank(), hvd.size()
for count in (1, 5_000, 300_000):
    data = np.arange(count, dtype=np.float32) % 97 + rank
    total = size * (np.arange(count, dtype=np.float32) % 97) + size * (size - 1) // 2
    assert (hvd.allreduce(data, op=hvd.Sum) == total).all(), count
    half = np.ones(count, np.float16)
    assert (hvd.allreduce(half, op=hvd.Sum) == size).all(), count
    for root in (0, 5):
        told = hvd.broadcast(data, root)
        assert (told == data - rank + root).all(), (count, root)
    rows = hvd.allgather(np.full((2, 3), rank, np.int32))
    assert (rows[:, 0] == np.repeat(np.arange(size), 2)).all()
    own = hvd.reducescatter(np.ones((size, count // size + 1), np.float32), op=hvd.Sum)
    assert (own == size).all(), count
    hvd.barrier()
print("all", size)
hvd.shutdown()
"""


@pytest.mark.slow
def test_collectives_over_sixteen_hosts_give_the_right_numbers(wide_bed: Bed) -> None:
    done = run(wide_bed, *python(COLLECTIVES))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"all {HOSTS}") == HOSTS


# Of what is connected to data ports: all but the links to rank 0's host and the launcher's.
NEIGHBOURS = """
import subprocess
import numpy as np, sirtaki as hvd

def peers():
    lines = subprocess.run(["ss", "-tnH"], capture_output=True, text=True).stdout.splitlines()
    return {line.split()[4].rpartition(":")[0] for line in lines}

hvd.init()
hvd.barrier()
for count in (1, 5_000, 300_000):
    hvd.allreduce(np.ones(count, np.float32))
    for root in range(3):
        hvd.broadcast(np.ones(count, np.float32), root)
found = peers()
hvd.barrier()
if hvd.rank() > 0:
    print("hosts:", len(found))
hvd.shutdown()
"""


@pytest.mark.slow
def test_a_rank_of_sixteen_hosts_talks_to_its_neighbours_alone(wide_bed: Bed) -> None:
    done = run(wide_bed, *python(NEIGHBOURS))
    assert done.returncode == 0, done.stderr
    found = [int(line.split("hosts: ")[1]) for line in done.stdout.splitlines() if "hosts" in line]
    assert len(found) == HOSTS - 1
    # 1, 2, 4 and 8 hosts before and behind it, and rank 0's.
    assert max(found) <= 8
