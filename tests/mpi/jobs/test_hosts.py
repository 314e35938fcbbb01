"""Jobs over two virtual hosts, started by the mpirun beside this Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.hosts.bed import SSH_PORT, Bed, reason_to_skip

needs.package("mpi4py")

HOROVODRUN = "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())"
# In one piece: what ranks print piece by piece, mpirun mixes.
SUM = """
import os, numpy as np, sirtaki as hvd
hvd.init()
total = int(hvd.allreduce(np.ones(1), op=hvd.Sum)[0])
place = f"{hvd.rank()} {hvd.local_rank()}/{hvd.local_size()} {os.uname().nodename} sum {total}"
os.write(1, f"place {place}\\n".encode())
"""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    reason = reason_to_skip()
    if reason is not None:
        pytest.skip(reason)
    with Bed(2, tmp_path) as bed:
        yield bed


@pytest.mark.parametrize("backend", ["native", "mpi"])
def test_two_hosts_of_two_ranks_sum(bed: Bed, backend: str, tmp_path: Path) -> None:
    hosts = ",".join(f"{host.address}:2" for host in bed.hosts)
    flags = ("--mpi", "-np", "4", "-H", hosts, "-p", str(SSH_PORT))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SIRTAKI_BACKEND": backend,
        "SIRTAKI_SHARED_DIR": str(tmp_path / "shared"),
    }
    python = sys.executable
    done = bed.hosts[0].run(
        python, "-c", HOROVODRUN, *flags, python, "-c", SUM, env=environment, timeout=100
    )
    assert done.returncode == 0, done.stderr
    places = sorted(line.partition("place ")[2] for line in done.stdout.splitlines() if line)
    assert places == [f"{rank} {rank % 2}/2 node{(3, 5)[rank // 2]} sum 4" for rank in range(4)]
