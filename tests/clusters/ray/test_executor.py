"""`horovod.ray.RayExecutor` on a Ray of one node."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import horovod.ray
import sirtaki
from horovod.ray import RayExecutor
from tests import needs
from tests.pages import run_alone

ray = needs.package("ray")
pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("cluster")]


@pytest.fixture
def executor() -> Iterator[RayExecutor]:
    found = RayExecutor(RayExecutor.create_settings(timeout_s=30), num_workers=2)
    found.start(extra_env_vars={"GIVEN": 7})
    yield found
    found.shutdown()


def summed(base: int, step: int = 0) -> tuple[int, int, float, str]:
    """Join the others; return the place, a sum over ranks, and what the environment says."""
    import numpy as np

    import sirtaki as hvd

    hvd.init()
    total = hvd.allreduce(np.full(1, base + hvd.rank() * step), op=hvd.Sum)
    place = hvd.rank(), hvd.local_rank()
    hvd.shutdown()
    return *place, float(total[0]), os.environ["HOROVOD_RANK"] + os.environ["GIVEN"]


def failing(how: str) -> None:
    """Fail on rank 1, while rank 0 waits for it."""
    import numpy as np

    import sirtaki as hvd

    hvd.init()
    if hvd.rank() == 1:
        if how == "raise":
            raise ValueError("planted")
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce(np.ones(1))


def test_a_function_runs_on_ranks_of_one_world(executor: RayExecutor) -> None:
    found = executor.run(summed, [10], {"step": 5})
    assert found == [(0, 0, 25.0, "07"), (1, 1, 25.0, "17")]


def test_functions_run_one_after_the_other(executor: RayExecutor) -> None:
    totals = [executor.run(summed, [base])[0][2] for base in (1, 2, 3)]
    assert totals == [2.0, 4.0, 6.0]


def test_references_of_results_come_before_the_results(executor: RayExecutor) -> None:
    assert [place[0] for place in ray.get(executor.run_remote(summed, [1]))] == [0, 1]


def test_a_rank_that_dies_is_named_and_the_next_start_works(executor: RayExecutor) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)rank 1 \(node \w+\) failed.*died") as caught:
        executor.run(failing, ["kill"])
    assert isinstance(caught.value, ray.exceptions.RayActorError)
    with pytest.raises(RuntimeError, match=r"call start\(\)"):
        executor.run(summed, [1])
    executor.start(extra_env_vars={"GIVEN": 7})
    assert executor.run(summed, [1])[0][2] == 2.0


def test_a_function_that_raises_can_be_caught_by_its_class_and_the_workers_live(
    executor: RayExecutor,
) -> None:
    pids = executor.run(os.getpid)
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"(?s)rank 1 .* failed.*ValueError: planted"
        ) as caught:
            executor.run(failing, ["raise"])
        assert isinstance(caught.value, RuntimeError)
        assert isinstance(caught.value, ray.exceptions.RayTaskError)
        assert isinstance(caught.value.__cause__, ValueError)
        assert isinstance(pickle.loads(ray.cloudpickle.dumps(caught.value)), ValueError)
        assert executor.run(summed, [1])[0][2] == 2.0
    assert executor.run(os.getpid) == pids


def test_a_rank_that_waits_outside_of_operations_is_ended_with_the_others(
    executor: RayExecutor,
) -> None:
    def waits() -> None:
        if os.environ["HOROVOD_RANK"] == "1":
            raise ValueError("planted")
        threading.Event().wait()

    with pytest.raises(RuntimeError, match="rank 1"):
        executor.run(waits)


def test_what_cannot_be_pickled_is_said_before_anything_runs(executor: RayExecutor) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        executor.run(lambda: lock)
    assert executor.run(summed, [1])[0][2] == 2.0


def test_a_module_that_workers_lack_is_named(executor: RayExecutor) -> None:
    def imports() -> None:
        import no_such_module  # noqa: F401

    with pytest.raises(RuntimeError, match="No module named 'no_such_module'"):
        executor.run(imports)


def test_a_module_that_only_the_program_has_is_named(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def train(): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    train = importlib.import_module("only_here").train
    host = socket.gethostname()
    with pytest.raises(RuntimeError, match=rf"(?s)rank [01] .* on {host}.*named 'only_here'"):
        executor.run(train)
    # While it is imported here the function travels by its name.
    sys.modules.pop("only_here")


def test_a_worker_with_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sirtaki, "__version__", "0.0.1")
    executor = RayExecutor(None, num_workers=1)
    with pytest.raises(RuntimeError, match=r"rank 0 on \S+ has Sirtaki .*, this program 0\.0\.1"):
        executor.start()
    assert executor.workers == []


def test_workers_without_sirtaki_are_an_error_that_says_so(tmp_path: Path) -> None:
    """A Ray whose workers see another folder first, in which there is no Sirtaki."""
    (tmp_path / "sirtaki.py").write_text("raise ModuleNotFoundError('No module named sirtaki')")
    script = tmp_path / "program" / "script.py"
    script.parent.mkdir()
    script.write_text(
        "import ray\n"
        "from horovod.ray import RayExecutor\n"
        f"workers = {{'env_vars': {{'PYTHONPATH': {str(tmp_path)!r}}}}}\n"
        "ray.init('local', num_cpus=1, include_dashboard=False, runtime_env=workers)\n"
        "RayExecutor(None, num_workers=1).start()\n"
    )
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert re.search(r"(?s)Error: rank 0 .*No module named sirtaki", done.stderr)


def test_each_rank_has_an_object_of_the_class_that_start_is_given() -> None:
    class Counter:
        def __init__(self, start: int, step: int = 1) -> None:
            self.value = start + step

        def next(self) -> int:
            self.value += 1
            return self.value

    executor = RayExecutor(None, num_workers=2)
    executor.start(Counter, [10], {"step": 5})
    try:
        assert executor.execute(lambda counter: counter.next()) == [16, 16]
        assert executor.execute_single(lambda counter: counter.next()) == 17
        assert executor.execute(lambda counter: counter.next()) == [18, 17]
    finally:
        executor.shutdown()


def test_callbacks_get_what_ranks_log(executor: RayExecutor) -> None:
    def logs() -> None:
        from horovod.ray import ray_logger

        ray_logger.log({"rank": os.environ["HOROVOD_RANK"]})

    logged: list[dict[str, str]] = []
    executor.run(logs, callbacks=[logged.append])
    assert sorted(info["rank"] for info in logged) == ["0", "1"]


def test_a_cluster_without_room_is_an_error_that_says_what_was_asked() -> None:
    settings = RayExecutor.create_settings(placement_group_timeout_s=1)
    with pytest.raises(TimeoutError, match=r"Placement group creation timed out.*'CPU': 5"):
        RayExecutor(settings, num_workers=2, cpus_per_worker=5).start()


def test_a_group_in_which_the_program_runs_is_used() -> None:
    group = ray.util.placement_group([{"CPU": 1}] * 3)
    ray.get(group.ready())
    where = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
        group, placement_group_capture_child_tasks=True
    )

    @ray.remote(num_cpus=1, scheduling_strategy=where)
    def program() -> tuple[list[Any], int]:
        executor = RayExecutor(None, num_workers=2)
        executor.start(extra_env_vars={"GIVEN": 7})
        found = executor.run(summed, [1])
        executor.shutdown()
        return found, len(ray.util.placement_group_table())

    found, groups = ray.get(program.remote())
    assert [place[:3] for place in found] == [(0, 0, 2.0), (1, 1, 2.0)]
    assert ray.util.placement_group_table(group)["state"] == "CREATED"
    assert groups == len(ray.util.placement_group_table())
    ray.util.remove_placement_group(group)


def test_settings_are_any_object_with_some_of_the_attributes() -> None:
    executor = RayExecutor(SimpleNamespace(timeout_s=20, ssh_port=22), num_workers=1)
    executor.start(extra_env_vars={"GIVEN": 1})
    try:
        assert executor.run(summed, [1])[0][2] == 1.0
    finally:
        executor.shutdown()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"num_workers": 1, "gpus_per_worker": 1}, "use_gpu is False"),
        ({"num_workers": 1, "gpus_per_worker": 0, "use_gpu": True}, "must be >= 1: Got 0"),
        ({}, "needs num_workers"),
        ({"num_workers": 0}, "at least 1"),
        ({"max_workers": 2}, "without any positive `min_workers`"),
        ({"num_workers": 1, "min_workers": 1}, "Both `min_workers` and `num_workers`"),
        ({"min_workers": 1, "gpus_per_worker": 1}, "use_gpu is False"),
    ],
)
def test_arguments_that_contradict_each_other(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RayExecutor(None, **arguments)


def test_workers_and_hosts_are_not_both_given() -> None:
    with pytest.raises(AssertionError, match="not both"):
        RayExecutor(None, num_workers=1, num_hosts=1)


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    run_alone("howto/ray", tmp_path)


def test_the_module_has_horovods_names() -> None:
    names = {"RayExecutor", "BaseHorovodWorker", "ElasticRayExecutor"}
    assert names <= set(dir(horovod.ray))
