"""Fault after fault on 8 processes of 3 virtual hosts, as `make chaos` runs it."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.harm import Harm
from tests.chaos.job import PARTS, TRAIN, Failure, Job, hosts_of_own_memory
from tests.chaos.schedule import PAUSE_SECONDS, Fault, Kind, schedule
from tests.hosts.bed import Bed, reason_to_skip

_LOGS = Path(__file__).resolve().parents[2] / "build/chaos"


class Run:
    """One schedule from its first fault to its last, on one job or several."""

    def __init__(self, bed: Bed, folder: Path, program: str) -> None:
        self._bed = bed
        self._folder = folder
        self._program = program
        self._jobs = 0
        self.history: list[str] = []
        self._start()

    def _start(self) -> None:
        self._jobs += 1
        folder = self._folder / f"job-{self._jobs}"
        folder.mkdir()
        self.job = Job(self._bed, folder, program=self._program)
        self._harm = Harm(self._bed, folder)
        self.job.await_epoch(1)
        self._next = time.monotonic() + PAUSE_SECONDS

    def follow(self, faults: list[Fault]) -> None:
        """Let the faults happen, each some seconds after the one before."""
        for fault in faults:
            self._watch()
            whom = self._harm.do(fault)
            self.history.append(f"{fault.at:5.0f} s  {fault.kind.value}: {whom}")
            print(self.history[-1], flush=True)
            if fault.kind is Kind.EXITS:
                # Who has finished is not replaced, nor is anybody after that: a job at its end.
                self._watch()
                self._finish()
                self._start()
        self._watch()
        self._finish()

    def _watch(self) -> None:
        while time.monotonic() < self._next:
            self._harm.undo_what_is_due()
            self.job.require_life()
            time.sleep(0.05)
        self._next += PAUSE_SECONDS

    def _finish(self) -> None:
        self._harm.undo_all()
        self.job.stop()
        self.job.close()
        self._harm.clean_up()

    def give_up(self) -> Path:
        """End everything, whatever is wrong; returns where the job's output is."""
        self._harm.undo_all()
        return self.job.folder / "log"


def main() -> int:
    """Run a schedule; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=None, help="a random one by default")
    parser.add_argument("--kinds", nargs="*", choices=[kind.name for kind in Kind])
    parser.add_argument("--reproducible", action="store_true", help="compare the bits, too")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 16) if args.seed is None else args.seed
    if (reason := reason_to_skip()) is not None:
        print(f"SKIPPED tests/chaos: {reason}")
        return 0
    kinds = tuple(Kind[name] for name in args.kinds) if args.kinds else tuple(Kind)
    faults = schedule(seed, 60 * args.minutes, kinds)
    print(f"{len(faults)} faults, one every {PAUSE_SECONDS:g} s, seed {seed}", flush=True)
    # Logs stay, so that a run that somebody has ended can be looked at.
    logs = _LOGS / f"seed-{seed}"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder, hosts_of_own_memory(3, Path(folder)) as bed:
        run = Run(bed, logs, PARTS if args.reproducible else TRAIN)
        try:
            run.follow(faults)
        except (Failure, AssertionError) as failure:
            print(f"FAILED: {failure}\nthe job's output: {run.give_up()}\nagain: make chaos "
                  f"MINUTES={args.minutes:g} SEED={seed}"
                  f"{' REPRODUCIBLE=1' if args.reproducible else ''}")  # fmt: skip
            return 1
    print(f"{len(faults)} faults survived, seed {seed}:", *run.history, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
