"""Process sets outlive a world with their members, and pending operations end with one error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.single.launching import Job

SETS = (sys.executable, str(Path(__file__).with_name("sets.py")))


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.wait_until_gone()


@pytest.mark.parametrize(
    "flags",
    [
        ("--blacklist-cooldown-range", "60", "60"),
        # The newcomer registers the set with the others, too.
        pytest.param(("--spares", "1"), marks=pytest.mark.slow),
    ],
)
def test_a_set_whose_members_are_left_is_made_again(job: Job, flags: tuple[str, ...]) -> None:
    done = job.run("-np", "4", "--min-np", "3", *flags, *SETS)
    assert done.returncode == 0, done.stdout + done.stderr
    for process in (2, 3):
        assert f"[{process}]<stdout>:pair [1, 2] [5.0, 5.0] None" in done.stdout
    assert "the process set of processes [0, 1] has lost [1] and is not made again" in done.stderr
    assert "<stdout>:torn ProcessSet(process_set_id=None, ranks=[0, 1]" in done.stdout
    # Each pending operation has failed once, all with one error.
    pending = re.findall("<stdout>:pending (.*)", done.stdout)
    assert set(pending) == {"3 1"}
