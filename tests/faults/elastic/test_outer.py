"""Training with rare exchanges outlives the loss of a rank."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.elastic.test_jobs import QUICK
from tests.single.launching import Job

PROGRAM = (sys.executable, str(Path(__file__).with_name("outer.py")))
STEPS = 20


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


# Between two exchanges, and while one runs.
@pytest.mark.parametrize("kill", [7, pytest.param(8, marks=pytest.mark.slow)])
def test_ranks_that_have_lost_one_go_on_and_end_with_the_same_parameters(
    job: Job, kill: int
) -> None:
    variables = {"STEPS": str(STEPS), "KILL": str(kill), "OMP_NUM_THREADS": "1"}
    done = job.run("-np", "3", "--min-np", "1", *QUICK, *PROGRAM, **variables)
    assert done.returncode == 0, done.stderr
    assert "process 1 on localhost ended with SIGKILL" in done.stderr
    ends = re.findall(r"<stdout>:end (\d+) (\d+) (\w+)", done.stdout)
    assert len(ends) >= 2
    assert {end[:2] for end in ends} == {(str(STEPS), str(STEPS))}
    assert len({digest for _, _, digest in ends}) == 1
