"""One rank of small_sums.py; rank 0 writes the seconds into a file that it is told.

python benchmarks/small_sums_rank.py FILE
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

import sirtaki as hvd

IN_A_ROW, AT_ONCE = "one after another", "begun at once"

_SIZES = (4, 4 << 10, 16 << 10)
_WARM = 50
_REPEATS = 400
_MEETINGS = 200
_PERIOD = 4e-3


def main() -> None:
    hvd.init()
    result = {}
    for size in _SIZES:
        data = np.zeros(size // 4, np.float32)
        for _ in range(_WARM):
            total(data)
        result[str(size)] = {IN_A_ROW: in_a_row(data), AT_ONCE: at_once(data)}
    if hvd.rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(result))
    hvd.shutdown()


def total(data: np.ndarray) -> None:
    hvd.allreduce_(data, op=hvd.Sum, name=f"of {data.nbytes}")


def in_a_row(data: np.ndarray) -> float:
    """Return the seconds of a sum among many: their mean, as a long call may spare the next one."""
    begin = time.perf_counter()
    for _ in range(_REPEATS):
        total(data)
    return (time.perf_counter() - begin) / _REPEATS


def at_once(data: np.ndarray) -> float:
    """Return the median seconds from a moment at which all ranks begin until the last has a sum.

    The virtual hosts have one clock.
    """
    first = hvd.broadcast(np.array([time.perf_counter() + 0.05]), root_rank=0, name="first")[0]
    taken = np.empty(_MEETINGS)
    for number in range(_MEETINGS):
        begin = first + number * _PERIOD
        time.sleep(max(0.0, begin - time.perf_counter()))
        total(data)
        taken[number] = time.perf_counter() - begin
    slowest = hvd.allreduce(taken, op=hvd.Max, name=f"slowest {data.nbytes}")
    return float(np.median(slowest))


if __name__ == "__main__":
    main()
