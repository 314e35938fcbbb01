"""`run` with the mpirun beside this Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sirtaki import run
from tests import needs

needs.package("mpi4py")
FOLDER = Path(sys.executable).parent
if not (FOLDER / "mpirun").exists():
    pytest.skip(needs.missing("mpirun beside this Python"), allow_module_level=True)


@pytest.fixture(autouse=True)
def _this_mpirun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{FOLDER}:{os.environ['PATH']}")
    monkeypatch.setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
    monkeypatch.setenv("SIRTAKI_SHARED_DIR", str(tmp_path / "jobs"))


def test_the_results_of_all_ranks_come_back_in_order() -> None:
    def together(start: float) -> tuple[int, float]:
        import numpy as np

        import sirtaki as hvd

        hvd.init()
        total = hvd.allreduce(np.full(1, start + hvd.rank()), op=hvd.Sum)
        return hvd.rank(), float(total[0])

    assert run(together, (5.0,), num_proc=2, use_mpi=True) == [(0, 11.0), (1, 11.0)]


def test_what_a_rank_raises_is_told_with_its_rank() -> None:
    def fails() -> None:
        import sirtaki as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise ValueError("no such luck")

    with pytest.raises(RuntimeError, match=r"(?s)rank 1 .*no such luck") as raised:
        run(fails, num_proc=2, use_mpi=True)
    assert isinstance(raised.value.__cause__, ValueError)


def test_mpirun_inherits_no_dead_child_of_the_launcher_that_it_replaces() -> None:
    launch = "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())"
    rank = "import time; print('ready', flush=True); time.sleep(100)"
    command = [sys.executable, "-c", launch, "-np", "1", "--mpi", sys.executable, "-c", rank]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        try:
            assert launcher.stdout is not None
            assert any("ready" in line for line in launcher.stdout)
            children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text()
            stats = [Path(f"/proc/{pid}/stat").read_text() for pid in children.split()]
            assert not [each for each in stats if each.rpartition(")")[2].split()[0] == "Z"]
        finally:
            launcher.terminate()


def test_ranks_that_die_without_a_result_are_named_with_the_end_of_mpirun() -> None:
    with pytest.raises(RuntimeError, match=r"ranks \[0, 1\] .*mpirun exited with code \d+"):
        run(lambda: os._exit(3), num_proc=2, use_mpi=True)


def test_nothing_of_the_secret_stays_behind(tmp_path: Path) -> None:
    assert run(lambda: 1, num_proc=1, use_mpi=True) == [1]
    assert list((tmp_path / "jobs").iterdir()) == []


def test_a_job_that_hangs_is_reported_by_its_lowest_rank(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def sleeps() -> None:
        import time

        import numpy as np

        import sirtaki as hvd

        hvd.init()
        if hvd.rank() == 1:
            time.sleep(2.5)
        hvd.allreduce(np.ones(3), name="metric")

    monkeypatch.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "1")
    run(sleeps, num_proc=2, use_mpi=True)
    told = "".join(capfd.readouterr())
    assert told.count("stalled: ") == 1, told
    assert "; rank 1 held up rank 0" in told
    assert "allreduce 'metric' has waited for 1 s; called by rank 0; missing ranks: 1" in told
