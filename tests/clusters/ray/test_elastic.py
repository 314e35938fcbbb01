"""`horovod.ray.ElasticRayExecutor` while workers and nodes of a real Ray come and go."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from horovod.ray import ElasticRayExecutor, RayExecutor
from horovod.ray.elastic import RayHostDiscovery
from tests import needs

ray = needs.package("ray")
pytestmark = pytest.mark.nightly
_SECONDS = 60
Start = Callable[..., Future[list[Any]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def second(cluster: Any) -> Iterator[Any]:
    """A node of one CPU that is there for one test, unless it removes it."""
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield node
    if node in cluster.list_all_nodes():
        cluster.remove_node(node)
    await_that(lambda: len(RayHostDiscovery().find_available_hosts_and_slots()) == 1)
    await_that(lambda: list(RayHostDiscovery().find_available_hosts_and_slots().values()) == [2])


def training(folder: Path, fails: bool = False) -> tuple[int, list[int]]:
    """Train until there is a file "finish"; return the rank and the sizes of worlds."""
    import numpy as np

    import sirtaki as hvd
    from sirtaki.core.operations.objects import broadcast_object
    from sirtaki.elastic import ObjectState, run

    hvd.init()

    @run
    def train(state: Any) -> list[int]:
        process = os.environ["SIRTAKI_PROCESS"]
        while True:
            write(folder / f"pid-{process}", os.getpid())
            if fails and process != "0":
                raise ValueError("planted")
            finishes = np.array([float((folder / "finish").exists())])
            done = hvd.allreduce(finishes, op=hvd.Max)[0]
            if state.sizes[-1:] != [hvd.size()]:
                state.sizes = [*state.sizes, hvd.size()]
            write(folder / "now", hvd.size())
            if done:
                return list(state.sizes)
            time.sleep(0.02)
            state.commit()

    sizes = train(ObjectState(broadcast_object, hvd.rank, sizes=[]))
    return hvd.rank(), sizes


def write(path: Path, number: int) -> None:
    """Write a file that is whole whenever it is read."""
    new = path.with_name(f"new-{path.name}-{os.getpid()}")
    new.write_text(str(number))
    new.replace(path)


def await_that(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def await_size(folder: Path, size: int) -> None:
    now = folder / "now"
    await_that(lambda: now.exists() and now.read_text() == str(size))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Run `training` in a thread, to the end of the test at the latest."""
    running: list[Future[list[Any]]] = []

    def started(**settings: Any) -> Future[list[Any]]:
        own = ElasticRayExecutor.create_settings(cooldown_range=(0.5, 1.0), **settings)
        executor = ElasticRayExecutor(own)
        executor.start()
        running.append(ThreadPoolExecutor(1).submit(executor.run, partial(training, tmp_path)))
        return running[-1]

    yield started
    (tmp_path / "finish").touch()
    for each in running:
        each.exception(timeout=_SECONDS)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def pids(folder: Path) -> dict[str, int]:
    return {path.name[4:]: int(path.read_text()) for path in folder.glob("pid-*")}


def finished(running: Future[list[Any]], folder: Path) -> list[Any]:
    (folder / "finish").touch()
    return running.result(timeout=_SECONDS)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_is_killed_or_stopped_is_replaced(
    start: Start, tmp_path: Path, number: int
) -> None:
    running = start(min_num_proc=1, max_num_proc=2)
    await_size(tmp_path, 2)
    await_that(lambda: len(pids(tmp_path)) == 2)
    os.kill(pids(tmp_path)["1"], number)
    await_that(lambda: "2" in pids(tmp_path))
    # The survivor keeps rank 0 and the state.
    assert finished(running, tmp_path) in ([(0, [2, 1, 2]), (1, [2, 1, 2])], [(0, [2]), (1, [2])])
    await_that(lambda: not any(map(is_alive, pids(tmp_path).values())))


def test_nodes_that_come_and_go_change_the_world(
    cluster: Any, second: Any, start: Start, tmp_path: Path
) -> None:
    running = start(min_num_proc=2)
    await_size(tmp_path, 3)
    cluster.remove_node(second, allow_graceful=False)
    await_size(tmp_path, 2)
    third = cluster.add_node(num_cpus=2)
    await_size(tmp_path, 4)
    cluster.remove_node(third, allow_graceful=False)
    await_size(tmp_path, 2)
    assert finished(running, tmp_path) == [(0, [3, 2, 4, 2]), (1, [3, 2, 4, 2])]


