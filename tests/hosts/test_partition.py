"""Hosts that reach the first one but no longer each other, and ranks that only take a break."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.hosts.bed import Bed
from tests.hosts.jobs import python, running

pytestmark = pytest.mark.timeout(120)

# What other hosts do not acknowledge is retried by the kernel for much longer than this.
LIMIT = 20.0

# Every rank reports instead of failing, so that the launcher does not end it first.
JOB = """
import os, sys, time
import numpy as np
import sirtaki as hvd
hvd.init()
connected, cut = {connected}, {cut!r}
data = np.ones(1 << 18, np.float32)
if connected:
    hvd.allreduce(data, name="grad")
print("ready", flush=True)
try:
    while not connected and not os.path.exists(cut):
        time.sleep(0.1)
    while True:
        hvd.allreduce(data, name="grad")
        time.sleep(0.01)
except hvd.HorovodInternalError as error:
    print("told:", error, flush=True)
"""


@pytest.mark.parametrize(
    ("connected", "flags"),
    [(True, []), (False, []), (True, ["--tls"])],
    ids=["connected", "not yet connected", "encrypted"],
)
def test_two_hosts_that_cannot_reach_each_other_any_more_end_the_job(
    bed: Bed, tmp_path: Path, connected: bool, flags: list[str]
) -> None:
    cut = tmp_path / "cut"
    with running(bed, *flags, *python(JOB.format(connected=connected, cut=str(cut)))) as process:
        for host in bed.hosts[1:]:
            host.set_apart()
        cut.touch()
        output, _ = process.communicate(timeout=LIMIT)
    told = [line for line in output.splitlines() if "told:" in line]
    assert len(told) == 3, output
    for line in told:
        # Which of the two is quicker to notice is open.
        assert "rank 1 (" in line
        assert "rank 2 (" in line


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
