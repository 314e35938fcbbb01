"""Small sums between hosts, whose numbers travel with the agreement. Hosts by name only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.named_hosts import run_ranks

LIMIT = 150.0
START_TIMEOUT = 300

PRELUDE = """
import os, signal
os.environ["SIRTAKI_ADVICE"] = "0"
import numpy as np
import sirtaki as hvd
hvd.init(process_sets="dynamic")
rank, size = hvd.rank(), hvd.size()
def total(values, **how):
    return hvd.allreduce(values, name="x", op=hvd.Sum, **how)
def agree():
    total(np.ones(1, np.float32))  # the next one of this name is known to all
"""

SAME_BITS = """
random = np.random.default_rng(rank)
def check(values, **how):
    name = f"{values.dtype} {values.size} {how}"
    first = hvd.allreduce(values, name=name, **how)
    for _ in range(4):
        again = hvd.allreduce(values, name=name, **how)
        assert again.tobytes() == first.tobytes(), name
    theirs = hvd.allgather(np.frombuffer(first.tobytes(), np.uint8).reshape(1, -1))
    assert (theirs == theirs[0]).all(), name
for count in (1, 1000, 4096):
    for dtype in (np.float32, np.float16, np.float64, np.int32):
        values = (random.standard_normal(count) * 8).astype(dtype)
        for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
            check(values, op=op)
    values = random.standard_normal(count).astype(np.float32)
    check(values, op=hvd.Sum, prescale_factor=0.3, postscale_factor=0.7)
    check(values, op=hvd.Adasum)
"""


def run(code: str, folder: Path, host_of: Sequence[int]) -> list[str]:
    """Run ranks; return what each wrote to its error stream."""
    done = run_ranks(PRELUDE + code, folder, host_of, LIMIT, START_TIMEOUT)
    return [rank.stderr for rank in done]


@pytest.mark.parametrize("host_of", [(0, 1), (0, 1, 2), (0, 0, 1, 1)])
def test_known_sums_have_the_bits_of_the_first(host_of: Sequence[int], tmp_path: Path) -> None:
    assert run(SAME_BITS, tmp_path, host_of) == [""] * len(host_of)


IN_A_MIX = """
pair = hvd.add_process_set([0, size - 1]) if size > 2 else hvd.global_process_set
for step in range(200):
    values = np.full(1 + step % 3, rank + step, np.float32)
    expected = sum(range(size)) + size * step
    if (step + rank) % 5 == 0:  # another operation waits where it does not elsewhere
        other = hvd.allreduce_async(np.ones(3, np.float32), name="other", op=hvd.Sum)
    assert (hvd.allreduce(values, name=f"x{step % 3}", op=hvd.Sum) == expected).all(), step
    if step % 5 == 4:
        assert (hvd.synchronize(other) == size).all()
    if pair.included():
        mine = np.full(2, rank, np.float32)
        both = hvd.allreduce(mine, name="pair", op=hvd.Sum, process_set=pair)
        assert (both == size - 1).all()
if size > 2:
    hvd.remove_process_set(pair)
for step in range(3 + rank):
    assert (hvd.allreduce(np.ones(1, np.float32), name="x0", op=hvd.Sum) <= size).all()
hvd.join()
"""


@pytest.mark.parametrize("host_of", [(0, 1), (0, 1, 2), (0, 0, 1, 1)])
def test_small_sums_beside_others_in_sets_and_after_a_join(
    host_of: Sequence[int], tmp_path: Path
) -> None:
    assert run(IN_A_MIX, tmp_path, host_of) == [""] * len(host_of)


def test_a_rank_that_dies_after_its_report_is_named(tmp_path: Path) -> None:
    code = """
agree()
if rank == 1:
    hvd.allreduce_async(np.ones(1, np.float32), name="x", op=hvd.Sum)
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    total(np.ones(1, np.float32))
"""
    first, _, third = run(code, tmp_path, (0, 1, 2))
    for text in (first, third):
        assert "lost peer rank 1 (" in text


@pytest.mark.parametrize("dies", [0, 1])
def test_of_two_hosts_the_other_one_is_told(dies: int, tmp_path: Path) -> None:
    code = f"""
for _ in range(20):
    agree()
if rank == {dies}:
    hvd.allreduce_async(np.ones(1, np.float32), name="x", op=hvd.Sum)
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    total(np.ones(1, np.float32))
"""
    assert f"lost peer rank {dies} (" in run(code, tmp_path, (0, 1))[1 - dies]


def test_ranks_that_ask_for_other_shapes_are_told_and_go_on(tmp_path: Path) -> None:
    code = """
for round in range(5):
    agree()
    try:
        total(np.ones(1 + rank % 2, np.float32))
    except hvd.MismatchError:
        pass
    else:
        raise SystemExit("no error")
assert total(np.ones(1, np.float32)) == [size]
"""
    assert run(code, tmp_path, (0, 1)) == ["", ""]
