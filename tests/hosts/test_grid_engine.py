"""Jobs on a real Grid Engine with two virtual hosts."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from tests.hosts.slurm_bed import LIMIT, GridEngineBed, reason_to_skip_grid_engine
from tests.single.launching import Job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        reason_to_skip_grid_engine() is not None, reason=str(reason_to_skip_grid_engine())
    ),
]

SUBMIT = (sys.executable, "-m", "sirtaki.launch.cli", "submit", "--scheduler", "grid-engine")
# When all have met, the last rank fails if it is to, and else goes on for long if it is to.
SCRIPT = """
import os, socket, sys, time, numpy, sirtaki as hvd
hvd.init()
total = hvd.allreduce(numpy.full(3, hvd.rank() + 1.0), op=hvd.Sum)
print("sum", int(total[0]), "on", socket.gethostname(), "local", hvd.local_rank(), flush=True)
print("sees", os.environ.get("PE_HOSTFILE"), os.environ["MINE"], flush=True)
if "breaks" in sys.argv and hvd.rank() == hvd.size() - 1:
    sys.exit(3)
if "stay" in sys.argv:
    time.sleep(600)
"""


def test_a_submitted_job_runs_its_ranks_on_all_hosts_and_ends_as_they_do(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    job = Job()
    environ = {**job.environment, "SIRTAKI_SHARED_DIR": str(tmp_path / "shared"), "MINE": "it's $1"}
    with GridEngineBed(tmp_path / "bed", 2) as bed:
        # A rank for every two of the four slots, then for each.
        for word, ranks, last in (("well", 1, 0), ("breaks", 2, 1)):
            flags = ("--nodes", "2", "--ranks-per-node", str(ranks), "--threads", str(2 // ranks))
            flags = (*flags, "--pe", "two", "--print")
            output = ("--output", str(tmp_path / word), "--name", word)
            program = ("--", sys.executable, str(tmp_path / "train.py"), word)
            made = bed.run(*SUBMIT, *flags, *output, *program, env=environ)
            assert made.returncode == 0, made.stderr
            (tmp_path / "job.sh").write_text(made.stdout)
            # As `sirtaki submit` does it, but this waits for the end of the job.
            done = bed.run("qsub", "-V", "-sync", "y", str(tmp_path / "job.sh"), env=environ)
            text = (tmp_path / word).read_text()
            assert (done.returncode != 0) == bool(last), f"{done.stdout}{done.stderr}{text}"
            assert sorted(re.findall(r"sum .*", text)) == [
                f"sum {ranks * (2 * ranks + 1)} on node{host} local {rank}"
                for host in (1, 2)
                for rank in range(ranks)
            ], text
            assert text.count("sees None it's $1") == 2 * ranks, text
        assert "Process name: rank 3 on node2\nExit code: 3\n" in text
        _expect_qdel_to_end(bed, environ, tmp_path)
    job.wait_until_gone()
    assert list((tmp_path / "shared").iterdir()) == []


def _expect_qdel_to_end(bed: GridEngineBed, environ: dict[str, str], folder: Path) -> None:
    text = (folder / "job.sh").read_text().replace("breaks", "stay")
    (folder / "job.sh").write_text(text)
    done = bed.run("qsub", "-V", "-terse", str(folder / "job.sh"), env=environ)
    assert done.returncode == 0, done.stderr
    output = folder / "stay"
    deadline = time.monotonic() + LIMIT
    while not (output.exists() and output.read_text().count("sees") == 4):
        assert time.monotonic() < deadline, output.read_text() if output.exists() else done.stdout
        time.sleep(0.1)
    bed.do("qdel", done.stdout.strip())
