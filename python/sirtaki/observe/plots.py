"""Plots of measurements, and of a trace's findings."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from sirtaki.observe.measure import Timings, show_bytes
from sirtaki.observe.trace.report import Findings


def draw_timings(timings: Timings, ranks: int, path: str) -> None:
    """Draw the median times by size, a line for each contender.

    Args:
        timings: Quantiles of seconds by size in bytes and contender.
        ranks: How many took part.
        path: The file; its extension selects the format.

    Raises:
        ValueError: matplotlib does not support the extension.
    """
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot(
        xscale="log", yscale="log", xlabel="bytes of a rank", ylabel="median time, microseconds"
    )
    for name in next(iter(timings.values())):
        measured = [(size, each[name]) for size, each in timings.items() if each.get(name)]
        sizes = [size for size, _ in measured]
        axes.plot(sizes, [1e6 * each["median"] for _, each in measured], marker=".", label=name)
    axes.set_title(f"allreduce of float32 on {ranks} ranks")
    axes.xaxis.set_major_locator(FixedLocator(list(timings)[::2]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: show_bytes(int(size))))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def draw_trace(found: Findings, path: str) -> None:
    """Draw the times of each rank.

    Args:
        found: The result of `examine`.
        path: The file; its extension selects the format.

    Raises:
        ValueError: matplotlib does not support the extension.
        OSError: The file cannot be written.
    """
    figure = Figure(figsize=(7, 1.5 + 0.35 * len(found.times)), layout="constrained")
    axes = figure.add_subplot(xlabel="share of the time, %", ylabel="rank")
    names = [
        f"{one.rank} (straggler)" if one.rank in found.stragglers else str(one.rank)
        for one in found.times
    ]
    left = [0.0] * len(names)
    parts = {
        "computes": [one.computing or 0.0 for one in found.times],
        "waits while data move": [one.moving for one in found.times],
        "waits for other ranks": [one.exposed_waiting or 0.0 for one in found.times],
        "not seen": [one.whole if one.computing is None else 0.0 for one in found.times],
    }
    if not any(parts["not seen"]):
        del parts["not seen"]
    for label, seconds in parts.items():
        pairs = zip(seconds, found.times, strict=True)
        shares = [100 * part / (one.whole or 1) for part, one in pairs]
        axes.barh(names, shares, left=left, label=label)
        left = [before + share for before, share in zip(left, shares, strict=True)]
    axes.invert_yaxis()
    axes.set_title(f"job {found.job}, {found.seconds:.2f} s")
    figure.legend(loc="outside lower center", ncols=len(parts))
    figure.savefig(path)
