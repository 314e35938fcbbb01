"""A trace of a job on several hosts, in one file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sirtaki.observe.trace import files
from sirtaki.observe.trace.matching import match_messages
from sirtaki.observe.trace.report import examine
from tests.hosts.bed import SSH_PORT, Bed
from tests.hosts.jobs import forget_launcher, python, running

PROGRAM = """
import time
import numpy as np
import sirtaki as hvd
hvd.init()
print("ready", flush=True)
while True:
    with hvd.trace("load"):
        time.sleep(0.3 if hvd.rank() == 2 else 0.001)
    ends = hvd.rank(), (hvd.rank() + 1) % hvd.size(), (hvd.rank() - 1) % hvd.size()
    sent = hvd.isend(np.ones(1000, np.float32), dest=ends[1], tag=1)
    hvd.recv(np.ones(1000, np.float32), source=ends[2], tag=1)
    hvd.synchronize(sent)
    hvd.allreduce(np.ones(1000, np.float32), name="grad")
"""


def sirtaki(bed: Bed, *arguments: str, host: int = 0) -> subprocess.CompletedProcess[str]:
    return bed.hosts[host].run(sys.executable, "-m", "sirtaki.launch.cli", *arguments)


def name_of(bed: Bed) -> str:
    return sirtaki(bed, "ps").stdout.splitlines()[1].split()[0]


def check_one_file(done: subprocess.CompletedProcess[str], path: str) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"3 ranks, \d\d+ operations, \d\d+ sends and receives", done.stdout)
    # One machine has one clock, and operations between hosts take less than a millisecond or ten.
    late = re.findall(r": its clock was (-?[\d.]+) ms late", done.stderr)
    assert len(late) == 2
    assert all(abs(float(each)) < 50 for each in late), done.stderr
    trace = files.read(path)
    assert [one.rank for one in trace.ranks] == [0, 1, 2]
    assert len({one.host for one in trace.ranks}) == 3
    found = examine(trace)
    assert found.stragglers[0] == 2  # a busy machine may delay others, too
    assert "its 'load' takes" in found.advice[0]
    ends = [(a[0], b[0]) for a, b in match_messages(trace.ranks)]
    assert set(ends) == {(0, 1), (1, 2), (2, 0)}
    assert all(a[1].begun <= b[1].ended + 50_000_000 for a, b in match_messages(trace.ranks))


def check_one_host(done: subprocess.CompletedProcess[str], path: str) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one.rank for one in files.read(path).ranks] == [1]
    assert "only ranks of this host: ranks 0,2 are on " in done.stdout
    assert "On the launcher's host the command records all" in done.stdout


def test_ranks_of_all_hosts_are_in_one_file_where_the_launcher_is_and_those_of_one_elsewhere(
    bed: Bed, tmp_path: Path
) -> None:
    path, alone = str(tmp_path / "trace.json"), str(tmp_path / "alone.json")
    bounded = str(tmp_path / "trace.json.gz")
    with running(bed, *python(PROGRAM)):
        job = name_of(bed)
        done = sirtaki(bed, "trace", "start", job, "-o", bounded, "--seconds", "2")
        started = sirtaki(bed, "trace", "start", job, "-o", path)
        again = sirtaki(bed, "trace", "start", job)
        stopped = sirtaki(bed, "trace", "stop", job)
        forget_launcher(job)
        here = sirtaki(bed, "trace", "start", job, "-o", alone, "--seconds", "0.5", host=1)
    assert started.returncode == 0, started.stdout + started.stderr
    assert started.stdout == f"recording; `sirtaki trace stop {job}` writes {path}\n"
    assert re.fullmatch(r"sirtaki trace start: error: a trace has run for \d+ s\n", again.stderr)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert [one.rank for one in files.read(path).ranks] == [0, 1, 2]
    check_one_file(done, bounded)
    check_one_host(here, alone)


SCALES = """
import time
import numpy as np
import sirtaki as hvd
hvd.init()
while True:
    time.sleep(0.3 if hvd.rank() == 2 else 0.001)
    hvd.allreduce(np.ones(1000, np.float32), name="grad")
"""


@pytest.mark.slow
def test_scaling_watches_the_ranks_of_all_hosts(bed: Bed) -> None:
    hosts = ",".join(f"{host.address}:1" for host in bed.hosts)
    flags = ("-np", "3", "-H", hosts, "-p", str(SSH_PORT), "--warm-up", "0.2", "--seconds", "5")
    done = sirtaki(bed, "bench", "scaling", *flags, "--json", "--", *python(SCALES))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    [run] = result["runs"]
    assert [one["rank"] for one in run["of_ranks"]] == [0, 1, 2]
    assert run["step"] >= 0.3
    assert run["cores"] == 3 * len(os.sched_getaffinity(0))
    [point] = result["points"]
    [straggler] = [one for one in point["causes"] if one["name"] == "stragglers"]
    assert "for rank 2, which takes longer at <string>:7 in <module>" in straggler["what"]
