"""Reduce, gather and scatter, with exact values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sirtaki as hvd


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Max, hvd.Average])
@pytest.mark.parametrize("count", [0, 1, 1000, 100_003])
def test_only_the_root_has_what_was_reduced(op: int, count: int) -> None:
    mine = np.arange(count, dtype=np.float64) * (hvd.rank() + 1)
    everywhere = hvd.allreduce(mine, op=op)
    for root in range(hvd.size()):
        result = hvd.reduce(mine, root, op=op)
        assert (result is not None) == (hvd.rank() == root)
        if result is not None:
            np.testing.assert_array_equal(result, everywhere)


def test_only_the_root_has_what_was_gathered() -> None:
    parts = [np.full((rank % 3, 2), rank) for rank in range(hvd.size())]
    for root in range(hvd.size()):
        result = hvd.synchronize(hvd.gather_async(parts[hvd.rank()], root, name=f"g{root}"))
        assert (result is not None) == (hvd.rank() == root)
        if result is not None:
            np.testing.assert_array_equal(result, np.concatenate(parts))


@pytest.mark.parametrize("count", [0, 1, 100_003])
def test_each_rank_gets_its_array_of_the_root(count: int) -> None:
    for root in range(hvd.size()):
        arrays = [np.full(count, 10 * root + r, np.int32) for r in range(hvd.size())]
        own = np.zeros(count, np.int32)
        given = arrays if hvd.rank() == root else None
        assert hvd.scatter(own, given, root) is own
        np.testing.assert_array_equal(own, np.full(count, 10 * root + hvd.rank()))


def test_the_root_of_a_process_set_is_a_rank_of_the_world() -> None:
    if hvd.size() < 3:
        pytest.skip("needs a set whose ranks have other numbers")
    last = hvd.add_process_set([1, 2])
    if hvd.rank() in (1, 2):
        result = hvd.reduce(np.ones(3), 2, op=hvd.Sum, process_set=last)
        assert (result is not None) == (hvd.rank() == 2)
        own = np.zeros(1)
        hvd.scatter(own, [np.full(1, 5.0), np.full(1, 6.0)], 2, process_set=last)
        assert own[0] == 4.0 + hvd.rank()
        with pytest.raises(ValueError, match="root_rank 0 is not in the process set"):
            hvd.gather(np.ones(3), 0, process_set=last)
    hvd.remove_process_set(last)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: hvd.reduce(np.ones(3), 0, op=77), "77"),
        (lambda: hvd.reduce(np.ones(3), 0, op=hvd.Adasum), "Adasum"),
        (lambda: hvd.scatter(np.ones(3), None, hvd.rank()), "one tensor to each of"),
        (
            lambda: hvd.scatter(np.ones(3), [np.ones(2)] * hvd.size(), hvd.rank()),
            "shape and dtype of the output",
        ),
        (lambda: hvd.scatter(np.ones((3, 4)).T, None, 0), "contiguous"),
    ],
)
def test_a_wrong_argument_is_found_before_anything_is_sent(
    call: Callable[[], Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        call()


def test_ranks_that_disagree_on_the_root_are_told() -> None:
    if hvd.size() == 1:
        pytest.skip("needs ranks that can disagree")
    for call in (hvd.reduce, hvd.gather):
        with pytest.raises(hvd.MismatchError, match="different root ranks"):
            call(np.ones(3), hvd.rank() % 2)
