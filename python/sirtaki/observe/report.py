"""Tables of measurements."""

from __future__ import annotations

from sirtaki.observe.measure import Quantiles, Timings
from sirtaki.rendezvous.words import aligned

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
