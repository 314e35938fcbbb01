"""Processes of an elastic job leave politely: some of them, or all."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.faults.elastic.test_jobs import TRAIN, ends
from tests.single.launching import GRACE, HOROVODRUN, LIMIT, Job

REQUEUE = 75
LONG = {"UNTIL": "9", "FAULTS": "mark:all@5"}
TERM = str(int(signal.SIGTERM))
DEPARTING = (sys.executable, str(Path(__file__).with_name("departing.py")))
# Each framework, how a process leaves, and whether the step reads the size of the world.
DEPARTURES = [
    pytest.param(*case.split(), marks=[needs.installed(*case.split()[0].split("-")), *marks])
    for case, marks in {
        "jax signal any": [],
        "torch host any": [],
        "tensorflow signal any": [pytest.mark.nightly],
        "keras-jax host any": [pytest.mark.slow],
        "keras-tensorflow signal any": [pytest.mark.nightly],
        "jax host scaled": [pytest.mark.slow],
        "keras-torch host scaled": [pytest.mark.nightly],
        "keras-jax signal scaled": [pytest.mark.nightly],
        "keras-tensorflow host scaled": [pytest.mark.nightly],
    }.items()
]


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


def signalled(
    job: Job, number: int, *flags: str, when: str = "step 5", **extra: str
) -> tuple[int, str]:
    """Signal the launcher once a line has these words; returns its exit code and the output."""
    command = [*HOROVODRUN, "-np", "2", "--min-np", "1", *flags]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**job.environment, **LONG, **extra},
    ) as launcher:
        assert launcher.stdout is not None
        lines = []
        for line in launcher.stdout:
            lines.append(line)
            if when in line:
                launcher.send_signal(number)
                when = "never again"
        return launcher.wait(LIMIT), "".join(lines)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGUSR1, marks=pytest.mark.slow)]
)
def test_a_process_that_gets_a_signal_leaves_and_the_rest_goes_on(job: Job, number: int) -> None:
    fault = {"FAULTS": "signal:1@9", "SIGNAL": str(int(number)), "STEPS": "90"}
    done = job.run("-np", "3", "--min-np", "2", *TRAIN, **fault)
    assert ends(done) == [(0, "3 2"), (2, "3 2")]
    assert "process 1 on localhost has got a signal and leaves" in done.stderr
    assert "PeerLostError" not in done.stderr
    assert "the job goes on with" not in done.stderr, "it is no failure"


@pytest.mark.parametrize(("framework", "way", "step"), DEPARTURES)
def test_no_step_is_lost_or_repeated_and_only_what_reads_the_size_is_compiled_again(
    job: Job, tmp_path: Path, framework: str, way: str, step: str
) -> None:
    name, _, backend = framework.partition("-")
    extra, flags = {"FRAMEWORK": name, "KERAS_BACKEND": backend or "torch"}, []
    if way == "host":
        hosts = tmp_path / "hosts"
        hosts.write_text("127.0.0.1:1\nlocalhost:1\n")
        extra["HOSTS"], flags = str(hosts), ["--host-discovery-script", f"cat {hosts}"]
    if step == "scaled":
        extra["SCALED"] = "1"
    done = job.run("-np", "2", "--min-np", "1", *flags, *DEPARTING, **extra)
    assert done.returncode == 0, done.stdout + done.stderr
    left, stayed = (0, 1) if way == "host" else (1, 0)
    steps = {
        process: [(int(number), int(size)) for number, size in found]
        for process in (0, 1)
        if (found := re.findall(rf"\[{process}]<stdout>:step (\d+) (\d+) ", done.stdout))
    }
    shared = len(steps[left])
    assert steps[stayed] == [(n, 2 if n <= shared else 1) for n in range(1, shared + 13)]
    assert steps[left] == steps[stayed][:shared]
    summed = sum(size for _, size in steps[stayed]) if step == "scaled" else shared + 12
    assert f"[{stayed}]<stdout>:gradients {summed:.1f}" in done.stdout
    if not framework.endswith("torch"):  # which compiles nothing here
        traced = [done.stdout.count(f"[{each}]<stdout>:traced") for each in (left, stayed)]
        assert (traced[1] > traced[0]) == (step == "scaled"), traced


@pytest.mark.slow
def test_a_process_leaves_though_the_others_are_too_few(job: Job) -> None:
    fault = {"FAULTS": "signal:1@9", "SIGNAL": TERM, "STEPS": "900"}
    waiting = ("--elastic-timeout", "5")
    done = job.run("-np", "2", "--min-np", "2", *waiting, *TRAIN, **fault)
    assert done.returncode == 1
    assert "the new world has no place for this process, which ends" in done.stderr
    assert "within 5 s (--elastic-timeout) 1 process(es) of the 2" in done.stderr


@pytest.mark.slow
def test_all_leave_after_the_same_step_with_a_checkpoint_that_the_next_job_resumes(
    job: Job, tmp_path: Path
) -> None:
    checkpoint, resumed = tmp_path / "checkpoint", ""
    for number, code in ((signal.SIGTERM, 143), (signal.SIGUSR1, REQUEUE)):
        # The next job trains on from where this one has left.
        when = "trains" if resumed else "step 5"
        ended, text = signalled(job, number, *TRAIN, CHECKPOINT=str(checkpoint), when=when)
        assert ended == code, text
        steps = re.findall(r"left at (\d+)", text)
        assert len(steps) == 2
        assert len(set(steps)) == 1, "after the same commit"
        assert f"the last checkpoint is {checkpoint} (step {steps[0]})" in text
        assert text.count(f"resumed at {resumed}") == (2 if resumed else 0)
        resumed = steps[0]
    more = {"CHECKPOINT": str(checkpoint), "STEPS": str(int(resumed) + 5)}
    done = job.run("-np", "3", "--min-np", "1", *TRAIN, **more)
    assert ends(done) == [(0, "3"), (1, "3"), (2, "3")]
    assert done.stdout.count(f"resumed at {resumed}") == 3


def test_a_signal_to_each_process_makes_all_leave_as_one_to_the_launcher_does(
    job: Job, tmp_path: Path
) -> None:
    fault = {"FAULTS": "signal:all@9", "SIGNAL": str(int(signal.SIGUSR1)), "STEPS": "900"}
    done = job.run("-np", "2", "--min-np", "1", *TRAIN, **fault, CHECKPOINT=str(tmp_path / "c"))
    assert done.returncode == REQUEUE, done.stderr
    assert done.stdout.count("left at") == 2


def test_a_program_that_does_not_train_is_ended_at_once(job: Job) -> None:
    sleep = (sys.executable, "-c", "import time; print('started', flush=True); time.sleep(600)")
    ended, text = signalled(job, signal.SIGTERM, *GRACE, *sleep, when="started")
    assert (ended, "terminating all workers" in text) == (143, True)


@pytest.mark.slow
def test_processes_that_do_not_leave_in_time_are_ended_and_named(job: Job) -> None:
    flags = ("--leave-seconds", "1", *GRACE)
    ended, text = signalled(
        job, signal.SIGUSR1, *flags, *TRAIN, FAULTS="compute:1@9", when="step 9"
    )
    assert ended == 1, "and not as if it could be run again"
    assert "processes 0, 1 have not left within 1 s (--leave-seconds)" in text


def test_a_checkpoint_that_cannot_be_written_is_a_failure(job: Job, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "missing" / "checkpoint")
    ended, text = signalled(job, signal.SIGUSR1, *GRACE, *TRAIN, CHECKPOINT=nowhere)
    assert ended == 1
    assert "process 0 on localhost ended with code 1 instead of leaving" in text


def test_a_signal_that_the_program_handles_itself_is_passed_on_to_it(job: Job) -> None:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(print('handled', flush=True)))\n"
        "print('started', flush=True)\n"
        "while True: signal.pause()\n"
    )
    ended, text = signalled(
        job, signal.SIGUSR1, "-np", "1", sys.executable, "-c", code, when="started"
    )
    assert (ended, "handled" in text) == (0, True), text
    assert "SIGUSR1 received: passed on to the workers." in text
