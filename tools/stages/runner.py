"""Runs stages side by side, as many as the cores take, and says what each of them took."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.stages.table import Stage

# The last line of pytest, of doctest, and what stands before a line of a rank's output.
_PYTEST = re.compile(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s", re.MULTILINE)
_DOCTEST = re.compile(r"test cases: +\d+ \| +(\d+) passed \| +(\d+) failed \| +(\d+) skipped")
_RANK = re.compile(r"^\[(\d+)\]<(?:stdout|stderr)>:", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
# What pytest's summary says of a test that lacks something that the machine could have.
_MISSING = re.compile(r"^SKIPPED .*?: (missing: .*)$", re.MULTILINE)
_TAIL = 150
# A stage that hangs is ended after this many minutes and times its budget, before CI's own limit.
_GRACE = 5
_PATIENCE = 5
# How pytest and doctest head failures, and a rank its own, shown before the others hear of it.
_FIRST = re.compile(r"=== (?:FAILURES|ERRORS) =|== rank \S+ failed |^TEST CASE: ")


@dataclass
class Result:
    """What became of a stage."""

    stage: Stage
    code: int
    seconds: float
    cpu: float
    log: Path
    counts: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the stage's row of the table."""
        outcome = "passed" if self.code == 0 else "FAILED"
        late = " (over its budget)" if self.seconds > 60 * self.stage.minutes else ""
        tests = ", ".join(f"{count} {what}" for what, count in self.counts.items())
        return (
            f"{self.stage.name:24} {outcome:7} {self.seconds:5.0f} s "
            f"of {60 * self.stage.minutes:4.0f} s, CPU {self.cpu:5.0f} s  {tests}{late}"
        )


def counted(text: str) -> dict[str, int]:
    """Add up the tests in a log. All ranks run the same ones, so those of rank 0 count."""
    own = "\n".join(
        _RANK.sub("", line)
        for line in _COLOUR.sub("", text).splitlines()
        if not (rank := _RANK.match(line)) or rank[1] == "0"
    )
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for match in _PYTEST.finditer(own):
        for number, what in re.findall(r"(\d+) ([a-z]+)", match[1]):
            what = {"error": "failed", "errors": "failed"}.get(what, what)
            if what in counts:
                counts[what] += int(number)
    for match in _DOCTEST.finditer(own):
        # Each part of the cases reports all of them, and as passed those that it leaves out.
        passed, failed = int(match[1]), int(match[2])
        counts["passed"] = max(counts["passed"], passed)
        counts["failed"] += failed
    return {what: count for what, count in counts.items() if count}


def missing(text: str) -> list[str]:
    """Return what tests were skipped for want of, each once."""
    return sorted(set(_MISSING.findall(_RANK.sub("", _COLOUR.sub("", text)))))


class Runner:
    """Runs stages, each as a target of make whose output is kept in a file."""

    def __init__(self, logs: Path, cores: int) -> None:
        self._logs = logs
        self._cores = cores
        logs.mkdir(parents=True, exist_ok=True)

    def run(self, stages: Sequence[Stage]) -> list[Result]:
        """Run all stages, whatever becomes of one; a stage after one that failed is left out."""
        waiting = list(stages)
        running: dict[Stage, tuple[subprocess.Popen[bytes], float]] = {}
        results: list[Result] = []
        names = {stage.name for stage in stages}
        try:
            while waiting or running:
                ended = {result.stage.name: result.code for result in results}
                for stage in list(waiting):
                    needed = [name for name in stage.after if name in names]
                    if any(ended.get(name) for name in needed):
                        waiting.remove(stage)
                        results.append(Result(stage, 1, 0, 0, self._log(stage)))
                        print(f"{stage.name}: left out, since {', '.join(needed)} failed")
                        continue
                    busy = sum(other.cores for other in running)
                    if all(name in ended for name in needed) and (
                        not running or busy + stage.cores <= self._cores
                    ):
                        waiting.remove(stage)
                        running[stage] = (self._start(stage), time.monotonic())
                for stage, (process, began) in list(running.items()):
                    if time.monotonic() - began > 60 * (_GRACE + _PATIENCE * stage.minutes):
                        self._end(stage, process)
                    pid, status, used = os.wait4(process.pid, os.WNOHANG)
                    if pid:
                        del running[stage]
                        process.returncode = os.waitstatus_to_exitcode(status)
                        took = (time.monotonic() - began, used.ru_utime + used.ru_stime)
                        results.append(self._result(stage, process.returncode, *took))
                time.sleep(0.1)
        finally:
            for stage, (process, _) in running.items():
                self._end(stage, process)
        return results

    def _log(self, stage: Stage) -> Path:
        return self._logs / f"{stage.name.replace(' ', '-')}.log"

    def _start(self, stage: Stage) -> subprocess.Popen[bytes]:
        with self._log(stage).open("wb") as log:
            return subprocess.Popen(
                ["make", "--no-print-directory", *stage.make],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Not this make's jobs and options.
                env={name: value for name, value in os.environ.items() if name[:4] != "MAKE"},
                start_new_session=True,
            )

    def _end(self, stage: Stage, process: subprocess.Popen[bytes]) -> None:
        """End a stage's processes, and note that in its log."""
        with self._log(stage).open("a") as log:
            log.write("ended: the stage took too long, or the run was stopped\n")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _result(self, stage: Stage, code: int, seconds: float, cpu: float) -> Result:
        log = self._log(stage)
        text = log.read_text(errors="replace")
        result = Result(stage, code, seconds, cpu, log, counted(text), missing(text))
        print(result.line(), flush=True)
        if code != 0:
            lines = text.splitlines()
            first = next((i for i, line in enumerate(lines) if _FIRST.search(line)), len(lines))
            print("\n".join(lines[first : min(first + _TAIL, max(0, len(lines) - _TAIL))]))
            print("\n".join(lines[-_TAIL:]))
            print(f"All {len(lines)} lines are in {log}", flush=True)
        return result


def conclude(results: Sequence[Result], seconds: float, complete: bool) -> int:
    """Print the table; returns the exit status. `complete`: whether nothing may be missing."""
    print("\nstage                    result    took  budget      CPU of all processes, tests")
    for result in results:
        print(result.line())
    lacking = sorted({what for result in results for what in result.missing})
    for what in lacking:
        print(f"skipped for want of: {what.removeprefix('missing: ')}")
    failed = [result for result in results if result.code != 0]
    for result in failed:
        print(f"failed: make {shlex.join(result.stage.make)}    (output: {result.log})")
    if lacking and complete:
        print("failed: this machine is to have all that is missing")
    total = {
        what: sum(result.counts.get(what, 0) for result in results)
        for what in ("passed", "failed", "skipped")
    }
    print(f"All stages took {seconds:.0f} s")
    if any(total.values()):
        print(", ".join(f"{count} {what}" for what, count in total.items()), flush=True)
    return 1 if failed or (lacking and complete) else 0


def main(stages: Sequence[Stage], logs: Path, cores: int, complete: bool) -> int:
    """Run stages and print what became of them."""
    begin = time.monotonic()
    try:
        results = Runner(logs, cores).run(stages)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return conclude(results, time.monotonic() - begin, complete)
