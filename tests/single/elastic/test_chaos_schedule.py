"""The schedule of `make chaos` follows from its seed alone, and comes to every kind of fault."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import PAUSE_SECONDS, Kind, schedule

seeds = st.integers(0, 1 << 32)
seconds = st.floats(0, 3600)


@given(seeds, seconds)
def test_a_seed_replays_its_schedule_and_a_longer_run_begins_with_it(
    seed: int, length: float
) -> None:
    faults = schedule(seed, length)
    assert faults == schedule(seed, length)
    assert schedule(seed, 2 * length)[: len(faults)] == faults


@given(seeds, seconds)
def test_a_fault_comes_every_ten_seconds_and_none_after_the_end(seed: int, length: float) -> None:
    times = [fault.at for fault in schedule(seed, length)]
    assert times == [PAUSE_SECONDS * number for number in range(1, len(times) + 1)]
    assert len(times) == int(length / PAUSE_SECONDS)


@given(seeds, st.integers(0, 200))
def test_every_kind_comes_before_any_comes_again(seed: int, count: int) -> None:
    kinds = Counter(fault.kind for fault in schedule(seed, PAUSE_SECONDS * count))
    counts = [kinds[kind] for kind in Kind]
    assert max(counts) - min(counts) <= 1


def test_seeds_differ() -> None:
    assert len({tuple(schedule(seed, 120)) for seed in range(20)}) == 20
