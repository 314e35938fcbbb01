"""What watching for hangs costs a job: system calls with and without, instructions of the records.

python benchmarks/hang_report.py

Needs strace, valgrind and what `make install` leaves in build.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from output import RESULTS, write_result

from sirtaki.observe.machine import machine_facts
from sirtaki.rendezvous.words import aligned

_RANK = """
import sys
import numpy as np
import sirtaki as hvd
hvd.init()
data = np.ones(16, np.float32)
for _ in range(int(sys.argv[1])):
    hvd.allreduce_(data, name="grad")
"""
_WATCHES = {"10 s": ["--stall-check-warning-time-seconds=10"], "none": ["--no-stall-check"]}
_WAIT = ("futex", "sched_yield", "restart_syscall")
_RECORDED = 1000


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=20_000, help="of each job (20000)")
    parser.add_argument("--output", default=str(RESULTS), help="folder of hang_report.json")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    with tempfile.TemporaryDirectory() as folder:
        calls = {
            (name, count): _system_calls(Path(folder), flags, count)
            for name, flags in _WATCHES.items()
            for count in (0, args.operations)
        }
        instructions = _instructions(Path(folder))
    rows = [["Watch", "Operations", "Calls that wait", "Other calls, both ranks"]]
    for (name, count), found in calls.items():
        waits = sum(found[each] for each in _WAIT)
        rows.append([name, str(count), str(waits), str(found.total() - waits)])
    print("System calls", *aligned(rows), sep="\n")
    print(f"\nInstructions of an operation's record, whoever watches: {instructions:.0f}")
    result: dict[str, Any] = {
        "benchmark": "hang_report",
        "command": shlex.join(["python", "benchmarks/hang_report.py", *arguments]),
        "machine": facts,
        "calls": [
            {"watch": name, "operations": count, "calls": dict(found)}
            for (name, count), found in calls.items()
        ],
        "record_instructions": instructions,
    }
    write_result(Path(args.output) / "hang_report.json", result)
    return 0


def _system_calls(folder: Path, flags: Sequence[str], count: int) -> Counter[str]:
    """Return the calls of all threads of both ranks of a job with so many operations."""
    traced = ["strace", "-f", "-qq", "-c", "-o", f"{folder}/calls.$RANK"]
    program = [sys.executable, "-c", _RANK, str(count)]
    line = f"exec {' '.join(traced)} {shlex.join(program)}"
    launcher = [sys.executable, "-m", "sirtaki.launch.cli", "run", "-np", "2", *flags]
    subprocess.run([*launcher, "sh", "-c", line], check=True, env={**os.environ})
    found: Counter[str] = Counter()
    for rank in range(2):
        for row in (folder / f"calls.{rank}").read_text().splitlines():
            words = row.split()
            if len(words) >= 5 and re.fullmatch(r"[\d.]+", words[0]) and words[-1] != "total":
                found[words[-1]] += int(words[3])
    return found


def _instructions(folder: Path) -> float:
    """Return how many instructions write down an operation from being asked for to its end."""
    root = Path(__file__).resolve().parent.parent
    core = root / "build" / "package" / "libsirtaki_core.a"  # by `make install`
    flags = [
        "-std=c++20",
        "-O3",
        "-DNDEBUG",
        f"-I{root / 'cpp'}",
        str(root / "benchmarks/recorder.cpp"),
    ]
    program = str(folder / "recorder")
    subprocess.run([os.environ.get("CXX", "c++"), *flags, core, "-o", program], check=True)

    def collected(count: int) -> int:
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        done = subprocess.run(
            [*tool, program, str(count)],
            check=True,
            capture_output=True,
            text=True,
        )
        return int(re.findall(r"Collected : (\d+)", done.stderr)[0])

    return (collected(2 * _RECORDED) - collected(_RECORDED)) / _RECORDED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
