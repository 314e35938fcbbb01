"""What watching for hangs costs a job: its threads make no system call for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.single.launching import Job, python
from tests.syscalls import system_calls

pytestmark = pytest.mark.job

# Operations without end, in which neither rank prints, reads or sleeps.
PROGRAM = """
import os, sys
import numpy as np
import sirtaki as hvd
hvd.init()
data = np.ones(16, np.float32)
hvd.allreduce_(data, name="grad")
print(f"rank {hvd.rank()} is {os.getpid()};", flush=True)
while True:
    hvd.allreduce_(data, name="grad")
"""
WAITING = {"futex", "sched_yield"}


@pytest.mark.parametrize("flag", ["--stall-check-warning-time-seconds=1", "--no-stall-check"])
def test_the_thread_that_works_makes_only_the_calls_that_wait(flag: str) -> None:
    job = Job()
    process = job.start("-np", "2", flag, *python(PROGRAM))
    try:
        assert process.stdout is not None
        line = ""
        while "rank 0 is" not in line:
            line = process.stdout.readline()
        pid = int(line.split("rank 0 is ")[1].split(";")[0])
        calls = system_calls(pid, 2.0)  # the watch asks four times meanwhile
        assert set(calls) <= WAITING, calls
        assert Path(f"/proc/{pid}").exists()
    finally:
        process.kill()
        process.communicate()
        job.wait_until_gone()
