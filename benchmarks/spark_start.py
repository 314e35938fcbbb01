"""`spark.run` of nothing beside the barrier stage that it runs in, on Spark's `local[2]`.

.venv-spark/bin/python benchmarks/spark_start.py

The stage alone starts two tasks that return at once. Ours also start a process each, as ranks, and
hand back what it returns; the last contender's ranks form a world and reduce an array.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from output import RESULTS, write_turns
from pyspark.sql import SparkSession
from targets import at_most

import horovod.spark
from sirtaki.observe.machine import machine_facts

_MOST_SECONDS = 2.0
_STAGE, _NOTHING, _WORLD = "stage alone", "spark.run of nothing", "spark.run of a world"


def nothing() -> None:
    pass


def world() -> float:
    import numpy as np

    import sirtaki as hvd

    hvd.init()
    return float(hvd.allreduce(np.ones(4), op=hvd.Sum).sum())


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    facts = machine_facts()
    context = _session().sparkContext

    def stage() -> None:
        tasks = context.parallelize(range(2), 2).barrier()
        assert len(tasks.mapPartitions(lambda rows: rows).collect()) == 2

    def of_world() -> None:
        assert horovod.spark.run(world, num_proc=2) == [8.0, 8.0]

    contenders: dict[str, Callable[[], Any]] = {
        _STAGE: stage,
        _NOTHING: lambda: horovod.spark.run(nothing, num_proc=2),
        _WORLD: of_world,
    }
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(args.rounds + 1):
        for name, work in contenders.items():
            began = time.perf_counter()
            work()
            # In the first turn Spark starts the workers that it keeps.
            taken[name] += [time.perf_counter() - began] * bool(turn)
    context.stop()
    above = statistics.median(taken[_NOTHING]) - statistics.median(taken[_STAGE])
    check = at_most("seconds of spark.run of nothing above the stage alone", _MOST_SECONDS, above)
    write_turns(Path(args.output) / "spark_start.json", arguments, facts, taken, check)
    return 0


def _session() -> Any:
    # Spark's workers run this Python.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contender (9)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of spark_start.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
