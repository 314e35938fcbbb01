"""An elastic job goes on from a checkpoint, which rank 0 alone reads."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.elastic.test_jobs import ALONE
from tests.single.launching import Job

RESUMED = (sys.executable, str(Path(__file__).with_name("resumed.py")))


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


def found(job: Job, folder: Path, **extra: str) -> dict[int, tuple[str, str]]:
    """Of each rank: its step, and the next numbers of its generators."""
    flags = ("-np", "3", "--min-np", "2", *ALONE)
    done = job.run(*flags, *RESUMED, FOLDER=str(folder), **extra)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r":step (\d+) rank (\d) (.*)$", done.stdout, re.MULTILINE)
    return {int(rank): (step, numbers) for step, rank, numbers in lines}


@pytest.mark.slow
def test_all_ranks_go_on_with_their_random_numbers_though_rank_0_is_lost_before_all_have_them(
    job: Job, tmp_path: Path
) -> None:
    first = found(job, tmp_path)
    assert len(set(first.values())) == 3, "each rank has numbers of its own"
    assert found(job, tmp_path) == first
    # Another rank reads the checkpoint.
    resumed = found(job, tmp_path, LOSE_FIRST="1")
    assert resumed == {rank: first[rank] for rank in range(2)}
