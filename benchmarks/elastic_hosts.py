"""Elastic jobs on virtual hosts, for `elastic.py`: needs root."""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.chaos.harm import Harm
from tests.chaos.job import Job, hosts_of_own_memory
from tests.chaos.schedule import Fault, Kind


def new_world_seconds() -> float:
    """Return the seconds from a decision until the last of 15 survivors is in the new world."""
    cooling = ("--blacklist-cooldown-range", "60", "60")
    with tempfile.TemporaryDirectory() as folder, hosts_of_own_memory(4, Path(folder)) as bed:
        job = Job(bed, Path(folder, "job"), *cooling, slots=(4, 4, 4, 4))
        harm = Harm(bed, job.folder)
        job.await_epoch(2)
        harm.do(Fault(0, Kind.KILLED, 5))
        job.await_epoch(job.epochs + 2)
        job.stop()
        job.close()
    decided = next(
        at for at, line in zip(job.times, job.lines, strict=True) if line.startswith("world 1:")
    )
    return _stood(job, 15) - decided


def cut_link_seconds() -> float:
    """Return the seconds from the cut of a host's link until the others are in a new world.

    The median of five hosts' cuts, each in a job of 6 processes on 3 hosts.
    """
    return statistics.median(_cut_link_seconds(pick) for pick in range(5))


def _cut_link_seconds(pick: int) -> float:
    flags = ("--unresponsive-seconds", "1", "--blacklist-cooldown-range", "60", "60")
    with tempfile.TemporaryDirectory() as folder, hosts_of_own_memory(3, Path(folder)) as bed:
        job = Job(bed, Path(folder, "job"), *flags, slots=(2, 2, 2))
        harm = Harm(bed, job.folder)
        job.await_epoch(2)
        cut = time.time()
        harm.do(Fault(0, Kind.CUT, pick))
        job.await_epoch(job.epochs + 2)
        harm.undo_all()
        job.stop()
        job.close()
    return _stood(job, 4) - cut


def _stood(job: Job, processes: int) -> float:
    """Return when the last of so many processes was in the first world after the job's own."""
    text = "".join(job.lines)
    stood = [float(at) for at in re.findall(r":stands 1 ([\d.]+)$", text, re.MULTILINE)]
    if len(stood) != processes:
        raise AssertionError(f"{len(stood)} processes came to the new world")
    return max(stood)
