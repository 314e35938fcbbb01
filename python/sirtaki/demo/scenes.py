"""The scenes of `sirtaki demo`. Each returns its measured figure."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sirtaki.demo.program import Program, SceneError, say

_TABLES = 4
_STALL_SECONDS = 3


def speed_up(folder: Path) -> str:
    """Train on two processes, and measure the gain from the second one."""
    with Program("run -np 2 python train.py", folder) as job:
        _, found = job.wait_for(r"are ([\d.]+) times as fast as one; efficiency ([\d.]+)")
        job.finish()
    return f"speed-up {found[1]} with two processes, efficiency {found[2]}"


def survival(folder: Path) -> str:
    """Watch a job, kill one of its processes, and watch the other one go on."""
    with Program("run -np 2 --min-np 1 python survive.py", folder) as job:
        ranks: dict[int, int] = {}
        while len(ranks) < 2:
            _, found = job.wait_for(r"rank (\d) is process (\d+)")
            ranks[int(found[1])] = int(found[2])
        job.wait_for("with 2 processes")
        with Program(f"top {ranks[0]} --interval 1", folder, shown=False) as top:
            _draw(top)
            for _ in job.lines(quiet=0.1):  # what it printed meanwhile
                pass
            say(f"$ kill -KILL {ranks[1]}")
            killed = time.monotonic()
            os.kill(ranks[1], signal.SIGKILL)
            went_on, _ = job.wait_for("with 1 process")
            job.wait_for("with 2 processes")
            back = time.monotonic()
        say("(the demo ends this job)")
    return (
        f"training went on {went_on - killed:.2f} s after a process was killed; "
        f"a new process had taken its place after {back - killed:.1f} s"
    )


def _draw(top: Program) -> None:
    """Show a few tables of `sirtaki top`; on a terminal each replaces the previous one."""
    in_place = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    width = shutil.get_terminal_size().columns if in_place else None
    height = 0
    for number, table in enumerate(_tables(top), 1):
        if in_place:
            print(f"\x1b[{height}A\x1b[J" if height else "", end="")
        if in_place or number == _TABLES:
            say("\n".join(line[:width] for line in table))
        height = len(table)
        if number == _TABLES:
            return
    raise top.error("ended before it had shown the job")


def _tables(top: Program) -> Iterator[list[str]]:
    table: list[str] = []
    for _, line in top.lines():
        if line.lstrip().startswith("RANK") and table:
            yield table
            table = []
        table.append(line)


def hang(folder: Path) -> str:
    """Let one process skip an operation, and show why the job hangs."""
    source = (folder / "hang.py").read_text(encoding="utf-8").splitlines()
    wrong = next(number for number, line in enumerate(source, 1) if "must call this" in line)
    place = f"hang.py:{wrong}"
    command = f"run -np 2 --stall-check-warning-time-seconds {_STALL_SECONDS} python hang.py"
    with Program(command, folder) as job:
        job.wait_for("accuracy")
        job.wait_for("hang.py:")
        for _ in job.lines(quiet=1.0):
            pass
        if not job.told(place):
            raise SceneError(f"the report of the hang does not name {place}")
        say("(the demo ends this job)")
    return f"the hang is explained: {place}, where rank 0 waits for an operation that rank 1 skips"


def against_gloo(folder: Path) -> str:
    """Run the same PyTorch script over Gloo and over Sirtaki, in turns."""
    with Program("run -np 2 python compare.py", folder) as job:
        _, found = job.wait_for(r"a step takes ([\d.]+) times as long as over Gloo")
        job.finish()
    return f"over Sirtaki a step of DDP takes {found[1]} times as long as over Gloo"
