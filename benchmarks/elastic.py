"""How long training stands still when one of 4 processes is lost, beside torchrun's restarts.

And what `every_step` costs in the step of an MLP of 50 million parameters; then, on virtual hosts,
how much work is done under faults, and how long a new world takes.

python benchmarks/elastic.py      (a small model of PyTorch on CPUs)
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from elastic_hosts import cut_link_seconds, new_world_seconds
from output import RESULTS, write_result
from targets import Check, at_most

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.rendezvous.words import aligned

_RANK = str(Path(__file__).with_name("elastic_rank.py"))
_RUN = "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())"
_OURS = (sys.executable, "-c", _RUN, "-np", "4", "--min-np", "2")
_CONTENDERS = {
    "the three others go on": (*_OURS, sys.executable, _RANK, "ours"),
    "a spare takes the place": (*_OURS, "--spares", "1", sys.executable, _RANK, "ours"),
    "one is stopped, unresponsive after 1 s": (
        *(*_OURS, "--unresponsive-seconds", "1", sys.executable, _RANK, "stopped"),
    ),
    "torchrun --max-restarts": (
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node=4", "--max-restarts=1", _RANK, "torchrun"),
    ),
}
_STEP_RANK = str(Path(__file__).with_name("elastic_step_rank.py"))
_STEP = (sys.executable, "-c", _RUN, "-np", "2", "--min-np", "1", sys.executable, _STEP_RANK)
_LIMIT_SECONDS = 1.0
_LIMIT_SHARE = 0.005
_LIMIT_ALLOCATED = 0.01
_JOB_SECONDS = 60


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="turns of each contender (20)")
    parser.add_argument("--no-hosts", action="store_true", help="leave out virtual hosts")
    parser.add_argument("--output", default=str(RESULTS), help="folder of elastic.json")
    args = parser.parse_args(arguments)
    taken: dict[str, list[float]] = {name: [] for name in _CONTENDERS}
    for _ in range(args.rounds):
        for name, command in _CONTENDERS.items():
            taken[name].append(standstill(command))
    # A job that does not come back stands still for ever.
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    cost = every_step_cost()
    checks = [*check(medians), *check_cost(cost)]
    checks += [] if args.no_hosts else check_hosts()
    print("from the loss of one of 4 processes to the next step of the others")
    shown = {n: show_seconds(m) if m < math.inf else "failed" for n, m in medians.items()}
    print(*aligned([[name, text] for name, text in shown.items()]), sep="\n")
    print("\n".join(each.line() for each in checks))
    result = {
        "benchmark": "elastic",
        "command": shlex.join(["python", "benchmarks/elastic.py", *arguments]),
        "machine": machine_facts(),
        "cases": {
            name: {"median": shown[name], "all": list(map(str, taken[name]))} for name in taken
        },
        "every_step": cost,
        "targets": [asdict(each) for each in checks],
    }
    write_result(Path(args.output) / "elastic.json", result)
    return 0


def check(medians: dict[str, float]) -> list[Check]:
    ours = [name for name in medians if not name.startswith("torchrun")]
    return [
        at_most(f"{name}, seconds,", _LIMIT_SECONDS + ("unresponsive" in name), medians[name])
        for name in ours
    ]


def check_cost(cost: dict[str, float]) -> list[Check]:
    allocated = cost["allocated_bytes"] / cost["model_bytes"]
    return [
        at_most("every_step, share of a step,", _LIMIT_SHARE, cost["commit"] / cost["step"]),
        at_most("every_step, allocated, share of the model,", _LIMIT_ALLOCATED, allocated),
    ]


def every_step_cost() -> dict[str, float]:
    """Run a job of two ranks; return seconds of a step and of its commit, and bytes."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FOLDER": folder, "OMP_NUM_THREADS": "1"}
        subprocess.run(_STEP, env=environment, timeout=5 * _JOB_SECONDS, check=True)
        found: dict[str, float] = json.loads(Path(folder, "cost").read_text())
    return found


def check_hosts() -> list[Check]:
    return [
        at_most(
            "a host is cut off, unresponsive after 1 s: seconds to the new world,",
            1 + _LIMIT_SECONDS,
            cut_link_seconds(),
        ),
        at_most(
            "16 processes on 4 virtual hosts, seconds from the decision to the new world,",
            _LIMIT_SECONDS,
            new_world_seconds(),
        ),
    ]


def standstill(command: Sequence[str]) -> float:
    """Run a job; return the seconds from the loss of a process to the next step.

    Infinity where the job fails or hangs, as Gloo does after torchrun's restart with PyTorch 2.13.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FOLDER": folder, "OMP_NUM_THREADS": "1"}
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, env=environment, **silent) as job:
            try:
                code = job.wait(_JOB_SECONDS)
            except subprocess.TimeoutExpired:
                # So that it ends its processes, which would disturb the next job.
                job.terminate()
                return math.inf
        if code != 0:
            return math.inf
        again, killed = (float(Path(folder, name).read_text()) for name in ("again", "killed"))
    return again - killed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
