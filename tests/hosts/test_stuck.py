"""Ranks of other hosts that do not come, or stop in the middle of an operation."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.hosts.bed import Bed
from tests.hosts.jobs import forget_launcher, launcher, python, run, running

LIMIT = 150.0
SIRTAKI = (sys.executable, "-m", "sirtaki.launch.cli")

MISSING = """
import time
import numpy as np
import sirtaki as hvd
hvd.init()
hvd.allreduce(np.ones(3), name="first")
if hvd.rank() == 2:
    time.sleep(4)
hvd.allreduce(np.ones(3), name="second")
"""


def test_the_report_of_a_hang_tells_what_ranks_of_all_hosts_do(bed: Bed) -> None:
    done = run(bed, "--stall-check-warning-time-seconds", "1", *python(MISSING))
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"stalled: no operation has ended for \d s; rank 2 held up ranks 0-1\n"
        r"  allreduce 'second' has waited for \d s; called by ranks 0-1; "
        r"missing ranks: 2 \(\S+\)\n",
        done.stderr,
    ), done.stderr
    assert re.search(
        r"  rank 2 \(\S+, process \d+\): asleep, in no operation; the last one was "
        r"allreduce 'first', \d s ago\n      <string>:8 in <module>",
        done.stderr,
    ), done.stderr


HANGS = """
import time
import numpy as np
import sirtaki as hvd
hvd.init()
hvd.allreduce(np.ones(3), name="first")
print("ready", flush=True)
if hvd.rank() == 5:
    time.sleep(60)
hvd.allreduce(np.ones(3), name="second")
"""


def told_of_hang(bed: Bed, host: int, job: str) -> str:
    """What a command on a host says of the job, once the others have come so far."""
    told = ""
    while "missing ranks: 2" not in told:
        told = bed.hosts[host].run(*SIRTAKI, "hang", job).stdout
    return told


def test_a_command_knows_the_lines_of_all_ranks_on_the_launchers_host_and_elsewhere_says_where(
    bed: Bed,
) -> None:
    flags = ("--no-stall-check", *python(HANGS.replace("== 5", "== 2")))
    with running(bed, *flags):
        jobs = bed.hosts[0].run(*SIRTAKI, "ps").stdout
        (job,) = re.findall(r"^([0-9a-f]{8}) ", jobs, re.MULTILINE)
        told = told_of_hang(bed, 0, job)
        forget_launcher(job)
        told_elsewhere = told_of_hang(bed, 1, job)
    assert re.search(
        r"  rank 2 \(\S+, process \d+\): asleep, in no operation; the last one was "
        r"allreduce 'first', \d+ s ago\n      <string>:9 in <module>",
        told,
    ), told
    assert re.search(
        r"\nnot known here of ranks 0,2 \(\S+, \S+\): their lines of code, and whether they "
        r"compute, are stopped or in a debugger\n"
        r"ask on the host where `horovodrun` runs, which knows all; ",
        told_elsewhere,
    ), told_elsewhere


TRAINS = """
import time
import numpy as np
import sirtaki as hvd
hvd.init()
print("ready", flush=True)
while True:
    hvd.allreduce(np.ones(3), name="grad")
    time.sleep(0.02)
"""


def test_a_command_on_the_launchers_host_and_its_metrics_know_the_ranks_of_all(
    bed: Bed, tmp_path: Path
) -> None:
    written = tmp_path / "metrics"
    flags = ("--no-stall-check", "--metrics-file", str(written), "--metrics-interval", "1")
    with running(bed, *flags, *python(TRAINS)):
        jobs = bed.hosts[0].run(*SIRTAKI, "ps").stdout
        (job,) = re.findall(r"^([0-9a-f]{8}) ", jobs, re.MULTILINE)
        steps = [None]
        while None in steps:  # the others may not have come so far
            told = bed.hosts[0].run(*SIRTAKI, "top", job, "--once", "--json").stdout
            ranks = json.loads(told)["ranks"]
            steps = [one["step"] for one in ranks]
        while len(lines := written.read_text().splitlines(keepends=True)) < 2:
            time.sleep(0.1)
    assert [one["rank"] for one in ranks] == [0, 1, 2]
    assert len({one["host"] for one in ranks}) == 3
    assert all(one["step"] >= 0.02 and one["memory"] > 1 << 20 for one in ranks), ranks
    assert [(one["rank"], one["host"]) for one in json.loads(lines[0])["ranks"]] == [
        (one["rank"], one["host"]) for one in ranks
    ]


@pytest.mark.nightly
def test_twelve_ranks_on_three_hosts_are_reported_within_eleven_seconds(bed: Bed) -> None:
    command = launcher(bed, *python(HANGS), slots=4)
    with bed.hosts[0].running(*command) as process:
        assert process.stdout is not None
        while "ready" not in process.stdout.readline():
            pass
        began = time.monotonic()
        while "rank 5 held up ranks 0-4,6-11" not in process.stdout.readline():
            pass
        assert 9 < time.monotonic() - began <= 11


THROTTLED = """
import time
import numpy as np
import sirtaki as hvd
hvd.init()
hvd.barrier()
print("ready", flush=True)
time.sleep(2)
hvd.allreduce(np.ones(1 << 20, np.float32), name="grad")
"""


@pytest.mark.slow
def test_a_throttled_link_is_named(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIRTAKI_HOST_TIMEOUT_SECONDS", "0")
    flags = ("--stall-check-warning-time-seconds", "2")
    with running(bed, *flags, *python(THROTTLED)) as process:
        assert process.stdout is not None
        # Fast enough for the signs of life of agent and launcher, which share the link.
        bed.hosts[2].throttle("512kbit")
        told = ""
        while "look at the network between them" not in told:
            line = process.stdout.readline()
            assert line, told
            told += line
    assert re.search(
        r"likely cause: the data of allreduce 'grad' come slowly or not at all from \S+ to \S+: ",
        told,
    ), told


NEVER_MEET = """
import numpy as np
import sirtaki as hvd
hvd.init()
try:
    hvd.allreduce(np.ones(3), name=f"of rank {hvd.rank()}")
