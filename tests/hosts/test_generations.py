"""init() after shutdown() among virtual hosts: on kept connections, and without some of them."""

from __future__ import annotations

import pytest

from tests.hosts.bed import Bed
from tests.hosts.jobs import python, run

PRELUDE = """if True:
    import os
    import numpy as np
    import sirtaki as hvd
    from sirtaki.core.world import lifecycle, links

    met = []
    join_world = links.join_world
    def counted(*arguments):
        met.append(1)
        return join_world(*arguments)
    links.join_world = counted

    def live(number):
        hvd.init(process_sets=[hvd.ProcessSet([0, int(os.environ["HOROVOD_SIZE"]) - 1])])
        size = hvd.size()
        total = hvd.allreduce(np.full(100_000, hvd.rank() + number, np.float64), op=hvd.Sum)
        assert (total == size * number + size * (size - 1) / 2).all()
        hvd.barrier()
        hvd.shutdown()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "tls",
    [pytest.param(False, id="plain", marks=pytest.mark.nightly), pytest.param(True, id="tls")],
)
def test_ten_engines_are_right_on_the_links_of_one_meeting(bed: Bed, tls: bool) -> None:
    code = f"""{PRELUDE}
    for number in range(10):
        live(number)
    print("met", len(met), "time")
"""
    done = run(bed, *(["--tls"] if tls else []), *python(code), slots=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("met 1 time") == 2 * len(bed.hosts), done.stdout


@pytest.mark.slow
def test_all_hosts_meet_anew_when_a_rank_of_one_has_lost_its_links(bed: Bed) -> None:
    code = f"""{PRELUDE}
    live(1)
    if os.environ["HOROVOD_RANK"] == "3":
        lifecycle._Process.links.close()
        lifecycle._Process.links = None
    live(2)
    live(3)
    print("met", len(met), "times")
"""
    done = run(bed, *python(code), slots=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("met 2 times") == 2 * len(bed.hosts), done.stdout


# Who followed the first rank of its host in one world may lead a host in the next.
ALONE = """
import os
import sirtaki as hvd
hvd.init()
hvd.shutdown()
rank, size = os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]
os.environ.update(HOROVOD_LOCAL_RANK="0", HOROVOD_LOCAL_SIZE="1", HOROVOD_CROSS_RANK=rank,
                  HOROVOD_CROSS_SIZE=size, SIRTAKI_HOST_ID=rank)
hvd.init()
print("alone", hvd.size(), hvd.local_size(), flush=True)
"""


def test_ranks_of_a_host_can_be_hosts_of_their_own_in_the_next_world(bed: Bed) -> None:
    done = run(bed, "--start-timeout", "20", *python(ALONE), slots=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(":alone 6 1\n") == 6
