"""Training with rare exchanges outlives the loss of a rank, and goes where an oracle goes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.faults.elastic.test_jobs import QUICK
from tests.outer_oracle import Oracle
from tests.single.launching import Job

PROGRAM = (sys.executable, str(Path(__file__).with_name("outer.py")))
STEPS = 40
SHAPES = ((2, 3), (2,), (2, 2), (2,))


def went_where_the_oracle_goes(output: str) -> list[tuple[int, list[int]]]:
    """Replay the worlds of a job of outer.py; returns their first steps and processes."""
    lines = re.findall(r"<stdout>:world (\d+) (.*)", output)
    worlds = [(int(step), [int(each) for each in ids.split()]) for step, ids in lines]
    reached = re.findall(r"<stdout>:end (\d+) (\d+) (\d+) (.*)", output)
    assert sorted(int(process) for process, *_ in reached) == sorted(worlds[-1][1])
    (last,) = {step for _, step, *_ in reached}
    size = len(worlds[0][1])
    oracle = Oracle([np.ones(shape) for shape in SHAPES], size, [[0, 1], [2, 3]], 6, 1, 0.25)
    for (begins, members), (ends, _) in pairwise([*worlds, (int(last), [])]):
        if begins:
            oracle.change(members)
        oracle.run(ends - begins)
    for index in list(oracle.outer):
        oracle.apply(index, oracle.outer.pop(index))
    mean = [np.mean(each, axis=0) for each in zip(*oracle.local, strict=True)]
    for _, _, counted, values in reached:
        assert counted == last
        found = [float(value) for value in values.split()]
        np.testing.assert_allclose(found, np.concatenate([m.ravel() for m in mean]), rtol=1e-6)
    return worlds


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


# While an exchange waits for the rank, and after it has contributed to one that runs.
@pytest.mark.parametrize(("kill", "goes_on"), [(7, 8), pytest.param(8, 9, marks=pytest.mark.slow)])
def test_survivors_and_newcomers_go_where_the_oracle_goes(
    job: Job, kill: int, goes_on: int
) -> None:
    variables = {"STEPS": str(STEPS), "KILL": str(kill), "OMP_NUM_THREADS": "1"}
    done = job.run("-np", "3", "--min-np", "1", *QUICK, *PROGRAM, **variables)
    assert done.returncode == 0, done.stderr
    assert "process 1 on localhost ended with SIGKILL" in done.stderr
    worlds = went_where_the_oracle_goes(done.stdout)
    assert worlds[0] == (0, [0, 1, 2])
    assert worlds[1][0] == goes_on