@pytest.mark.usefixtures("cluster")
def test_a_function_that_raises_ends_all_with_its_traceback(tmp_path: Path) -> None:
    executor = ElasticRayExecutor(ElasticRayExecutor.create_settings(min_num_proc=2))
    executor.start()
    says = r"(?s)came twice.*process [12] on .*: ValueError: planted.*in train"
    with pytest.raises(RuntimeError, match=says):
        executor.run(partial(training, tmp_path, fails=True))
    ended = time.monotonic()
    await_that(lambda: not any(map(is_alive, pids(tmp_path).values())))
    assert time.monotonic() - ended < 2


@pytest.mark.usefixtures("cluster")
def test_too_few_nodes_are_an_error_that_says_how_many_are_wanted() -> None:
    settings = ElasticRayExecutor.create_settings(min_num_proc=3, elastic_timeout=2)
    executor = ElasticRayExecutor(settings)
    executor.start()
    with pytest.raises(RuntimeError, match=r"within 2 s .* of the 3 that --min-np wants"):
        executor.run(lambda: __import__("sirtaki").init())


@pytest.mark.usefixtures("cluster")
def test_hosts_may_come_from_a_discovery_of_the_users() -> None:
    class Discovery:
        def find_available_hosts_and_slots(self) -> dict[str, int]:
            (address,) = RayHostDiscovery().find_available_hosts_and_slots()
            return {address: 1}

    settings = ElasticRayExecutor.create_settings()
    settings.discovery = Discovery()
    executor = ElasticRayExecutor(settings, override_discovery=False, env_vars={"GIVEN": 7})
    executor.start()

    def place() -> tuple[int, str]:
        import sirtaki as hvd

        hvd.init()
        return hvd.size(), os.environ["GIVEN"]

    assert executor.run(place) == [(1, "7")]


@pytest.mark.usefixtures("cluster")
def test_callbacks_get_what_processes_log() -> None:
    def logs() -> None:
        import sirtaki as hvd
        from horovod.ray import ray_logger

        hvd.init()
        ray_logger.log({"rank": hvd.rank()})

    logged: list[dict[str, int]] = []
    executor = ElasticRayExecutor(ElasticRayExecutor.create_settings(min_num_proc=2))
    executor.start()
    executor.run(logs, callbacks=[logged.append])
    assert sorted(info["rank"] for info in logged) == [0, 1]


@pytest.mark.usefixtures("cluster")
def test_discovery_tells_addresses_and_slots() -> None:
    (two,) = RayHostDiscovery().find_available_hosts_and_slots().values()
    (one,) = RayHostDiscovery(cpus_per_slot=2).find_available_hosts_and_slots().values()
    assert (two, one) == (2, 1)
    assert RayHostDiscovery(cpus_per_slot=3).find_available_hosts_and_slots() == {}
    assert RayHostDiscovery(use_gpu=True).find_available_hosts_and_slots() == {}


class Counter:
    def __init__(self, start: int, step: int = 1) -> None:
        self.value = start + step


@pytest.fixture
def executor(cluster: Any) -> RayExecutor:
    found = RayExecutor(None, min_workers=2, max_workers=2, elastic_timeout=60)
    found.start(Counter, [10], {"step": 5}, extra_env_vars={"GIVEN": 7})
    return found


def test_an_executor_with_the_least_of_workers_is_elastic(executor: RayExecutor) -> None:
    def place(base: int, step: int) -> tuple[int, int, str]:
        import sirtaki as hvd

        hvd.init()
        return hvd.rank(), base + step, os.environ["GIVEN"]

    assert executor.run(place, [1], {"step": 2}) == [(0, 3, "7"), (1, 3, "7")]
    assert executor.execute(lambda counter: counter.value) == [15, 15]


def test_ranks_that_change_cannot_be_named(executor: RayExecutor) -> None:
    with pytest.raises(NotImplementedError, match="run_remote"):
        executor.run_remote(os.getpid)
    with pytest.raises(NotImplementedError, match="execute_single"):
        executor.execute_single(id)


def test_old_names_of_settings_are_taken_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="min_np is deprecated, use min_num_proc"):
        settings = ElasticRayExecutor.create_settings(min_np=2)
    assert settings.min_num_proc == 2


def test_a_run_needs_a_start() -> None:
    with pytest.raises(RuntimeError, match=r"call start\(\) first"):
        ElasticRayExecutor().run(os.getpid)
