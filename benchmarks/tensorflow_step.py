"""A training step in a `tf.function`, and reductions alone, beside MultiWorkerMirroredStrategy.

python benchmarks/tensorflow_step.py        (needs tools/requirements-frameworks.txt)
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from compiled_step import Timings, measure, over_adding, parse, report
from targets import Check, at_least, at_most

from sirtaki.observe.machine import machine_facts

RANK = Path(__file__).resolve().with_name("tensorflow_rank.py")
PEER = "MultiWorkerMirroredStrategy"
MOST_OVER_ADDING = 150e-6


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments, __doc__.splitlines()[0])
    facts = machine_facts()
    timings = {
        **measure(RANK, "ours", args),
        **measure(RANK, "peer", args, TF_WORKERS=",".join(free_addresses(2))),
    }
    report("tensorflow_step", arguments, facts, timings, check(timings))
    return 0


def free_addresses(count: int) -> list[str]:
    """Return addresses of this host that nobody listens on."""
    with ExitStack() as held:
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]


def check(timings: Timings) -> list[Check]:
    """Return the targets."""
    median = {name: taken["median"] for name, taken in timings.items()}
    checks = [
        at_most(
            f"{what} on 2 ranks against one process alone",
            most,
            median[f"{what}, Sirtaki"] / median[f"{what}, one process"],
        )
        for what, most in (("step", 1.3), ("100 tensors", 2.0))
    ]
    checks.append(over_adding(timings, MOST_OVER_ADDING))
    for what, least in (("step", 4), ("4 MiB", 5)):
        times = median[f"{what}, {PEER}"] / median[f"{what}, Sirtaki"]
        checks.append(at_least(f"{what}: speed against {PEER}", least, times))
    return checks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
