"""Worlds of some ranks of a job, one after another and side by side, and ranks that contradict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sirtaki.launch.api import run
from tests.faults.named_hosts import run_ranks

pytestmark = pytest.mark.timeout(180)

LIMIT = 100.0
PATIENT = 60
ALL = [0, 1, 2, 3]
HOSTS = pytest.mark.parametrize(
    "host_of", [(0, 0, 0, 0), (0, 0, 1, 1)], ids=["one host", "two hosts"]
)

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


@HOSTS
@pytest.mark.parametrize(
    "worlds",
    [
        pytest.param([[0, 1], ALL], id="some first"),
        pytest.param([ALL, [0, 1], ALL, ALL], id="some in between"),
        pytest.param([[1, 0], [0, 1], [3, 2, 1], ALL, [3, 1, 0, 2], ALL], id="other orders"),
        pytest.param([[0, 2], [1, 3], ALL, [3, 1], [2, 0], ALL], id="disjoint, side by side"),
        pytest.param([[1, 2], [1, 2], [1, 2], ALL], id="three times while others wait"),
        pytest.param([[0], [0], [2, 3], ALL], id="alone"),
    ],
)
def test_ranks_meet_however_often_each_has_met_others_before(
    tmp_path: Path, host_of: Sequence[int], worlds: list[list[int]]
) -> None:
    code = f"""{PRELUDE}
for members in {worlds}:
    if launched in members:
        live(members)
print("done")
"""
    done = run_ranks(code, tmp_path, host_of, LIMIT, PATIENT)
    assert [rank.stdout.strip() for rank in done] == ["done"] * 4, [rank.stderr for rank in done]


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
    assert run(some_then_all, num_proc=4) == [[rank, 4, 6] for rank in range(4)]


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
