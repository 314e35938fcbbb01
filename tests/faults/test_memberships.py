"""Worlds of some ranks of a job, one after another and side by side, and ranks that contradict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sirtaki.launch.api import run
from tests.faults.named_hosts import run_ranks

LIMIT = 300.0
PATIENT = 60
ALL = [0, 1, 2, 3]
HOSTS = pytest.mark.parametrize(
    "host_of", [(0, 0, 0, 0), (0, 0, 1, 1)], ids=["one host", "two hosts"]
)

SEQUENCE = """
import os, subprocess, sys, time
import numpy as np
import sirtaki as hvd

number = int(os.environ.get("PROGRAM", "1"))
os.environ["PROGRAM"] = str(number + 1)
time.sleep(0.5 * (number == 2 and os.environ["HOROVOD_RANK"] == "0"))
hvd.init()
assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == hvd.size()
print(number, flush=True)
if number < 3:
    hvd.shutdown()
    again = [sys.executable, __file__]
    if number == 1:
        subprocess.run(again, check=True)
    else:
        os.execv(sys.executable, again)
"""

PRELUDE = """
import os
import numpy as np
import sirtaki as hvd

launched = int(os.environ["HOROVOD_RANK"])

def live(members):
    hvd.init(comm=members)
    assert (hvd.rank(), hvd.size()) == (members.index(launched), len(members))
    total = hvd.allreduce(np.array([launched + 1.0]), op=hvd.Sum)
    assert total[0] == sum(members) + len(members)
    hvd.barrier()
    hvd.shutdown()
"""


@pytest.mark.slow
def test_programs_that_follow_one_another_in_a_rank_meet_each_time(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SEQUENCE)
    code = f"import runpy; runpy.run_path({str(program)!r})"
    for done in run_ranks(code, tmp_path, (0, 0, 1), LIMIT, PATIENT):
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.split()) == ["1", "2", "3"]


def test_a_process_that_a_rank_starts_cannot_be_that_rank_too(tmp_path: Path) -> None:
    code = """
import os, subprocess, sys
import sirtaki as hvd

hvd.init()
if hvd.rank() == 1:
    again = [sys.executable, "-c", "import sirtaki as hvd; hvd.init()"]
    done = subprocess.run(again, capture_output=True, text=True)
    told = done.stderr.strip().splitlines()[-1]
    assert f"another process is rank 1 of this job, and lives: process {os.getpid()}" in told
hvd.barrier()
"""
    for done in run_ranks(code, tmp_path, (0, 0), LIMIT, PATIENT):
        assert done.returncode == 0, done.stderr


WORLDS = {
    "alone": [[0], [0], [2, 3], ALL],
    "some first": [[0, 1], ALL],
    "some in between": [ALL, [0, 1], ALL, ALL],
    "other orders": [[1, 0], [0, 1], [3, 2, 1], ALL, [3, 1, 0, 2], ALL],
    "disjoint, side by side": [[0, 2], [1, 3], ALL, [3, 1], [2, 0], ALL],
    "three times while others wait": [[1, 2], [1, 2], [1, 2], ALL],
}


@HOSTS
def test_ranks_meet_however_often_each_has_met_others_before(
    tmp_path: Path, host_of: Sequence[int]
) -> None:
    code = f"""{PRELUDE}
for name, worlds in {WORLDS}.items():
    for members in worlds:
        if launched in members:
            live(members)
    print(name, flush=True)
"""
    done = run_ranks(code, tmp_path, host_of, LIMIT, PATIENT)
    for rank in done:
        assert rank.stdout.splitlines() == list(WORLDS), rank.stderr


def some_then_all() -> list[int]:
    import os

    import numpy as np

    import sirtaki as hvd

    launched = int(os.environ["HOROVOD_RANK"])
    if launched < 2:
        hvd.init(comm=[0, 1])
        hvd.barrier()
        hvd.shutdown()
    hvd.init()
    total = hvd.allreduce(np.array([launched]), op=hvd.Sum)
    hvd.barrier()
    return [hvd.rank(), hvd.size(), int(total[0])]


def test_two_ranks_that_were_a_world_before_meet_those_that_were_not() -> None:
    assert run(some_then_all, num_proc=3) == [[rank, 3, 3] for rank in range(3)]


# All have come, and then contradict one another.
WRONG = """
live([0, 1, 2, 3])
os.environ.update(HOROVOD_START_TIMEOUT="6", SIRTAKI_EPOCH=epoch)
try:
    hvd.init(**arguments)
except Exception as error:
    print(type(error).__name__, error)
"""


@HOSTS
def test_ranks_that_were_given_different_members_are_told_who_has_what(
    tmp_path: Path, host_of: Sequence[int]
) -> None:
    code = f"{PRELUDE}epoch, arguments = '0', {{'comm': [0, 1]}} if launched == 0 else {{}}{WRONG}"
    done = run_ranks(code, tmp_path, host_of, LIMIT, PATIENT)
    first, second = done[0].stdout, done[1].stdout
    assert first.startswith("ValueError"), done[0].stderr
    assert "launched rank 1 (" in first
    assert "wants a world of launched ranks 0-3 in epoch 0" in first
    assert "this process wants one of launched ranks 0-1 in epoch 0" in first
    assert "give all processes of a world the same members (init(comm=...))" in second


@HOSTS
def test_a_rank_of_another_epoch_is_named(tmp_path: Path, host_of: Sequence[int]) -> None:
    code = f"{PRELUDE}epoch, arguments = str(launched // 3), {{}}{WRONG}"
    done = run_ranks(code, tmp_path, host_of, LIMIT, PATIENT)
    for rank in done:
        assert rank.stdout.startswith("ValueError"), rank.stderr
        assert "and the same SIRTAKI_EPOCH" in rank.stdout
    for rank in done[:3]:
        assert "launched rank 3 (" in rank.stdout
        assert "wants a world of launched ranks 0-3 in epoch 1" in rank.stdout
