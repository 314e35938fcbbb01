"""What `sirtaki predict` has said of the numbers of ranks that were measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from sirtaki.observe.scaling.causes import Point
from sirtaki.rendezvous.words import parse_json

# By the number of ranks and by exchange, the seconds of a step.
Predicted = Mapping[int, Mapping[str, float]]


def read(path: str) -> Predicted:
    """Return the steps in a file that `sirtaki predict --json` has printed.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is another file.
    """
    found: dict[int, dict[str, float]] = defaultdict(dict)
    try:
        told = parse_json(Path(path).read_bytes())
        for one in told["forecasts"]:
            ranks = int(told["ranks"]) * int(one["hosts"])
            found[ranks][str(one["exchange"])] = float(one["step"])
    except (ValueError, LookupError, TypeError) as error:
        what = f"{path}: not what `sirtaki predict … --json` prints ({error!r})"
        raise ValueError(what) from None
    return found


def lines(points: Sequence[Point], predicted: Predicted) -> list[str]:
    """Return for each number of ranks what was predicted, and how much more was measured."""
    shown = []
    for point in points:
        of_ranks = predicted.get(point.ranks, {})
        each = (
            f"{exchange} {step * 1e3:.1f} ms ({point.seconds / step - 1:+.0%})"
            for exchange, step in of_ranks.items()
        )
        if of_ranks:
            shown.append(f"{point.ranks} ranks, predicted (and measured): {', '.join(each)}")
    return shown
