"""Ranks on two nodes of Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from horovod.ray import RayExecutor
from tests import needs

ray = needs.package("ray")
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    cluster.add_node(num_cpus=2)
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
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


def reduces(folder: Path) -> None:
    """Reduce for ever."""
    import numpy as np

    import sirtaki as hvd

    hvd.init()
    (folder / str(os.getpid())).touch()
    while True:
        hvd.allreduce(np.ones(1))


def is_alive(path: Path) -> bool:
    """Whether the process runs for which a file is named."""
    try:
        return " Z " not in Path(f"/proc/{path.name}/stat").read_text()
    except OSError:
        return False


def await_that(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_node_that_goes_in_mid_run_is_an_error_and_all_ranks_end(
    two_nodes: Any, tmp_path: Path
) -> None:
    third = two_nodes.add_node(num_cpus=1)
    executor = RayExecutor(None, num_hosts=3)
    executor.start()
    running = ThreadPoolExecutor(1).submit(executor.run, reduces, [tmp_path])
    await_that(lambda: len(list(tmp_path.iterdir())) == 3, 60)
    two_nodes.remove_node(third, allow_graceful=False)
    says = r"(?s)rank \d \(node \w+\) failed on .*(lost|died|unavailable)"
    with pytest.raises(RuntimeError, match=says):
        running.result(timeout=60)
    await_that(lambda: not any(map(is_alive, tmp_path.iterdir())), 2)
