"""torch.distributed between hosts, by the variables that the launcher sets."""

from __future__ import annotations

import pytest

from tests.hosts.bed import SSH_PORT, Bed
from tests.hosts.jobs import GRACE, RUN, python, run

MEET = """
import os
from torch.distributed import rendezvous
store, rank, size = next(rendezvous("env://"))
store.set(str(rank), "here")
store.wait([str(other) for other in range(size)])
store.add("left", 1)
while rank == 0 and store.add("left", 0) < size: pass
# Gloo would take the address of the host's name, which these hosts have at 127.0.1.1.
place = (os.environ[name] for name in ("MASTER_ADDR", "NODE_RANK", "GLOO_SOCKET_IFNAME"))
print(*place, rank, size)
"""


def test_ranks_meet_on_the_host_of_rank_0_where_the_launcher_runs(bed: Bed) -> None:
    done = run(bed, *python(MEET))
    assert done.returncode == 0, done.stderr
    size = len(bed.hosts)
    for rank in range(size):
        assert any(
            f":{host} {rank} eth0 {rank} {size}\n" in done.stdout for host in addresses(bed, 0)
        )


@pytest.mark.slow
def test_ranks_meet_on_the_host_of_rank_0_where_the_launcher_does_not_run(bed: Bed) -> None:
    there, here = bed.hosts[1].address, bed.hosts[0].address
    hosts = ("-np", "2", "-H", f"{there},{here}", "-p", str(SSH_PORT))
    done = bed.hosts[0].run(*RUN, *hosts, *GRACE, *python(MEET))
    assert done.returncode == 0, done.stderr
    assert f"[0]<stdout>:{there} 0 eth0 0 2\n" in done.stdout
    assert f"[1]<stdout>:{there} 1 eth0 1 2\n" in done.stdout


def addresses(bed: Bed, host: int) -> list[str]:
    """Those of a host, which may be reached by another than the one in the list of hosts."""
    return bed.hosts[host].run("hostname", "-I").stdout.split()
