"""`sirtaki caffe plot`: the curves of training logs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sirtaki_caffe.commands.flags import ToolParser
from sirtaki_caffe.commands.tools.curves_svg import svg_of
from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.files import reason, written_beside

_NUMBER = r"([-+]?(?:nan|inf|[0-9]*\.?[0-9]+(?:e[-+]?[0-9]+)?))"
_RANK = re.compile(r"\[(\d+)\](?:<\w+>:)? ?")
_LOSS = re.compile(rf"Iteration (\d+)(?: \([^)]*\))?, loss = {_NUMBER}")
_RATE = re.compile(rf"Iteration (\d+), lr = {_NUMBER}")
_TESTING = re.compile(r"Iteration (\d+), Testing net \(#(\d+)\)")
_OUTPUT = re.compile(rf"Test net output #\d+: (\S+) = {_NUMBER}")
_SIZE = (9, 3.2)  # of a panel, in inches

#: Iterations, and a value at each.
Curve = tuple[list[int], list[float]]


@dataclass
class Curves:
    """The data of a log.

    Args:
        loss: The training loss.
        rate: The learning rate.
        tests: The outputs of test nets: (number of the net, name of the output).
    """

    loss: Curve = field(default_factory=lambda: ([], []))
    rate: Curve = field(default_factory=lambda: ([], []))
    tests: dict[tuple[int, str], Curve] = field(default_factory=dict)


def main(arguments: Sequence[str]) -> int:
    """Run the tool; return the exit code."""
    parser = ToolParser("Plot loss, learning rate and test outputs of logs of caffe train.")
    parser.add_argument("log", nargs="+", help="a log")
    parser.add_argument("output", help="the picture, .png, .svg or .pdf")
    args = parser.read(arguments)
    logs = {path: _read(path) for path in args.log}
    plot(logs, Path(args.output))
    return 0


def read_log(lines: Iterable[str]) -> Curves:
    """Return the curves of a log; if it mixes several processes, those of the first one."""
    curves = Curves()
    first: str | None = None
    testing = (0, 0)
    for line in lines:
        rank = _RANK.match(line)
        if rank:
            first = first or rank.group(1)
            if rank.group(1) != first:
                continue
        if match := _LOSS.search(line):
            _add(curves.loss, int(match.group(1)), match.group(2))
        elif match := _RATE.search(line):
            _add(curves.rate, int(match.group(1)), match.group(2))
        elif match := _TESTING.search(line):
            testing = (int(match.group(1)), int(match.group(2)))
        elif match := _OUTPUT.search(line):
            curve = curves.tests.setdefault((testing[1], match.group(1)), ([], []))
            _add(curve, testing[0], match.group(2))
    return curves


def plot(logs: dict[str, Curves], output: Path) -> None:
    """Draw the curves of logs, with a panel each for losses, other outputs and the learning rate.

    A .svg is drawn here, other formats by matplotlib.

    Raises:
        CaffeError: There is nothing to draw, matplotlib is missing, or the file is not written.
    """
    panels = {name: lines for name, lines in _panels(logs).items() if lines}
    if not panels:
        raise CaffeError(f"there are no curves in {', '.join(logs)}: give the log of a training")
    if output.suffix == ".svg":
        with written_beside(output) as beside:
            beside.write_text(svg_of(panels), encoding="utf-8")
        return
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CaffeError(
            f"{output} needs matplotlib: pip install 'sirtaki-caffe[plot]', or write a .svg"
        ) from error
    figure = Figure(figsize=(_SIZE[0], _SIZE[1] * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, (name, lines) in zip(axes, panels.items(), strict=True):
        for label, (iterations, values) in lines:
            axis.plot(iterations, values, label=label, marker="." if len(values) < 50 else "")
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    axes[-1].set_xlabel("iteration")
    with written_beside(output) as beside:
        _save(figure, beside, output)


def _save(figure: Any, beside: Path, output: Path) -> None:
    kind = output.suffix.removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise CaffeError(f"{output}: plot writes .png, .svg and .pdf")
    figure.savefig(beside, format=kind, dpi=120)


def _panels(logs: dict[str, Curves]) -> dict[str, list[tuple[str, Curve]]]:
    panels: dict[str, list[tuple[str, Curve]]] = {"loss": [], "test": [], "learning rate": []}
    for path, curves in logs.items():
        label = f"{Path(path).name}: " if len(logs) > 1 else ""
        many = len({net for net, _ in curves.tests}) > 1
        if curves.loss[0]:
            panels["loss"].append((f"{label}train", curves.loss))
        for (net, name), curve in curves.tests.items():
            panel = "loss" if "loss" in name.lower() else "test"
            panels[panel].append((f"{label}test{f' #{net}' * many} {name}", curve))
        if curves.rate[0]:
            panels["learning rate"].append((f"{label}lr", curves.rate))
    return panels


def _add(curve: Curve, iteration: int, value: str) -> None:
    number = float(value)
    curve[0].append(iteration)
    curve[1].append(number if math.isfinite(number) else math.nan)


def _read(path: str) -> Curves:
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return read_log(file)
    except OSError as error:
        raise CaffeError(f"cannot read {path}: {reason(error)}") from error
