"""What a trace costs a step of 10 ms with 20 operations, on two ranks.

python benchmarks/trace_step.py
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from output import RESULTS, write_result
from targets import Check

import sirtaki as hvd
from sirtaki.core.tracing import recording
from sirtaki.core.world.state import current_world
from sirtaki.launch.api import run
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.words import aligned

_STEP_SECONDS = 10e-3
_OPERATIONS = 20
_STEPS = 100
_MOST = 1.01


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=40, help="of a second without and one with (40)"
    )
    parser.add_argument("--output", default=str(RESULTS), help="folder of trace_step.json")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    rounds: list[dict[str, float]] = run(_measure, (args.rounds,), num_proc=2)[0]
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    ratio = statistics.median(one["with"] / one["without"] for one in rounds)
    target = f"a step of 10 ms takes at most {_MOST:.2f} times as long with a trace"
    check = Check(target, f"{ratio:.4f}", ratio <= _MOST)
    rows = [[f"{name} a trace", show_seconds(seconds)] for name, seconds in medians.items()]
    print(f"a step, medians of {args.rounds} rounds in turn", *aligned(rows), sep="\n")
    print(f"median of the rounds' ratios: {ratio:.4f}", check.line(), sep="\n")
    result = {
        "benchmark": "trace_step",
        "command": shlex.join(["python", "benchmarks/trace_step.py", *arguments]),
        "machine": facts,
        "rounds": rounds,
        "ratio": ratio,
        "targets": [vars(check)],
    }
    write_result(Path(args.output) / "trace_step.json", result)
    return 0


def _measure(rounds: int) -> list[dict[str, float]]:
    """Return the median step of each round, without a trace and with one."""
    hvd.init()
    ask = recording.answers(lambda: [current_world()])
    turn = statistics.median(_timed(_work_of(1), 1000))
    alone = statistics.median(_timed(_step(_work_of(1)), _STEPS))
    step = _step(_work_of(max(1, round((_STEP_SECONDS - alone) / turn))))
    _timed(step, _STEPS)
    found = []
    for number in range(rounds):
        taken = {}
        for traced in (True, False) if number % 2 else (False, True):
            if traced:
                ask[Question.TRACE_START]()
            hvd.barrier()
            taken["with" if traced else "without"] = statistics.median(_timed(step, _STEPS))
            if traced:
                ask[Question.TRACE_STOP]()
                while ask[Question.TRACE_TAKE]()["more"]:  # type: ignore[index]
                    pass
        found.append(taken)
    hvd.shutdown()
    return found


def _work_of(turns: int) -> Callable[[], None]:
    """Return a computation that is always the same, however long it takes."""
    data = np.ones(10_000, np.float32)

    def work() -> None:
        for _ in range(turns):
            data.sum()

    return work


def _step(work: Callable[[], None]) -> Callable[[], None]:
    gradients = [np.ones(1000, np.float32) for _ in range(_OPERATIONS)]

    def step() -> None:
        with hvd.trace("compute"):
            work()
        handles = [
            hvd.allreduce_async(each, name=f"grad.{number}")
            for number, each in enumerate(gradients)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    return step


def _timed(step: Callable[[], None], count: int) -> list[float]:
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        step()
        taken.append(time.perf_counter() - begun)
    return taken


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
