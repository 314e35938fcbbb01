"""A training function ends with an error: the others do not wait for the end of its process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.elastic.test_jobs import ALONE
from tests.single.launching import Job

# Process 1 takes its time to end, until the others have finished their work without it.
PROGRAM = """
import atexit, os, sys, threading, time
from pathlib import Path
def await_others():
    if PROCESS == "1":
        deadline = time.monotonic() + 60
        while not FINISHED.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        print("others had finished:", FINISHED.exists(), flush=True)
atexit.register(lambda: HOW == "raise" and await_others())
import numpy as np
import sirtaki as hvd
from sirtaki import elastic
from sirtaki.core.operations.objects import broadcast_object
PROCESS, HOW, FINISHED = os.environ["SIRTAKI_PROCESS"], sys.argv[1], Path(sys.argv[2])
def fail():
    if HOW == "sys.exit(0)":
        sys.exit(0)
    if HOW == "sys.exit(3)":
        sys.exit(3)
    raise MemoryError() if HOW == "MemoryError" else RuntimeError("mine")
@elastic.run
def train(state):
    while state.step < 40:
        if state.step == 10 and (PROCESS == "1" or HOW == "all catch"):
            fail()
        hvd.allreduce(np.ones(3), name="gradient")
        state.step += 1
        state.commit()
hvd.init()
state = elastic.ObjectState(broadcast_object, hvd.rank, step=0)
if HOW == "raise":
    train(state)
elif HOW == "in a thread":
    thread = threading.Thread(target=train, args=(state,))
    thread.start()
    thread.join()
    await_others()
elif HOW == "all catch":
    try:
        train(state)
    except RuntimeError:
        time.sleep(1.0)
        assert hvd.allreduce(np.ones(3), op=hvd.Sum, name="after").tolist() == [3.0] * 3
else:
    try:
        train(state)
    finally:
        await_others()
if PROCESS != "1":
    FINISHED.touch()
print("end", hvd.size(), state.step, flush=True)
"""


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


def run(job: Job, tmp_path: Path, how: str) -> str:
    command = (sys.executable, "-c", PROGRAM, how, str(tmp_path / "finished"))
    done = job.run("-np", "3", "--min-np", "2", *ALONE, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "how",
    [
        "raise",
        "MemoryError",
        pytest.param("sys.exit(3)", marks=pytest.mark.slow),
        pytest.param("sys.exit(0)", marks=pytest.mark.nightly),
        "in a thread",
    ],
)
def test_the_others_go_on_while_the_process_ends(job: Job, tmp_path: Path, how: str) -> None:
    text = run(job, tmp_path, how)
    assert "[1]<stdout>:others had finished: True\n" in text
    for number in (0, 2):
        assert f"[{number}]<stdout>:end 2 40\n" in text


def test_ranks_that_all_catch_an_error_go_on_together(job: Job, tmp_path: Path) -> None:
    assert run(job, tmp_path, "all catch").count(":end 3 10\n") == 3


BROKEN = """
import os, sys
import sirtaki as hvd
from sirtaki import elastic
from sirtaki.core.operations.objects import broadcast_object
hvd.init()
if sys.argv[1] == "before":
    undefined
if sys.argv[1] == "checkpoint":
    elastic.note_checkpoint("/there", 5)
    if os.environ["SIRTAKI_PROCESS"] not in "01":
        sys.exit()
    undefined
elastic.run(lambda state: None)(elastic.ObjectState(broadcast_object, hvd.rank))
undefined
"""


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("before", "and none has called a function with @hvd.elastic.run"),
        pytest.param("after", "so the state is lost: start the job again", marks=pytest.mark.slow),
    ],
)
def test_an_error_outside_of_the_function_ends_the_job_and_is_named(
    job: Job, where: str, why: str
) -> None:
    done = job.run("-np", "2", "--min-np", "1", sys.executable, "-c", BROKEN, where)
    assert done.returncode == 1
    end = done.stderr.splitlines()[-1]
    assert f"ended with code 1; no process of world 0 is left, {why}" in end
    assert end.endswith(": NameError: name 'undefined' is not defined")
    assert "with 0 process(es)" not in done.stderr


@pytest.mark.slow
def test_a_job_that_knows_a_checkpoint_begins_anew_whatever_the_script_calls(job: Job) -> None:
    done = job.run("-np", "2", "--min-np", "1", sys.executable, "-c", BROKEN, "checkpoint")
    assert done.returncode == 0, done.stderr
    assert "new processes begin anew: the last checkpoint is /there (step 5)" in done.stderr


@pytest.mark.slow
def test_a_long_end_does_not_count_as_too_few_processes(job: Job) -> None:
    code = """
import atexit, time
atexit.register(time.sleep, 7)
import sirtaki as hvd
from sirtaki import elastic
hvd.init()
"""
    flags = ("-np", "1", "--min-np", "1", "--elastic-timeout", "5")
    done = job.run(*flags, sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
