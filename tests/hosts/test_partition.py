"""Hosts that reach the first one but no longer each other, and ranks that only take a break."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.hosts.bed import Bed
from tests.hosts.jobs import python, running

# What other hosts do not acknowledge is retried by the kernel for longer than this.
LIMIT = 12.0

# Every rank reports instead of failing, so that the launcher does not end it first.
JOB = """
import os, sys, time
import numpy as np
import sirtaki as hvd
hvd.init()
cut = {cut!r}
data = np.ones(1 << 18, np.float32)
def until_cut():
    while not os.path.exists(cut):
        time.sleep(0.1)
def step():
    hvd.allreduce(data, name="grad")
    time.sleep(0.01)
try:
{work}
except hvd.HorovodInternalError as error:
    print("told:", *str(error).splitlines(), flush=True)
"""

CONNECTED = """
    step()
    print("ready", flush=True)
    while True:
        step()
"""
NOT_YET_CONNECTED = """
    print("ready", flush=True)
    until_cut()
    while True:
        step()
"""
# The links of the last engine are those of the next one.
AGAIN = """
    step()
    hvd.shutdown()
    print("ready", flush=True)
    until_cut()
    hvd.init()
    step()
"""
# Large ones, both ways at once: both ends have bytes on their way.
MESSAGES = """
    large, room = np.ones(20 << 20, np.uint8), np.empty(20 << 20, np.uint8)
    other = 3 - hvd.rank()
    if hvd.rank() == 0:
        print("ready", flush=True)
        hvd.recv(np.empty(1), 1, tag=9)  # which is never sent
    for number in range(10**9):
        both = hvd.isend(large, other), hvd.irecv(room, other)
        if number == 1:
            print("ready", flush=True)
        for handle in both:
            hvd.synchronize(handle)
"""


@pytest.mark.parametrize(
    ("work", "flags"),
    [
        pytest.param(CONNECTED, [], id="connected"),
        pytest.param(CONNECTED, ["--tls"], id="encrypted"),
        pytest.param(NOT_YET_CONNECTED, [], id="not yet connected"),
        pytest.param(MESSAGES, [], id="messages"),
        pytest.param(AGAIN, [], id="after shutdown", marks=pytest.mark.slow),
    ],
)
def test_two_hosts_that_cannot_reach_each_other_any_more_end_the_job(
    bed: Bed, tmp_path: Path, work: str, flags: list[str]
) -> None:
    cut = tmp_path / "cut"
    with running(bed, *flags, *python(JOB.format(work=work, cut=str(cut)))) as process:
        for host in bed.hosts[1:]:
            host.set_apart()
        cut.touch()
        output, _ = process.communicate(timeout=LIMIT)
    told = [line for line in output.splitlines() if "told:" in line]
    assert len(told) == 3, output
    for line in told:
        # Which of the two is quicker to notice is open.
        assert re.search(r"rank 1\b", line)
        assert re.search(r"rank 2\b", line)


FOR_A_WHILE = """
    step()
    print("ready", flush=True)
    until_cut()
    for _ in range(10):
        step()
    print("done", flush=True)
"""


@pytest.mark.slow
def test_hosts_that_may_be_silent_for_longer_are_waited_for(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIRTAKI_HOST_TIMEOUT_SECONDS", "20")
    cut = tmp_path / "cut"
    with running(bed, *python(JOB.format(work=FOR_A_WHILE, cut=str(cut)))) as process:
        for host in bed.hosts[1:]:
            host.set_apart()
        cut.touch()
        time.sleep(6)  # longer than the default
        for host in bed.hosts[1:]:
            host.reconnect()
        output, _ = process.communicate(timeout=60)
    assert output.count("done") == 3, output


# More than the kernel's buffers hold, so that the sender's window closes.
STOPPED = """
import os, signal, threading, time
import numpy as np
import sirtaki as hvd
hvd.init()
pids = hvd.allgather(np.array([os.getpid()]))
hvd.broadcast(np.zeros(1 << 16), 0)
if hvd.rank() == 2:
    threading.Timer(0.2, lambda: print("stop me", os.getpid(), flush=True)).start()
print("ready", flush=True)
data = np.full(1 << 22, float(hvd.rank()), np.float32)
for _ in range(200):
    assert hvd.allreduce(data, op=hvd.Sum)[0] == 3.0
"""


@pytest.mark.slow
def test_a_stopped_rank_of_a_host_that_answers_is_waited_for(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A leader that is stopped does not speak for its host either.
    monkeypatch.setenv("SIRTAKI_HOST_TIMEOUT_SECONDS", "0")
    with running(bed, *python(STOPPED)) as process:
        assert process.stdout is not None
        while "stop me" not in process.stdout.readline():
            pass
        (rank,) = [
            pid
            for pid, command in bed.hosts[2].processes().items()
            if "hvd.init" in command and "guardian" not in command
        ]
        os.kill(rank, signal.SIGSTOP)
        with pytest.raises(Exception, match="timed out"):
            process.wait(9)
        os.kill(rank, signal.SIGCONT)
        output, _ = process.communicate(timeout=90)
        assert process.returncode == 0, output
