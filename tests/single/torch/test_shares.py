"""Parts are shared out in proportion to speeds, without swinging."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sirtaki.torch.reproducible.shares import Shares, Spent, dealt

SECOND = 1_000_000


def window(shares: Shares, *us: float) -> bool:
    """A window in which each rank needs this long for a part."""
    fastest = min(n * one for n, one in zip(shares.counts, us, strict=True) if n)
    rounds = math.ceil(SECOND / fastest) + 1
    spent = [
        Spent(int(rounds * n * one), rounds * n) for n, one in zip(shares.counts, us, strict=True)
    ]
    return shares.update(spent)


@given(st.integers(1, 40), st.integers(1, 8))
def test_shares_begin_as_parts_are_dealt_without_balance(parts: int, ranks: int) -> None:
    expected = [list(range(rank, parts, ranks)) for rank in range(ranks)]
    assert dealt(Shares(parts, ranks).counts) == expected


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_each_part_is_dealt_once(counts: list[int]) -> None:
    mine = dealt(counts)
    assert [len(each) for each in mine] == counts
    assert sorted(part for each in mine for part in each) == list(range(sum(counts)))


def test_a_rank_of_half_the_speed_gets_half_as_many() -> None:
    shares = Shares(12, 2)
    for _ in range(2):
        assert window(shares, 100_000, 200_000)
    assert shares.counts == [8, 4]


def test_a_window_lasts_a_second_on_each_rank() -> None:
    shares = Shares(12, 2)
    assert not shares.update([Spent(2 * SECOND, 10), Spent(SECOND // 2, 10)])


def test_one_disturbed_window_changes_nothing() -> None:
    shares = Shares(12, 3)
    for us in ((100_000,) * 3, (100_000,) * 3, (100_000, 900_000, 100_000), (100_000,) * 3):
        window(shares, *us)
        assert shares.counts == [4, 4, 4]


def test_speeds_that_differ_little_change_nothing() -> None:
    shares = Shares(12, 2)
    for _ in range(9):
        window(shares, 100_000, 104_000)
    assert shares.counts == [6, 6]


def test_a_rank_without_parts_is_tried_again() -> None:
    shares = Shares(4, 2)
    for _ in range(2):
        window(shares, 10_000, 1_000_000)
    assert shares.counts == [4, 0]
    tried = [window(shares, 10_000, 10_000) and tuple(shares.counts) for _ in range(40)]
    assert (3, 1) in tried
    assert tried[-1] == (2, 2)


@given(
    st.integers(1, 24).flatmap(
        lambda parts: st.tuples(
            st.just(parts), st.lists(st.floats(1e3, 1e6), min_size=1, max_size=min(parts, 5))
        )
    )
)
def test_shares_settle(case: tuple[int, list[float]]) -> None:
    parts, us = case
    shares = Shares(parts, len(us))
    for _ in range(4):
        window(shares, *us)
    settled = list(shares.counts)
    longest = max(n * each for n, each in zip(settled, us, strict=True))
    slowest = max(range(len(us)), key=lambda rank: settled[rank] * us[rank])
    for other in range(len(us)):
        moved = list(settled)
        moved[slowest] -= 1
        moved[other] += 1
        assert max(n * each for n, each in zip(moved, us, strict=True)) >= 0.95 * longest - 1
    for _ in range(8):
        window(shares, *us)
    assert shares.counts == settled
