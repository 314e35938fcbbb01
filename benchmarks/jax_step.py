"""A compiled training step in JAX, and reductions alone, beside JAX's own processes.

python benchmarks/jax_step.py        (needs tools/requirements-frameworks.txt)
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from compiled_step import Timings, measure, over_adding, parse, report
from targets import Check, at_least, at_most

from sirtaki.observe.machine import machine_facts

RANK = Path(__file__).resolve().with_name("jax_rank.py")
MOST_OVER_ADDING = 120e-6


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments, __doc__.splitlines()[0])
    facts = machine_facts()
    with socket.create_server(("127.0.0.1", 0)) as free:
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    timings = {
        **measure(RANK, "ours", args),
        **measure(RANK, "peer", args, JAX_COORDINATOR=coordinator),
    }
    report("jax_step", arguments, facts, timings, check(timings))
    return 0


def check(timings: Timings) -> list[Check]:
    """Return the targets."""
    median = {name: taken["median"] for name, taken in timings.items()}
    ratio = median["step, Sirtaki"] / median["step, one process"]
    checks = [
        at_most("a step of 2 ranks against one process alone", 1.3, ratio),
        over_adding(timings, MOST_OVER_ADDING),
    ]
    for what in ("step", "4 MiB"):
        times = median[f"{what}, JAX's processes"] / median[f"{what}, Sirtaki"]
        checks.append(at_least(f"{what}: speed against JAX's own processes", 4, times))
    return checks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
