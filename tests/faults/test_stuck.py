"""A rank that is stopped in the middle of an operation: what the others can do and tell."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.single.launching import LIMIT, Job, python

# Rank 0 stops rank 1 in the middle of a sum of 256 MiB.
STOPS = """
import os, signal, threading, time
import numpy as np
import sirtaki as hvd
hvd.init()
pids = hvd.allgather(np.array([os.getpid()]))
print(f"rank {hvd.rank()} is {os.getpid()};", flush=True)

def stop():
    while True:
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(0.3)
        both = hvd.snapshot()
        open = [[one for one in rank.open if one.stage == "under way"] for rank in both]
        if all(open) and open[0][0].waits:
            print("stuck\\n" + "\\n".join(map(str, both)) + "\\nshown", flush=True)
            return
        os.kill(pids[1], signal.SIGCONT)
        time.sleep(0.05)

if hvd.rank() == 0:
    threading.Thread(target=stop, daemon=True).start()
data = np.ones(64 << 20, np.float32)
try:
    for i in range(10_000):
        hvd.allreduce_(data, name=f"sum {i}", op=hvd.Max)
        print(f"did sum {i};", flush=True)
except KeyboardInterrupt:
    print("interrupted;", flush=True)
except hvd.HorovodInternalError as error:
    print(f"rank {hvd.rank()} got {type(error).__name__}: {error}", flush=True)
"""


class Stuck:
    """A job of STOPS, whose rank 1 is stopped. text: what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.text = ""
        self.text = self.until("shown")
        pids = dict(re.findall(r"rank (\d) is (\d+);", self.text))
        self.pids = [int(pids["0"]), int(pids["1"])]

    def until(self, part: str) -> str:
        """Read to the line that has this part; return all of it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.text += line
            if part in line:
                return self.text
        raise AssertionError(self.text)

    def rest(self) -> str:
        """Let the job come to its end; return what it printed."""
        output, _ = self._process.communicate(timeout=LIMIT)
        return output


@contextlib.contextmanager
def stuck(job: Job) -> Iterator[Stuck]:
    process = job.start("-np", "2", *python(STOPS))
    try:
        yield Stuck(process)
    finally:
        for pid in job.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL])
def test_a_rank_whose_peer_is_stopped_in_the_middle_reads_what_it_is_in_and_ctrl_c_interrupts(
    job: Job, then: signal.Signals
) -> None:
    with stuck(job) as ranks:
        own, _, theirs = ranks.text.partition("rank 1: in allreduce")
        os.kill(ranks.pids[0], signal.SIGINT)
        ranks.until("interrupted;")
        os.kill(ranks.pids[1], then)
        ranks.rest()
    under_way = r"allreduce 'sum \d+' \(268435456 bytes\): under way, submitted \d+\.\d s ago"
    assert re.search(under_way + r".* for rank 1 to (write|read) chunk \d+", own)
    assert re.search(under_way, theirs)


def test_a_limit_for_data_fails_all_ranks_and_names_who_was_waited_for(job: Job) -> None:
    job.environment["SIRTAKI_DATA_TIMEOUT_SECONDS"] = "3"
    with stuck(job) as ranks:
        found = [ranks.until("rank 0 got").splitlines()[-1]]
        os.kill(ranks.pids[1], signal.SIGCONT)
        found += [line for line in ranks.rest().splitlines() if "rank 1 got" in line]
    assert len(found) == 2
    for line in found:
        assert "CollectiveTimeoutError" in line
        pattern = (
            r"allreduce 'sum \d+' made no progress for 3 s on rank 0 \(localhost\), which waits "
            r"for rank 1 \(localhost\) to (write|be done with) chunk \d+ \(it is in allreduce 'sum"
        )
        assert re.search(pattern, line), line


def test_a_limit_for_data_does_not_count_what_all_ranks_were_stopped_for(job: Job) -> None:
    job.environment["SIRTAKI_DATA_TIMEOUT_SECONDS"] = "3"
    with stuck(job) as ranks:
        os.kill(ranks.pids[0], signal.SIGSTOP)
        time.sleep(4)
        os.kill(ranks.pids[0], signal.SIGCONT)
        time.sleep(0.3)
        os.kill(ranks.pids[1], signal.SIGCONT)
        last = max(int(number) for number in re.findall(r"sum (\d+)", ranks.text))
        ranks.until(f"did sum {last + 3};")


MESSAGES = """
import os, signal
import numpy as np
import sirtaki as hvd
hvd.init()
pids = hvd.allgather(np.array([os.getpid()]))
data = np.ones(1 << 20, np.float32)
if hvd.rank() == 0:
    os.kill(pids[1], signal.SIGSTOP)
try:
    both = [hvd.isend(data, 1 - hvd.rank(), tag=5), hvd.irecv(data + 1, 1 - hvd.rank(), tag=5)]
    for handle in both:
        hvd.synchronize(handle)
except hvd.HorovodInternalError as error:
    print(f"rank {hvd.rank()} got {type(error).__name__}: {error}", flush=True)
os.kill(pids[1], signal.SIGCONT)
"""


def test_a_limit_for_data_fails_messages_with_a_stopped_rank(job: Job) -> None:
    job.environment["SIRTAKI_DATA_TIMEOUT_SECONDS"] = "2"
    done = job.run("-np", "2", *python(MESSAGES))
    lines = [line for line in done.stdout.splitlines() if " got " in line]
    assert len(lines) == 2, done.stdout + done.stderr
    for line in lines:
        assert "CollectiveTimeoutError" in line
        pattern = (
            r"(send to|receive from) rank 1 with tag 5 made no progress for 2 s on rank 0 "
            r"\(localhost\), which waits for rank 1 \(localhost\) to (take|send) its part"
        )
        assert re.search(pattern, line), line


FIVE = """
import os, signal
import numpy as np
import sirtaki as hvd
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pair, other = hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])
hvd.init(process_sets=[pair, other])
pids = hvd.allgather(np.array([os.getpid()]))
mine = [one for one in (pair, other) if hvd.rank() in one.ranks]
sets = [hvd.global_process_set, *mine * 2, hvd.global_process_set, *mine * 2][:5]
data = [np.ones(16 << 20, np.float32) for _ in sets]
if hvd.rank() == 1:
    data.clear()
    os.kill(os.getpid(), signal.SIGSTOP)
for i, (array, one) in enumerate(zip(data, sets)):
    data[i] = hvd.allreduce_async(array, name=f"{i} of {one.process_set_id}", process_set=one)
if hvd.rank() == 2:
    hvd.send(np.ones(1), 0)
if hvd.rank() == 0:
    hvd.recv(np.ones(1), 2)  # its operations are in flight, too
    os.kill(pids[1], signal.SIGKILL)
lost = 0
for handle in data:
    try:
        hvd.synchronize(handle)
    except hvd.PeerLostError:
        lost += 1
print(f"rank {hvd.rank()} lost {lost}", flush=True)
"""


def test_five_operations_in_flight_end_with_the_rank_they_need(job: Job) -> None:
    done = job.run("--termination-grace-seconds", "10", "-np", "3", *python(FIVE))
    assert re.findall(r"rank (\d lost \d)", "".join(sorted(done.stdout.splitlines()))) == [
        "0 lost 5",
        "2 lost 5",
    ], done.stdout + done.stderr
