"""Ranks on two nodes of Ray."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from horovod.ray import RayExecutor
from tests import needs

ray = needs.package("ray")
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[None]:
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    cluster.add_node(num_cpus=2)
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    yield
    ray.shutdown()
    cluster.shutdown()


def place() -> tuple[int, ...]:
    """Return rank, local rank, local size, cross rank, cross size and a sum over ranks."""
    import numpy as np

    import sirtaki as hvd

    hvd.init()
    total = int(hvd.allreduce(np.full(1, hvd.rank()), op=hvd.Sum)[0])
    local = hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()
    found = (hvd.rank(), *local, total)
    hvd.shutdown()
    return found


@pytest.mark.usefixtures("two_nodes")
@pytest.mark.parametrize("arguments", [{"num_hosts": 2, "num_workers_per_host": 2}, {}])
def test_ranks_of_a_node_are_neighbours(arguments: dict[str, int]) -> None:
    executor = RayExecutor(None, **arguments or {"num_workers": 4})
    executor.start()
    try:
        assert executor.run(place) == [
            (0, 0, 2, 0, 2, 6),
            (1, 1, 2, 0, 2, 6),
            (2, 0, 2, 1, 2, 6),
            (3, 1, 2, 1, 2, 6),
        ]
    finally:
        executor.shutdown()