except hvd.CollectiveTimeoutError as error:
    print(f"told {error}", flush=True)
"""


@pytest.mark.slow
def test_ranks_of_all_hosts_that_can_never_meet_are_told(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIRTAKI_DEADLOCK_SECONDS", "2")
    done = run(bed, *python(NEVER_MEET))
    told = [line for line in done.stdout.splitlines() if "told" in line]
    assert len(told) == 3, done.stdout + done.stderr
    for line in told:
        assert "every rank of the job has been blocked" in line
        assert all(f"waiting with allreduce 'of rank {rank}'" in line for rank in range(3)), line


STOPPED = """
import numpy as np
import sirtaki as hvd
hvd.init()
data = np.ones(1 << 22, np.float32)
hvd.allreduce_(data, op=hvd.Max)
print("ready", flush=True)
# Wherever a rank is stopped, one that all have submitted is under way.
begun = 0
pending = []
try:
    while True:
        pending.append(hvd.allreduce_async(data, name=f"grad{begun % 3}", op=hvd.Max))
        begun += 1
        if len(pending) > 1:
            hvd.synchronize(pending.pop(0))
except hvd.HorovodInternalError as error:
    print(f"rank {hvd.rank()} got {type(error).__name__}: {error}", flush=True)
"""


SUSPENDED = """
import time
import numpy as np
import sirtaki as hvd
hvd.init()
print("ready", flush=True)
for _ in range(40):
    time.sleep(0.05)
    hvd.allreduce(np.ones(3))
"""


def test_a_job_that_a_scheduler_suspends_goes_on(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIRTAKI_HOST_TIMEOUT_SECONDS", "2")
    with running(bed, *python(SUSPENDED)) as process:
        ranks = [
            pid
            for host in bed.hosts
            for pid, command in host.processes().items()
            if command.split()[1:2] == ["-c"] and "hvd.init" in command
        ]
        assert len(ranks) == 3
        for rank in ranks:
            os.kill(rank, signal.SIGSTOP)
        time.sleep(4)
        for rank in ranks:
            os.kill(rank, signal.SIGCONT)
            time.sleep(0.5)  # no host resumes when another does
        output, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, output


def test_a_limit_for_data_ends_the_world_on_all_hosts(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIRTAKI_DATA_TIMEOUT_SECONDS", "2")
    # The rank that is stopped is its host's leader.
    monkeypatch.setenv("SIRTAKI_HOST_TIMEOUT_SECONDS", "0")
    with running(bed, *python(STOPPED)) as process:
        (rank,) = [
            pid
            for pid, command in bed.hosts[2].processes().items()
            if "hvd.init" in command and "guardian" not in command
        ]
        os.kill(rank, signal.SIGSTOP)
        assert process.stdout is not None
        told = ""
        while told.count(" got ") < 2:
            line = process.stdout.readline()
            assert line, told
            told += line
        with contextlib.suppress(ProcessLookupError):
            os.kill(rank, signal.SIGCONT)
        output, _ = process.communicate(timeout=LIMIT)
    lines = [line for line in (told + output).splitlines() if " got " in line]
    assert len(lines) == 3, lines
    for line in lines:
        assert "CollectiveTimeoutError" in line
        assert re.search(
            r"allreduce 'grad\d' made no progress for 2 s on rank [01] \(\S+\), which waits for "
            r"rank 2 \(\S+\) to (send|take) (chunk \d+|its part)",
            line,
        ), line
