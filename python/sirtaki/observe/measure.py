"""Measures contenders in turns, so that a disturbance affects all of them; tables of the times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import sirtaki
from sirtaki.observe.contenders import COPY, Array, Contender, Copy, Run, own_contenders
from sirtaki.rendezvous.words import aligned

# Seconds by "median", "p10" and "p90".
Quantiles = dict[str, float]
# By the bytes of the array and by contender.
Timings = dict[int, dict[str, Quantiles]]


@dataclass(frozen=True)
class Plan:
    """How long to measure.

    sizes: bytes, multiples of 4, ascending. rounds: turns of every contender at a size. seconds:
    duration of a contender's turn, which has at least `fewest` repeats. patience: a contender that
    took more seconds for a size skips the larger ones.
    """

    sizes: Sequence[int]
    rounds: int = 8
    seconds: float = 0.04
    fewest: int = 2
    most: int = 1000
    patience: float = math.inf


def sizes_between(smallest: int, largest: int) -> list[int]:
    """Return `smallest` and each fourfold of it up to `largest`, all in bytes."""
    sizes = [smallest]
    while sizes[-1] * 4 <= largest:
        sizes.append(sizes[-1] * 4)
    return sizes


def measure_own(plan: Plan) -> Timings:
    """Measure Sirtaki's levels and the copy, on every rank of a new world.

    Returns the same on all ranks. Raises RuntimeError when a contender gives a wrong sum.
    """
    sirtaki.init()
    try:
        return measure(plan, own_contenders())
    finally:
        sirtaki.shutdown()


def measure(plan: Plan, contenders: Mapping[str, Contender]) -> Timings:
    """Measure these contenders and the copy in the current world; see `measure_own`."""
    copy = Copy(max(plan.sizes))
    timings: Timings = {}
    for size in plan.sizes:
        timings[size] = row = _measure_size(size, plan, contenders, copy)
        slow = {name for name, seconds in row.items() if seconds["median"] > plan.patience}
        contenders = {name: contenders[name] for name in contenders if name not in slow}
    return timings


def _measure_size(
    size: int, plan: Plan, contenders: Mapping[str, Contender], copy: Copy
) -> dict[str, Quantiles]:
    data = np.ones(size // 4, np.float32)
    runs = {name: contender(data) for name, contender in contenders.items()}
    for name, run in runs.items():
        _check(name, run, data)
    data.fill(0)  # stays zero, however often it is summed
    runs[COPY] = copy(data)
    repeats = {name: _repeats(run, plan) for name, run in runs.items()}
    return interleave(runs, repeats, plan.rounds)


def interleave(
    runs: Mapping[str, Run], repeats: Mapping[str, int], rounds: int
) -> dict[str, Quantiles]:
    """Let the contenders take turns on all ranks; return the quantiles of each one's repeats.

    The first repeat of a turn does not count: it starts with another contender's caches. A rank
    without a part in a contender's turn returns no times there, and sleeps.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    for _ in range(rounds):
        for name in order:
            sirtaki.barrier()
            seconds[name] += runs[name](1 + repeats[name])[1:]
        order.append(order.pop(0))
    return {name: _quantiles(values) for name, values in seconds.items()}


def _check(name: str, run: Run, data: Array) -> None:
    data.fill(1)
    sirtaki.barrier()
    run(1)
    if not np.all(data == sirtaki.size()):
        raise RuntimeError(
            f"rank {sirtaki.rank()}: {name} summed {data.nbytes} bytes of ones over "
            f"{sirtaki.size()} ranks to {data.min()} ... {data.max()}"
        )


def _repeats(run: Run, plan: Plan) -> int:
    """Return how often to repeat in one turn, the same on all ranks."""
    sirtaki.barrier()
    estimate = statistics.median(run(5)[1:])
    slowest = sirtaki.allreduce(np.array([estimate]), op=sirtaki.Max)[0]
    return int(np.clip(plan.seconds / slowest, plan.fewest, plan.most))


def _quantiles(seconds: Sequence[float]) -> Quantiles:
    """Return quantiles of one rank's repeats, each the largest among all ranks."""
    mine = np.quantile(seconds, [0.5, 0.1, 0.9]) if seconds else np.zeros(3)
    median, p10, p90 = sirtaki.allreduce(mine, op=sirtaki.Max).tolist()
    return {"median": median, "p10": p10, "p90": p90}


_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def show_bytes(count: int) -> str:
    """Return for example "64 MiB"."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count} B"


def show_seconds(seconds: float) -> str:
    """Return for example "1.8 us", with three digits."""
    if seconds < 1e-3:
        return f"{_three_digits(seconds * 1e6)} us"
    return f"{_three_digits(seconds * 1e3)} ms"


def show_rate(count: int, seconds: float) -> str:
    """Return GB/s of `count` payload bytes, for example "4.31"."""
    return _three_digits(count / seconds / 1e9)


def show_cells(count: int, seconds: Quantiles | None) -> tuple[str, str]:
    """Return the median and its GB/s, or dashes without a measurement."""
    if seconds is None:
        return "-", "-"
    return show_seconds(seconds["median"]), show_rate(count, seconds["median"])


def _three_digits(value: float) -> str:
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def table(timings: Timings) -> list[str]:
    """Return lines: for every size each contender's median time and its GB/s of payload.

    A contender that was not measured at a size has a dash there.
    """
    names = list(next(iter(timings.values())))
    rows = [["", *(cell for name in names for cell in (name, "GB/s"))]]
    for size, by_name in timings.items():
        cells = [show_cells(size, by_name.get(name)) for name in names]
        rows.append([show_bytes(size), *(text for cell in cells for text in cell)])
    return aligned(rows)
