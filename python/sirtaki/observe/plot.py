"""Plots of measurements."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from sirtaki.observe.measure import Timings
from sirtaki.observe.report import show_bytes


def draw(timings: Timings, ranks: int, path: str) -> None:
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
