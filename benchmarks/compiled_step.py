"""What the benchmarks of compiled steps share: two ranks of a file, a table, a JSON file."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from output import RESULTS, write_result
from targets import Check

from sirtaki.observe.measure import Quantiles, show_seconds
from sirtaki.rendezvous.words import aligned

WIDTH = 4096  # of each of three layers: 50 M parameters

Timings = dict[str, Quantiles]


def parse(arguments: Sequence[str], description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=20, help="training steps of each (20)")
    parser.add_argument("--width", type=int, default=WIDTH, help=f"of each layer ({WIDTH})")
    parser.add_argument("--output", default=str(RESULTS), help="folder of the JSON file")
    return parser.parse_args(arguments)


def measure(rank_file: Path, mode: str, args: argparse.Namespace, **variables: str) -> Timings:
    """Run a file on two ranks; return what the first of them has measured."""
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "sirtaki.launch.cli", "run", "-np", "2"]
        rank = [sys.executable, str(rank_file), mode, folder, str(args.steps), str(args.width)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
        subprocess.run([*run, *rank], check=True, env=environment)
        seconds = json.loads((Path(folder) / f"{mode}.json").read_text())
    return {name: quantiles(taken) for name, taken in seconds.items()}


def quantiles(seconds: Sequence[float]) -> Quantiles:
    median, p10, p90 = np.quantile(seconds, [0.5, 0.1, 0.9]).tolist()
    return {"median": median, "p10": p10, "p90": p90}


def over_adding(timings: Timings, most: float) -> Check:
    """Return whether a small reduction takes little more than adding one does."""
    over = timings["small, Sirtaki"]["median"] - timings["x + 1"]["median"]
    target = f"a small reduction at most {show_seconds(most)} over x + 1"
    return Check(target, show_seconds(max(over, 0)), over <= most)


def report(
    benchmark: str,
    arguments: Sequence[str],
    facts: dict[str, object],
    timings: Timings,
    checks: Sequence[Check],
) -> None:
    """Print the table, and write it to the benchmark's JSON file."""
    args = parse(arguments, benchmark)
    rows = [["2 ranks", "median", "10 %", "90 %"]]
    for name, taken in timings.items():
        rows.append([name, *(show_seconds(taken[key]) for key in ("median", "p10", "p90"))])
    print("\n".join([*aligned(rows), "", *(each.line() for each in checks)]))
    result = {
        "benchmark": benchmark,
        "command": shlex.join(["python", f"benchmarks/{benchmark}.py", *arguments]),
        "machine": facts,
        "width": args.width,
        "timings": timings,
        "targets": [asdict(each) for each in checks],
    }
    write_result(Path(args.output) / f"{benchmark}.json", result)
