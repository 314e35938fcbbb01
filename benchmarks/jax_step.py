"""A compiled training step in JAX, and reductions alone, beside JAX's own processes.

python benchmarks/jax_step.py        (needs tools/requirements-jax.txt)
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from jax_rank import WIDTH
from output import RESULTS, write_result
from targets import Check

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import Quantiles
from sirtaki.observe.report import aligned, show_seconds

RANK = Path(__file__).resolve().with_name("jax_rank.py")
MOST_OF_ALONE = 1.3
MOST_OVER_ADDING = 120e-6


def main(arguments: Sequence[str]) -> int:
    args = _parse(arguments)
    facts = machine_facts()
    timings = {
        name: quantiles(seconds)
        for mode in ("ours", "peer")
        for name, seconds in measure(mode, args.steps, args.width).items()
    }
    checks = check(timings)
    rows = [["2 ranks", "median", "10 %", "90 %"]]
    for name, taken in timings.items():
        rows.append([name, *(show_seconds(taken[key]) for key in ("median", "p10", "p90"))])
    print("\n".join([*aligned(rows), "", *(each.line() for each in checks)]))
    result = {
        "benchmark": "jax_step",
        "command": shlex.join(["python", "benchmarks/jax_step.py", *arguments]),
        "machine": facts,
        "width": args.width,
        "timings": timings,
        "targets": [asdict(each) for each in checks],
    }
    write_result(Path(args.output) / "jax_step.json", result)
    return 0


def measure(mode: str, steps: int, width: int) -> dict[str, list[float]]:
    """Run jax_rank.py on two ranks; return what the first of them has measured."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "sirtaki.launch.cli", "run", "-np", "2"]
        rank = [sys.executable, str(RANK), mode, folder, str(steps), str(width)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "JAX_COORDINATOR": coordinator}
        subprocess.run([*run, *rank], check=True, env=environment)
        timings: dict[str, list[float]] = json.loads((Path(folder) / f"{mode}.json").read_text())
    return timings


def quantiles(seconds: Sequence[float]) -> Quantiles:
    median, p10, p90 = np.quantile(seconds, [0.5, 0.1, 0.9]).tolist()
    return {"median": median, "p10": p10, "p90": p90}


def check(timings: dict[str, Quantiles]) -> list[Check]:
    """Return the targets."""
    median = {name: taken["median"] for name, taken in timings.items()}
    ratio = median["step, Sirtaki"] / median["step, one process"]
    over = median["small, Sirtaki"] - median["x + 1"]
    checks = [
        Check(
            f"a step of 2 ranks at most {MOST_OF_ALONE:g} of one process alone",
            f"{ratio:.2f}",
            ratio <= MOST_OF_ALONE,
        ),
        Check(
            f"a small reduction at most {show_seconds(MOST_OVER_ADDING)} over x + 1",
            show_seconds(max(over, 0)),
            over <= MOST_OVER_ADDING,
        ),
    ]
    for what in ("step", "4 MiB"):
        times = median[f"{what}, JAX's processes"] / median[f"{what}, Sirtaki"]
        target = f"{what}: at least 4 times as fast as JAX's own processes"
        checks.append(Check(target, f"{times:.2f}", times >= 4))
    return checks


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20, help="training steps of each (20)")
    parser.add_argument("--width", type=int, default=WIDTH, help=f"of each layer ({WIDTH})")
    parser.add_argument("--output", default=str(RESULTS), help="folder of the JSON file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
