"""Training has the same bits on any number of ranks, also after losses."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.elastic.test_jobs import IMPATIENT, QUICK
from tests.single.launching import Job

PROGRAM = (sys.executable, str(Path(__file__).with_name("reproducible.py")))
PARTS = 12
FEW = 8
ALL = 500
# In a part, between the exchange and the step, and between the step and the records of it.
FAULTS = "1@2:part:KILL 2@3:before:KILL 0@4:after:KILL 3@6:commit:KILL"
LAST_FAULT = 6
STOPS = "1@2:part:STOP 2@4:after:STOP"


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


def trained(job: Job, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = job.run(*flags, *PROGRAM, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def hashes(done: subprocess.CompletedProcess[str]) -> set[str]:
    return set(re.findall(r"<stdout>:hash (\w+)", done.stdout))


def check_parts(done: subprocess.CompletedProcess[str], steps: range) -> None:
    """All parts of each step were computed, each by one rank of the world that did the step."""
    for step in steps:
        lines = re.findall(rf"<stdout>:parts {step} (.*)", done.stdout)
        computed = sorted(int(part) for line in lines for part in line.split())
        assert computed == list(range(PARTS)), step


@pytest.mark.parametrize(
    "model",
    [
        "transformer",
        pytest.param("lenet", marks=pytest.mark.slow),
        pytest.param("norm", marks=pytest.mark.nightly),
    ],
)
def test_any_number_of_ranks_gives_the_same_bits(job: Job, model: str) -> None:
    found = set()
    for ranks in (1, 3):
        done = trained(job, "-np", str(ranks), MODEL=model, STEPS=str(FEW))
        check_parts(done, range(FEW))
        found |= hashes(done)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("model", "steps"),
    [
        ("norm", FEW),
        # On three hosts, tests/hosts/test_elastic_faults.py does it sooner.
        *(
            pytest.param(model, ALL, marks=pytest.mark.nightly)
            for model in ("norm", "transformer", "lenet")
        ),
    ],
)
def test_a_job_that_loses_ranks_ends_as_one_undisturbed_rank(
    job: Job, model: str, steps: int
) -> None:
    environment = {"MODEL": model, "STEPS": str(steps)}
    alone = hashes(trained(job, "-np", "1", **environment))
    flags = ("-np", "4", "--min-np", "1", *QUICK)
    done = trained(job, *flags, **environment, FAULTS=FAULTS, COMPANY=f"{LAST_FAULT}:2")
    killed = set(re.findall(r"process (\d) on localhost ended with SIGKILL", done.stderr))
    assert killed == {"0", "1", "2", "3"}
    check_parts(done, range(LAST_FAULT + 1, steps))
    assert hashes(done) == alone


@pytest.mark.nightly
def test_a_rank_that_is_stopped_changes_nothing(job: Job) -> None:
    environment = {"MODEL": "norm", "STEPS": str(FEW)}
    alone = hashes(trained(job, "-np", "1", **environment))
    flags = ("-np", "3", "--min-np", "1", *IMPATIENT, *QUICK)
    done = trained(job, *flags, **environment, FAULTS=STOPS)
    stopped = set(re.findall(r"process (\d) was stopped, or its engine silent", done.stderr))
    assert stopped == {"1", "2"}
    assert hashes(done) == alone
