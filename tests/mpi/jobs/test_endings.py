"""Jobs of the mpirun beside this Python: how they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

needs.package("mpi4py")
MPIRUN = Path(sys.executable).with_name("mpirun")
if not MPIRUN.exists():
    pytest.skip(needs.missing("mpirun beside this Python"), allow_module_level=True)

LIMIT = 300.0
ENVIRONMENT = {
    **os.environ,
    "SIRTAKI_BACKEND": "mpi",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
START = "import os, numpy as np, sirtaki as hvd\nhvd.init()\n"
# In one piece: what ranks print piece by piece, mpirun mixes.
SUM = "os.write(1, b'sum %d\\n' % int(hvd.allreduce(np.ones(1), op=hvd.Sum)[0]))\n"


def run(*command: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run to the end, which must come."""
    return subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**ENVIRONMENT, **extra},
        check=False,
    )


def ranks(code: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return run(str(MPIRUN), "-np", "2", sys.executable, "-c", code, **extra)


def test_a_script_that_just_ends_leaves_in_good_order() -> None:
    done = ranks(START + SUM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 2") == 2


def test_a_rank_that_is_killed_ends_the_job() -> None:
    done = ranks(START + SUM + "if hvd.rank() == 1: os.kill(os.getpid(), 9)\n" + SUM * 3)
    assert done.returncode != 0
    assert done.stdout.count("sum 2") == 2


def test_a_rank_that_fails_ends_the_job() -> None:
    done = ranks(START + SUM + "if hvd.rank() == 1: raise SystemExit(3)\n" + SUM)
    assert done.returncode != 0
    assert done.stdout.count("sum 2") == 2


def test_a_rank_that_leaves_early_is_an_error_on_the_other() -> None:
    done = ranks(START + SUM + "if hvd.rank() == 1: raise SystemExit(0)\n" + SUM)
    assert done.returncode != 0
    assert "HorovodInternalError" in done.stderr
    assert "rank 1" in done.stderr


# As on two hosts: no word from mpirun of how many ranks share one, and other names for both.
ON_TWO_HOSTS = (
    "import os\n"
    "for name in [name for name in os.environ if 'LOCAL' in name]: del os.environ[name]\n"
    "os.environ['SIRTAKI_HOST_ID'] = str(os.getpid())\n"
)


def test_ranks_on_two_hosts_meet_in_a_folder(tmp_path: Path) -> None:
    done = ranks(ON_TWO_HOSTS + START + SUM, SIRTAKI_RENDEZVOUS=f"file:{tmp_path}/meet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 2") == 2


def test_tls_is_refused_where_mpi_moves_data_between_hosts(tmp_path: Path) -> None:
    where = f"file:{tmp_path}/meet"
    done = ranks(ON_TWO_HOSTS + START, SIRTAKI_TLS="1", SIRTAKI_RENDEZVOUS=where)
    assert done.returncode != 0
    assert "cannot encrypt what MPI moves" in done.stderr


HOROVODRUN = "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())"
PATH = f"{MPIRUN.parent}{os.pathsep}{os.environ['PATH']}"


def launched(*command: str) -> subprocess.CompletedProcess[str]:
    flags = ("--mpi", "-np", "3", "-H", "localhost:3")
    return run(sys.executable, "-c", HOROVODRUN, *flags, *command, PATH=PATH)


def test_the_launcher_starts_a_job_with_mpirun() -> None:
    done = launched(sys.executable, "-c", START + SUM)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 3") == 3


def test_the_launcher_keeps_lines_whole() -> None:
    done = launched(sys.executable, "-c", "for i in range(100): print('step', i, 'loss', 0.5)")
    assert len(re.findall(r"^\[\S*\d\]\S* ?step \d+ loss 0\.5$", done.stdout, re.M)) == 300


def test_a_rank_that_fails_before_it_calls_mpi_ends_the_job_with_its_exit_code() -> None:
    rank = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
    done = launched("sh", "-c", f"[ {rank} = 1 ] && exit 5; sleep {2 * LIMIT}")
    assert done.returncode == 5, done.stderr


def test_sigterm_ends_the_ranks_of_the_launcher() -> None:
    command = ("--mpi", "-np", "2", "sh", "-c", f"echo ready; exec sleep {2 * LIMIT}")
    launcher = subprocess.Popen(
        [sys.executable, "-c", HOROVODRUN, *command],
        stdout=subprocess.PIPE,
        env={**ENVIRONMENT, "PATH": PATH},
    )
    assert launcher.stdout is not None
    for _ in range(2):
        assert b"ready" in launcher.stdout.readline()
    launcher.terminate()
    # Its ranks have the pipe as well.
    launcher.communicate(timeout=LIMIT)


def test_the_native_launcher_says_that_mpi_needs_mpirun() -> None:
    done = run(sys.executable, "-c", HOROVODRUN, "-np", "2", sys.executable, "-c", START)
    assert done.returncode == 1
    assert "start the job with mpirun or horovodrun --mpi" in done.stderr


def test_an_mpi_without_threads_is_refused() -> None:
    code = "import mpi4py; mpi4py.rc.threads = False\nfrom mpi4py import MPI\n" + START
    done = ranks(code)
    assert done.returncode != 0
    assert "MPI runs without support for threads" in done.stderr
