"""What an elastic job gets done while processes are killed, hosts vanish and links are cut.

python benchmarks/goodput.py        (needs root: it makes virtual hosts)
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from output import RESULTS, write_result
from targets import at_least

from sirtaki.observe.machine import machine_facts
from sirtaki.rendezvous.words import aligned

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.chaos.harm import Harm
from tests.chaos.job import PARTS, TRAIN, Job, hosts_of_own_memory
from tests.chaos.schedule import Kind, schedule
from tests.hosts.bed import reason_to_skip

_MINUTE = 60.0
_SEED = 1
_KINDS = (Kind.KILLED, Kind.HOST_GONE, Kind.CUT)
_SLOTS, _RANKS = (4, 4, 4), 8
_FLAGS = ("--spares", str(sum(_SLOTS) - _RANKS), "--unresponsive-seconds", "1")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=30, help="with faults (30)")
    parser.add_argument("--real-minutes", type=int, default=5, help="where it computes (5)")
    parser.add_argument("--faults-a-minute", type=float, default=2.0, help="(2)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of goodput.json")
    args = parser.parse_args(arguments)
    if (reason := reason_to_skip()) is not None:
        raise SystemExit(f"no virtual hosts here: {reason}")
    facts = machine_facts()
    pause = _MINUTE / args.faults_a_minute
    cases = {
        "computing is emulated by sleeping": measured(TRAIN, args.minutes, pause),
        "LeNet, reproducible=True": measured(PARTS, args.real_minutes, pause),
    }
    print(*aligned(rows(cases)), sep="\n")
    share = next(iter(cases.values()))["goodput"]
    checks = [at_least("goodput where computing is emulated", 0.95, share)]
    print(*(check.line() for check in checks), sep="\n")
    result = {
        "benchmark": "goodput",
        "command": shlex.join(["python", "benchmarks/goodput.py", *arguments]),
        "machine": facts,
        "cases": cases,
        "targets": [asdict(check) for check in checks],
    }
    write_result(Path(args.output) / "goodput.json", result)
    return 0


def measured(program: str, minutes: int, pause: float) -> dict[str, Any]:
    """Return what a job does in minutes with faults, of what it does in as many without.

    The job fails if a sample is lost or repeated, or if an epoch ends with other bits.
    """
    with tempfile.TemporaryDirectory() as folder, hosts_of_own_memory(3, Path(folder)) as bed:
        job = Job(bed, Path(folder, "job"), *_FLAGS, slots=_SLOTS, size=_RANKS, program=program)
        harm = Harm(bed, job.folder)
        job.await_epoch(2)
        plain = _epochs(job, harm, 2 * _MINUTE) / 2
        faults = schedule(_SEED, _MINUTE * minutes, _KINDS, pause)
        done = 0
        for fault in faults:
            print(f"{fault.at:5.0f} s  {fault.kind.value}: {harm.do(fault)}", flush=True)
            done += _epochs(job, harm, pause)
        harm.undo_all()
        job.stop()
        job.close()
        harm.clean_up()
    return {
        "faults": len(faults),
        "minutes": minutes,
        "epochs_a_minute": plain,
        "with_faults": done / minutes,
        "goodput": done / minutes / plain,
        "samples_lost_or_repeated": 0,
    }


def _epochs(job: Job, harm: Harm, seconds: float) -> int:
    before, end = job.epochs, time.monotonic() + seconds
    while time.monotonic() < end:
        harm.undo_what_is_due()
        job.require_life()
        time.sleep(0.1)
    return job.epochs - before


def rows(cases: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return the table."""
    found = [["", "Faults", "Epochs a minute", "With faults", "Goodput", "Samples lost, repeated"]]
    for name, case in cases.items():
        rates = [f"{case[key]:.1f}" for key in ("epochs_a_minute", "with_faults")]
        faults = f"{case['faults']} in {case['minutes']} min"
        lost = str(case["samples_lost_or_repeated"])
        found.append([name, faults, *rates, f"{case['goodput']:.1%}", lost])
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
