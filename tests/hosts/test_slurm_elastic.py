"""Elastic jobs on a real Slurm: lost processes are replaced, and requeued jobs resume."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.slurm_bed import LIMIT, SlurmBed, reason_to_skip
from tests.hosts.test_slurm import RUN, Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip())),
]

TRAIN = f"{sys.executable} {Path(__file__).parents[1]}/faults/elastic/train.py"
ELASTIC = f"{RUN} --min-np 1 --blacklist-cooldown-range 1 2"


@pytest.fixture(scope="module")
def shared_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmBed]:
    with SlurmBed(tmp_path_factory.mktemp("slurm"), 3) as bed:
        yield bed


@pytest.fixture
def run(shared_slurm: SlurmBed, tmp_path: Path) -> Iterator[Run]:
    yield Run(shared_slurm, tmp_path)
    for host in range(1, shared_slurm.count + 1):
        shared_slurm.mend(host)
    shared_slurm.wait_until_idle()


def test_a_process_in_an_allocation_is_lost_and_replaced(run: Run) -> None:
    """No agent is left on its host by then: srun starts another one there."""
    done = run.salloc("-N3", "export FAULTS=kill:1@9 UNTIL=3", f"{ELASTIC} {TRAIN}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "process 1 on node2 ended with SIGKILL" in done.stderr
    assert sorted(re.findall(r":end (\d) exact 3 2", done.stdout)) == ["0", "2", "3"], done.stdout
    run.expect_nothing_left()


def test_a_host_of_the_allocation_is_lost_and_the_rest_goes_on(run: Run) -> None:
    lines = ("export FAULTS=mark:all@5 STEPS=900", f"{ELASTIC} --max-np 3 {TRAIN}", "echo end $?")
    run.sbatch("-N3 --no-kill", *lines)
    run.wait_for("(?s)(step 5.*){3}")
    run.slurm.cut(3)
    text = run.wait_for("reset 0 2|end")
    assert "host node3 (processes 2) was lost: nothing was heard of it" in text
    run.slurm.do("scancel", *run.slurm.jobs())
    run.marked.wait_until_gone()


def resume_now(run: Run, job: str) -> None:
    """Do not wait for two minutes as Slurm does before it starts a requeued job.

    When the last node is done with the job, Slurm sets that time once more, and before that the
    job could not start there.
    """
    deadline = time.monotonic() + LIMIT
    while not re.search(r"(?s)JobState=(RUNNING|COMPLET).* Restarts=1 ", shown := show(run, job)):
        assert time.monotonic() < deadline, shown + (run.folder / "out").read_text()
        nodes = set(run.slurm.do("sinfo", "-h", "-N", "-o", "%T").split())
        if "JobState=PENDING Reason=BeginTime" in shown and nodes == {"idle"}:
            run.slurm.do("scontrol", "update", f"JobId={job}", "StartTime=now")
        time.sleep(0.2)


def show(run: Run, job: str) -> str:
    return run.slurm.do("scontrol", "show", "job", job)


# Slurm takes its time between the two runs, which depends on what else the machine does.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "signal", ["--signal=USR1 --batch", "--signal=USR1"], ids=["launcher", "processes"]
)
def test_a_job_that_slurm_warns_leaves_a_checkpoint_is_requeued_and_resumes(
    run: Run, signal: str
) -> None:
    lines = (
        f"export CHECKPOINT={run.folder}/checkpoint FAULTS=mark:all@5 STEPS=9000",
        # The second time little is left to do.
        '[ "$SLURM_RESTART_COUNT" ] && export STEPS=$(($(cut -d" " -f1 checkpoint) + 5))',
        f"exec {ELASTIC} {TRAIN}",
    )
    job = run.sbatch("-N2 --requeue --open-mode=append", *lines)
    run.wait_for("(?s)(step 5.*){2}")
    run.slurm.do("scancel", *signal.split(), job)
    resume_now(run, job)
    text = run.wait_for("(?s)(:end .*){2}")
    (step,) = set(re.findall(r"left at (\d+)", text))
    assert text.count(f"resumed at {step}") == 2, text
    assert f"the last checkpoint is {run.folder}/checkpoint (step {step})" in text
    assert text.count(" exact 2") == 2, text
    run.marked.wait_until_gone()


def test_a_job_that_slurm_ends_leaves_a_checkpoint(run: Run) -> None:
    lines = (
        f"export CHECKPOINT={run.folder}/checkpoint FAULTS=mark:all@5 STEPS=9000",
        f"{ELASTIC} {TRAIN}",
    )
    job = run.sbatch("-N2 --ntasks-per-node=2", *lines)
    run.wait_for("(?s)(step 5.*){4}")
    run.slurm.do("scancel", job)
    text = run.wait_for("the last checkpoint is")
    assert len(set(re.findall(r"left at (\d+)", text))) == 1
    assert (run.folder / "checkpoint").exists()
    run.marked.wait_until_gone()
