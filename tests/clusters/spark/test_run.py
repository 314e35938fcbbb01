"""`horovod.spark.run` on a real Spark."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import horovod.spark
from tests import needs
from tests.pages import run_alone

needs.package("pyspark")
pytestmark = pytest.mark.nightly


@pytest.fixture
def local(session_of: Callable[[str], Any]) -> Any:
    """A Spark with two slots in one process."""
    return session_of("local[2]")


def summed(base: int, step: int = 0) -> tuple[int, int, float]:
    """Join the others; return rank, local rank and a sum over ranks."""
    import numpy as np

    import sirtaki as hvd

    hvd.init()
    print("rank", hvd.rank(), "works")
    total = hvd.allreduce(np.full(1, base + hvd.rank() * step), op=hvd.Sum)
    return hvd.rank(), hvd.local_rank(), float(total[0])


def failing(how: str) -> None:
    """Fail on rank 1, while rank 0 waits for it."""
    import numpy as np

    import sirtaki as hvd

    hvd.init()
    if hvd.rank() == 1:
        if how == "raise":
            raise ValueError("planted")
        os._exit(7)
    hvd.allreduce(np.ones(1))


def waiting(folder: str) -> None:
    """Wait for ever, except rank 1, which fails when the other waits."""
    Path(folder, os.environ["HOROVOD_RANK"]).write_text(str(os.getpid()))
    while not Path(folder, "0").exists():
        time.sleep(0.01)
    if os.environ["HOROVOD_RANK"] == "1":
        raise ValueError("planted")
    time.sleep(600)


def assert_ended(folder: Path) -> None:
    """The rank that waited is gone, and so is what watched it."""
    waits = Path("/proc", (folder / "0").read_text())
    deadline = time.monotonic() + 30
    while waits.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not waits.exists()


def losing(folder: str) -> None:
    """Wait for ever on rank 0; on rank 1 kill the executor when the other waits."""
    import sirtaki as hvd
    from tests.clusters.spark.test_elastic import kill_executor

    hvd.init()
    Path(folder, str(hvd.rank())).write_text(str(os.getpid()))
    while not Path(folder, "0").exists():
        time.sleep(0.01)
    if hvd.rank() == 1:
        kill_executor()
    time.sleep(600)


@pytest.mark.usefixtures("local")
def test_a_function_runs_on_ranks_whose_output_the_driver_shows() -> None:
    shown = io.StringIO()
    found = horovod.spark.run(summed, (10,), {"step": 5}, num_proc=2, stdout=shown)
    assert found == [(0, 0, 25.0), (1, 1, 25.0)]
    lines = shown.getvalue().splitlines()
    assert sorted(lines) == ["[0]<stdout>:rank 0 works", "[1]<stdout>:rank 1 works"]


@pytest.mark.usefixtures("local")
def test_the_number_of_ranks_is_sparks_default_parallelism() -> None:
    assert len(horovod.spark.run(summed, (1,))) == 2


@pytest.mark.usefixtures("local")
def test_ranks_have_the_environment_that_run_is_given_and_no_secret_of_sparks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def environment() -> dict[str, str]:
        return dict(os.environ)

    monkeypatch.setenv("ONLY_HERE", "1")
    (found,) = horovod.spark.run(environment, num_proc=1, env={"GIVEN": "7"})
    assert found["GIVEN"] == "7"
    assert "ONLY_HERE" not in found
    (inherited,) = horovod.spark.run(environment, num_proc=1)
    assert not [name for name in inherited if "SECRET" in name]


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize(
    ("how", "says"), [("raise", "ValueError: planted"), ("exit", "exited with code 7")]
)
def test_the_rank_that_failed_is_named(how: str, says: str) -> None:
    with pytest.raises(RuntimeError, match=rf"(?s)rank 1 \(.+\) failed:.*{says}"):
        horovod.spark.run(failing, (how,), num_proc=2, stderr=io.StringIO())


@pytest.mark.usefixtures("local")
def test_the_cause_of_a_failure_is_the_exception_of_the_function() -> None:
    with pytest.raises(RuntimeError) as caught:
        horovod.spark.run(failing, ("raise",), num_proc=2, stderr=io.StringIO())
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.usefixtures("local")
def test_a_rank_that_waits_is_ended_when_another_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="rank 1"):
        horovod.spark.run(waiting, (str(tmp_path),), num_proc=2, stderr=io.StringIO())
    assert_ended(tmp_path)


@pytest.mark.usefixtures("local")
def test_too_few_slots_are_an_error_after_the_start_timeout() -> None:
    with pytest.raises(Exception, match="0 of 3 have started after 2 s"):
        horovod.spark.run(summed, (1,), num_proc=3, start_timeout=2)
    assert len(horovod.spark.run(summed, (1,))) == 2


@pytest.mark.usefixtures("local")
def test_a_result_that_cannot_be_sent_back_is_named() -> None:
    def lock() -> Any:
        import threading

        return threading.Lock()

    with pytest.raises(RuntimeError, match="cannot be sent back"):
        horovod.spark.run(lock, num_proc=1)


@pytest.mark.usefixtures("local")
def test_a_function_that_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()

    def locked() -> None:
        lock.acquire()

    with pytest.raises(TypeError, match=r"locked or its arguments cannot be sent to the ranks"):
        horovod.spark.run(locked, num_proc=1)


@pytest.mark.usefixtures("local")
def test_a_module_that_ranks_lack_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def work():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    monkeypatch.setattr("sys.path", [path for path in sys.path if path != str(tmp_path)])
    with pytest.raises(RuntimeError, match=r"rank 0 \(.+\) failed(?s:.)*'only_here'.*addPyFile"):
        horovod.spark.run(only_here.work, num_proc=1, stderr=io.StringIO())


@pytest.mark.usefixtures("local")
def test_another_version_of_sirtaki_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sirtaki.__version__", "99.1")
    with pytest.raises(RuntimeError, match=r"^version mismatch: host .* runs (Sirtaki )?99\.1"):
        horovod.spark.run(summed, (1,), num_proc=1, stderr=io.StringIO())


@pytest.mark.usefixtures("local")
def test_mpi_is_refused() -> None:
    with pytest.raises(ValueError, match="need no MPI"):
        horovod.spark.run(summed, (1,), use_mpi=True)


@pytest.mark.usefixtures("local")
def test_a_task_without_gpus_tells_its_rank_of_none() -> None:
    def devices() -> list[str]:
        from horovod.spark.task import get_available_devices

        return get_available_devices()

    assert horovod.spark.run(devices, num_proc=1) == [[]]


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    session = (
        "import os, sys\n"
        "os.environ['PYSPARK_PYTHON'] = sys.executable\n"
        "from pyspark.sql import SparkSession\n"
        "SparkSession.builder.master('local[4]').config('spark.ui.enabled', 'false').getOrCreate()"
    )
    run_alone("howto/spark", tmp_path, session)


def test_ranks_in_executors_of_their_own(session_of: Callable[[str], Any]) -> None:
    session_of("local-cluster[2,1,1024]")
    found = horovod.spark.run(summed, (10,), {"step": 5}, num_proc=2)
    assert [place[2] for place in found] == [25.0, 25.0]


def test_the_rank_whose_executor_is_lost_is_named(
    session_of: Callable[[str], Any], tmp_path: Path
) -> None:
    session_of("local-cluster[2,1,1024]")
    with pytest.raises(RuntimeError, match=r"rank 1 \(.+\) was lost with its executor"):
        horovod.spark.run(losing, (str(tmp_path),), num_proc=2, stderr=io.StringIO())
    assert_ended(tmp_path)


def test_a_driver_without_a_context_is_told_so(session_of: Callable[[str], Any]) -> None:
    session_of("local[2]").stop()
    with pytest.raises(Exception, match="Could not find an active SparkContext"):
        horovod.spark.run(summed, (1,), num_proc=1)


def test_a_client_of_spark_connect_is_told_so(
    session_of: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session_of("local[2]").stop()
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(Exception, match="this is a session of Spark Connect"):
        horovod.spark.run(summed, (1,), num_proc=1)
