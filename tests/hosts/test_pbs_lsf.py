"""Jobs in allocations of PBS and LSF: their variables and files, real ssh, stand-ins for the rest.

Neither scheduler can be had here, so `pbsdsh` and `jsrun` are the stand-ins of this folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.hosts.bed import SSH_PORT, Bed
from tests.hosts.jobs import GRACE, RUN, python

TRAIN = Path(__file__).parents[1] / "faults" / "elastic" / "train.py"
STAND_INS = Path(__file__).with_name("stand_ins")
PORT = ("-p", str(SSH_PORT))
PLACE = (
    "import json, os, socket; print(json.dumps([socket.gethostname(), os.getcwd(), "
    "os.environ.get('MINE')] + [int(os.environ['HOROVOD_' + n]) for n in "
    "('RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE', 'CROSS_RANK', 'CROSS_SIZE')]))"
)
FAIL = "import os, sys, time; sys.exit(3) if os.environ['HOROVOD_RANK'] == '2' else time.sleep(600)"


class Allocation:
    """A job of a scheduler on the hosts of the bed: its variables, with a list of hosts."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self.bed = bed
        self.folder = folder
        self.shared = folder / "shared"
        self.variables = {**os.environ, "SIRTAKI_SHARED_DIR": str(self.shared), "MINE": "a 'b'\n$c"}

    def pbs(self, lines: Sequence[str], pbsdsh: bool) -> None:
        (self.folder / "nodes").write_text("".join(f"{line}\n" for line in lines))
        self.variables |= {
            "PBS_JOBID": "1234.server",
            "PBS_NODEFILE": str(self.folder / "nodes"),
            "PBS_ENVIRONMENT": "PBS_BATCH",
            "PBS_NODENUM": "0",
            "PBS_TASKNUM": "1",
        }
        if pbsdsh:
            self._offer("pbsdsh")

    def lsf(self, lines: Sequence[str], jsrun: bool) -> None:
        (self.folder / "hosts").write_text("".join(f"{line}\n" for line in lines))
        self.variables |= {"LSB_JOBID": "77", "LSB_DJOB_HOSTFILE": str(self.folder / "hosts")}
        if jsrun:
            self._offer("jsrun")

    def _offer(self, program: str) -> None:
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / program).symlink_to(STAND_INS / program)
        self.variables["PATH"] = f"{programs}:{self.variables['PATH']}"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `sirtaki run` on the first host."""
        command = ("env", f"--chdir={self.folder}", *RUN, *GRACE, *arguments)
        return self.bed.hosts[0].run(*command, env=self.variables)

    def places(self, done: subprocess.CompletedProcess[str]) -> list[list[object]]:
        """What the ranks have printed, in rank order."""
        found = re.findall(r"^\[(\d+)\]<stdout>:(.*)$", done.stdout, re.MULTILINE)
        assert found, done.stderr
        return [json.loads(text) for _, text in sorted(found, key=lambda pair: int(pair[0]))]


@pytest.fixture
def allocation(bed: Bed, tmp_path: Path) -> Allocation:
    return Allocation(bed, tmp_path)


def names(bed: Bed) -> list[str]:
    return [host.name for host in bed.hosts]


# ---- PBS ----


def test_a_pbs_job_starts_a_rank_for_every_line_over_ssh(allocation: Allocation) -> None:
    a, b, c = names(allocation.bed)
    allocation.pbs([a, b, a, c], pbsdsh=False)
    places = allocation.places(allocation.run(*PORT, *python(PLACE)))
    assert [(p[0], *p[3:]) for p in places] == [
        (a, 0, 4, 0, 2, 0, 3),
        (a, 1, 4, 1, 2, 0, 1),
        (b, 2, 4, 0, 1, 1, 3),
        (c, 3, 4, 0, 1, 2, 3),
    ]


def test_a_pbs_job_starts_a_rank_for_every_line_with_pbsdsh(allocation: Allocation) -> None:
    a, b, c = names(allocation.bed)
    allocation.pbs([a, b, a, c], pbsdsh=True)
    done = allocation.run(*python(PLACE))
    assert done.returncode == 0, done.stderr
    mine = [str(allocation.folder), allocation.variables["MINE"]]
    assert allocation.places(done) == [
        [a, *mine, 0, 4, 0, 2, 0, 3],
        [a, *mine, 1, 4, 1, 2, 0, 1],
        [b, *mine, 2, 4, 0, 1, 1, 3],
        [c, *mine, 3, 4, 0, 1, 2, 3],
    ]
    assert list(allocation.shared.iterdir()) == []


def test_a_task_of_pbs_keeps_its_own_and_a_job_removes_what_a_killed_launcher_left_long_ago(
    allocation: Allocation,
) -> None:
    leftover = allocation.shared / "pbs-1.x"
    leftover.mkdir(mode=0o700, parents=True)
    for name in ("job.json", "log", "secret"):
        (leftover / name).write_text("")
        os.utime(leftover / name, (0, 0))
    a, b, _ = names(allocation.bed)
    allocation.pbs([a, b], pbsdsh=True)
    done = allocation.run(*python("import os; print(os.environ['PBS_TASKNUM'])"))
    assert sorted(done.stdout.split()) == ["[0]<stdout>:00000002", "[1]<stdout>:00000003"]
    assert list(allocation.shared.iterdir()) == []


def test_flags_narrow_a_pbs_job(allocation: Allocation) -> None:
    a, b, c = names(allocation.bed)
    allocation.pbs([a, a, f"{b}.example.org", c], pbsdsh=True)
    done = allocation.run("--dry-run", "-np", "2", "-H", f"{b}:1,{c}:1", "true")
    assert f"host {b}.example.org (by pbsdsh): ranks 0\n" in done.stdout
    assert f"host {c} (by pbsdsh): ranks 1\n" in done.stdout
    assert re.findall(r"^start: pbsdsh -n (\d) -- ", done.stdout, re.MULTILINE) == ["2", "3"]
    assert not allocation.shared.exists()


def test_a_rank_that_fails_in_a_pbs_job_ends_all(allocation: Allocation) -> None:
    a, b, c = names(allocation.bed)
    allocation.pbs([a, a, b, c], pbsdsh=True)
    done = allocation.run(*python(FAIL))
    assert done.returncode == 1
    assert f"Process name: rank 2 on {b}\nExit code: 3\n" in done.stderr
    assert list(allocation.shared.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("pbsdsh", [False, True], ids=["ssh", "pbsdsh"])
def test_a_process_of_an_elastic_pbs_job_is_lost_and_replaced(
    allocation: Allocation, pbsdsh: bool
) -> None:
    a, b, c = names(allocation.bed)
    allocation.pbs([a, b, c], pbsdsh)
    flags = ("--min-np", "2", "--blacklist-cooldown-range", "1", "2", "-x", "FAULTS=kill:1@9")
    done = allocation.run(
        *(() if pbsdsh else PORT), *flags, "-x", "UNTIL=3", sys.executable, str(TRAIN)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"process 1 on {b} ended with SIGKILL" in done.stderr
    assert sorted(re.findall(r":end (\d) exact 3", done.stdout)) == ["0", "2", "3"], done.stdout
    assert list(allocation.shared.glob("*")) == []


def test_variables_of_a_pbs_job_elsewhere_are_ignored(allocation: Allocation) -> None:
    allocation.pbs(["node77", "node78"], pbsdsh=True)
    done = allocation.run("-np", "1", *python(PLACE))
    assert [place[0] for place in allocation.places(done)] == [allocation.bed.hosts[0].name]


# ---- LSF ----


def test_an_lsf_job_starts_a_rank_for_every_slot_over_ssh(allocation: Allocation) -> None:
    a, b, _ = names(allocation.bed)
    allocation.lsf([a, b, b], jsrun=False)
    places = allocation.places(allocation.run(*PORT, *python(PLACE)))
    assert [(p[0], *p[3:7]) for p in places] == [(a, 0, 3, 0, 1), (b, 1, 3, 0, 2), (b, 2, 3, 1, 2)]


def test_jsrun_spreads_the_ranks_over_the_compute_hosts(allocation: Allocation) -> None:
    a, b, c = names(allocation.bed)
    allocation.lsf([a, *[b] * 4, *[c] * 4], jsrun=True)
    done = allocation.run("-np", "4", *python(PLACE))
    assert done.returncode == 0, done.stderr
    places = allocation.places(done)
    assert [(p[0], p[2], *p[3:7]) for p in places] == [
        (b, allocation.variables["MINE"], 0, 4, 0, 2),
        (b, allocation.variables["MINE"], 1, 4, 1, 2),
        (c, allocation.variables["MINE"], 2, 4, 0, 2),
        (c, allocation.variables["MINE"], 3, 4, 1, 2),
    ]
    assert list(allocation.shared.iterdir()) == []


def test_a_rank_that_fails_under_jsrun_ends_all(allocation: Allocation) -> None:
    a, b, c = names(allocation.bed)
    allocation.lsf([a, b, b, c, c], jsrun=True)
    done = allocation.run(*python(FAIL))
    assert done.returncode == 1
    assert f"Process name: rank 2 on {c}\nExit code: 3\n" in done.stderr


def test_a_dry_run_shows_jsrun(allocation: Allocation) -> None:
    a, b, c = names(allocation.bed)
    allocation.lsf([a, *[b] * 4, *[c] * 4], jsrun=True)
    allocation.variables["SIRTAKI_GPUS_PER_RANK"] = "2"
    done = allocation.run("--dry-run", "-np", "4", "true")
    expected = "--nrs=2 --rs_per_host=1 --tasks_per_rs=1 --cpu_per_rs=4 --bind=rs --gpu_per_rs=4 "
    assert f"start: jsrun {expected}" in done.stdout, done.stderr
