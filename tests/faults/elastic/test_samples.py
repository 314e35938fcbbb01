"""A process may die near the end of an epoch; each sample is used once all the same."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.single.launching import Job

SAMPLES = (sys.executable, str(Path(__file__).with_name("samples.py")))


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


def ends(job: Job, **extra: str) -> list[str]:
    """Who has come to the end of two epochs with each sample used twice."""
    cooldown = ("--blacklist-cooldown-range", "60", "60")
    done = job.run("-np", "3", "--min-np", "2", *cooldown, *SAMPLES, **extra)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(re.findall(r":end (\d) 2 2\.0$", done.stdout, re.MULTILINE))


@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("after it has joined", ["0", "2"]),
        pytest.param("in the last batch of all", ["0", "2"], marks=pytest.mark.slow),
        pytest.param("before it commits the last batch", ["1", "2"], marks=pytest.mark.nightly),
        pytest.param("before it joins", ["1", "2"], marks=pytest.mark.nightly),
        pytest.param("before all have the same state", ["1", "2"], marks=pytest.mark.slow),
    ],
)
def test_each_sample_is_used_once_when_a_process_dies(
    job: Job, point: str, left: list[str]
) -> None:
    assert ends(job, POINT=point) == left


@pytest.mark.slow
def test_each_sample_is_used_once_with_the_sampler_of_pytorch(job: Job) -> None:
    assert ends(job, POINT="before it commits the last batch", TORCH="1") == ["1", "2"]
