"""A rank that dies or stops while others' tensors are summed where they lie."""

from __future__ import annotations

import re
from pathlib import Path

from tests.single.launching import Job, python

PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
import sirtaki as hvd
from sirtaki import _core
from sirtaki.core.world.state import current_world

signal.signal(signal.SIGTERM, signal.SIG_IGN)
hvd.init()
pids = hvd.allgather(np.array([os.getpid()]))
data = hvd.empty(64 << 20, np.float32)  # 256 MiB
data[:] = 1
engine = current_world().engine

def is_shared():
    return _core.heap_holds(data.ctypes.data, data.nbytes)

def sum_for_ever():
    while True:
        hvd.allreduce_(data, name="grad", op=hvd.Max)
"""

KILLED = """
assert is_shared()
if hvd.rank() == 1:
    def die():
        while engine.direct()[0] < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=die, daemon=True).start()
try:
    sum_for_ever()
except hvd.PeerLostError as error:
    print(f"rank {hvd.rank()} direct {engine.direct()[0] > 0} shared {is_shared()} {error}")
    assert data.min() == 1 and data.max() == 1
"""

# Rank 0 stops rank 1 in the middle of its slice, and lets it go on when it has given up itself.
STOPPED = """
def stop():
    while engine.direct()[0] < 3:  # the first sums of a tensor are not direct
        time.sleep(0.01)
    while True:
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(0.3)
        both = hvd.snapshot()
        open = [[one for one in rank.open if one.stage == "under way"] for rank in both]
        if all(open) and "chunk 1" in str(both[0]):
            return
        os.kill(pids[1], signal.SIGCONT)
        time.sleep(0.05)

if hvd.rank() == 0:
    threading.Thread(target=stop, daemon=True).start()
try:
    sum_for_ever()
except hvd.CollectiveTimeoutError as error:
    direct = engine.direct()[0] > 0
    print(f"rank {hvd.rank()} direct {direct} shared {is_shared()} {error}", flush=True)
if hvd.rank() == 0:
    place = data.ctypes.data
    del data
    data = hvd.empty(64 << 20, np.float32)
    data[:] = 7
    print(f"used again {data.ctypes.data == place};", flush=True)
    os.kill(pids[1], signal.SIGCONT)
    while not os.path.exists(os.environ["GIVEN_UP"]):
        time.sleep(0.01)
    print(f"still {data.min()} {data.max()};", flush=True)
else:
    open(os.environ["GIVEN_UP"], "w").close()
"""


def test_a_rank_killed_in_the_middle_of_a_direct_sum_is_an_error_at_the_others(job: Job) -> None:
    arguments = ("--termination-grace-seconds", "10", "-np", "3")
    done = job.run(*arguments, *python(PRELUDE + KILLED))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "status code 137" in done.stderr
    found = re.findall(r"rank (\d) direct (\w+) shared \w+ .*lost peer rank 1", done.stdout)
    assert sorted(found) == [("0", "True"), ("2", "True")], done.stdout + done.stderr


def test_a_stopped_rank_writes_late_into_nobody_else_s_tensor(job: Job, tmp_path: Path) -> None:
    job.environment["SIRTAKI_DATA_TIMEOUT_SECONDS"] = "3"
    arguments = ("--termination-grace-seconds", "10", "-np", "2")
    done = job.run(*arguments, *python(PRELUDE + STOPPED), GIVEN_UP=str(tmp_path / "given up"))
    assert "rank 0 direct True shared False" in done.stdout, done.stdout + done.stderr
    assert "for rank 1 (localhost) to write chunk 1" in done.stdout
    assert "used again False;" in done.stdout
    assert "still 7.0 7.0;" in done.stdout, done.stdout + done.stderr
