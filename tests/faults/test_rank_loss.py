"""A rank that dies or stops: what the others see, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.single.launching import GRACE, SIRTAKI, Job, python

# The survivors report instead of failing, so that the launcher does not end them first.
PRELUDE = """
import os, signal, sys, time
import numpy as np
import sirtaki as hvd

def die(after=0.0):
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGKILL)

def report(error):
    text = f"{type(error).__name__}: {error}"
    open(os.path.join(os.environ["REPORTS"], str(hvd.rank())), "w").write(text)
"""


def reports(job: Job, folder: Path, ranks: int, code: str) -> dict[int, str]:
    """What the ranks that lived reported."""
    # The launcher ends the others once it sees the death; their own error must come first.
    done = job.run(
        "--termination-grace-seconds",
        "10",
        "-np",
        str(ranks),
        *python(PRELUDE + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + code),
        REPORTS=str(folder),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "status code 137" in done.stderr, done.stdout + done.stderr
    return {int(path.name): path.read_text() for path in folder.iterdir()}


def test_a_rank_killed_inside_an_allreduce_is_named_with_the_operation(
    job: Job, tmp_path: Path
) -> None:
    code = """
hvd.init()
if hvd.rank() == 1:
    import threading
    threading.Thread(target=die, args=(0.5,)).start()
try:
    while True:
        hvd.allreduce(np.ones(4 << 20, np.float32), name="grad")
except hvd.PeerLostError as error:
    report(error)
"""
    found = reports(job, tmp_path, 3, code)
    assert sorted(found) == [0, 2]
    for text in found.values():
        assert "lost peer rank 1" in text
        assert "last seen " in text
        # The signal may hit the moment between two calls.
        assert "grad" in text or "no operation was running" in text


def test_a_rank_killed_outside_of_operations_fails_the_next_one(job: Job, tmp_path: Path) -> None:
    code = """
hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    die()
time.sleep(1.5)
try:
    hvd.allreduce(np.ones(3))
except hvd.PeerLostError as error:
    report(error)
"""
    assert "lost peer rank 1" in reports(job, tmp_path, 2, code)[0]


def test_a_pending_operation_fails_at_once_although_its_rank_sleeps(
    job: Job, tmp_path: Path
) -> None:
    code = """
hvd.init()
if hvd.rank() == 1:
    time.sleep(0.5)
    hvd.send(np.array([time.time()]), 0)
    die()
died = np.zeros(1)
handle = hvd.allreduce_async(np.ones(3), name="waits")
hvd.recv(died, 1)
while not hvd.poll(handle):
    time.sleep(0.001)
took = time.time() - died[0]
try:
    hvd.synchronize(handle)
except hvd.PeerLostError as error:
    report(RuntimeError(f"{error} after {took} s"))
"""
    found = reports(job, tmp_path, 2, code)
    assert "lost peer rank 1" in found[0]
    assert "waits" in found[0]
    # Not the time of any timeout; a quiet machine needs milliseconds.
    assert float(found[0].split()[-2]) < 10


def test_more_requests_than_a_stopped_rank_takes_fail_when_it_dies(
    job: Job, tmp_path: Path
) -> None:
    code = """
hvd.init()
other = int(hvd.allgather(np.array([os.getpid()]))[0])
if hvd.rank() == 0:
    time.sleep(60)
os.kill(other, signal.SIGSTOP)
handles = [hvd.allreduce_async(np.ones(3), name=f"gradient of layer {i}") for i in range(1000)]
os.kill(other, signal.SIGKILL)
try:
    hvd.synchronize(handles[0])
except hvd.PeerLostError as error:
    report(error)
"""
    assert "lost peer rank 0" in reports(job, tmp_path, 2, code)[1]


def test_a_dead_rank_is_noticed_though_its_children_live(job: Job, tmp_path: Path) -> None:
    code = """
hvd.init()
if hvd.rank() == 1:
    if os.fork() == 0:
        time.sleep(5)
        os._exit(0)
    die(0.3)
try:
    while True:
        hvd.allreduce(np.ones(3))
except hvd.PeerLostError as error:
    report(error)
"""
    assert "lost peer rank 1" in reports(job, tmp_path, 2, code)[0]


def test_a_rank_killed_during_init_ends_the_job(job: Job) -> None:
    done = job.run(
        "-np", "2", *python(PRELUDE + "die() if '1' == os.environ['HOROVOD_RANK'] else hvd.init()")
    )
    assert done.returncode == 1
    assert "Process 1 exit with status code 137" in done.stderr


def test_a_rank_that_raises_is_named_and_the_others_end(job: Job) -> None:
    code = """
hvd.init()
if hvd.rank() == 1:
    raise RuntimeError("out of luck")
hvd.allreduce(np.ones(3))
"""
    done = job.run("-np", "2", *python(PRELUDE + code))
    assert done.returncode == 1
    assert "[1]<stderr>:RuntimeError: out of luck" in done.stderr


def test_a_rank_that_leaves_early_fails_the_others_with_a_reason(job: Job) -> None:
    code = """
hvd.init()
if hvd.rank() == 0:
    try:
        hvd.allreduce(np.ones(3))
    except hvd.HorovodInternalError as error:
        print("told:", error)
"""
    done = job.run("-np", "2", *python(PRELUDE + code))
    assert done.returncode == 0, done.stderr
    assert "told: the world has been shut down: rank 1" in done.stdout


def test_a_stopped_rank_delays_the_job_and_no_more(job: Job) -> None:
    code = """
import subprocess
hvd.init()
if hvd.rank() == 1:
    pause = f"sleep 0.3; kill -STOP {os.getpid()}; sleep 3; kill -CONT {os.getpid()}"
    subprocess.Popen(["sh", "-c", pause])
total = 0.0
end = time.time() + 4.5
while hvd.allreduce(np.array([time.time() < end], np.int32), op=hvd.Min)[0]:
    total = hvd.allreduce(np.ones(100_000, np.float32), op=hvd.Sum)[0]
print("went on with", total)
"""
    done = job.run("-np", "2", *python(PRELUDE + code))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("went on with 2.0") == 2


def test_nothing_is_left_in_shared_memory(job: Job) -> None:
    before = set(Path("/dev/shm").iterdir())
    code = "hvd.init(); print('up', flush=True); time.sleep(99)"
    running = job.start("-np", "2", *python(PRELUDE + code))
    assert running.stdout is not None
    while "up" not in running.stdout.readline():
        pass
    for pid in job.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.wait()
    assert set(Path("/dev/shm").iterdir()) <= before


@pytest.mark.parametrize("leaves", [0, 1])
def test_a_rank_that_ends_well_without_joining_ends_the_wait_for_it(job: Job, leaves: int) -> None:
    code = f"""
import os
import sirtaki as hvd
if os.environ["HOROVOD_RANK"] == "{leaves}":
    os._exit(0)
hvd.init()
"""
    # Far less than the start timeout is what this test's own limit leaves.
    done = job.run("-np", "3", "--start-timeout", "1000", *python(code))
    assert done.returncode == 1
    assert f"rank {leaves} ended (exit code 0) without joining the others" in done.stderr


def test_ranks_that_end_early_are_no_fault_where_nobody_waits_for_them(job: Job) -> None:
    code = """
import os, time
import sirtaki as hvd
rank = int(os.environ["HOROVOD_RANK"])
if rank < 2:
    time.sleep(1.2)
    hvd.init(comm=[0, 1])
    hvd.barrier()
    time.sleep(1.2)
"""
    done = job.run("-np", "3", *python(code))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("single_copy", ["1", "0"])
def test_a_rank_killed_while_a_message_moves_is_named_with_the_message(
    job: Job, tmp_path: Path, single_copy: str
) -> None:
    code = f"""
os.environ["SIRTAKI_SINGLE_COPY"] = "{single_copy}"
hvd.init()
data = np.ones(64 << 20, np.uint8)
if hvd.rank() == 1:
    import threading
    threading.Thread(target=die, args=(0.5,)).start()
try:
    while True:
        hvd.recv(data, 1, tag=7) if hvd.rank() == 0 else hvd.send(data, 0, tag=7)
except hvd.PeerLostError as error:
    report(error)
"""
    found = reports(job, tmp_path, 2, code)
    assert sorted(found) == [0]
    assert "receive from rank 1 with tag 7" in found[0]
    assert "lost peer rank 1" in found[0]


def test_messages_that_nobody_received_are_told_when_their_receiver_leaves(job: Job) -> None:
    code = """
import numpy as np, sirtaki as hvd
hvd.init()
if hvd.rank() == 0:
    hvd.send(np.ones(3), 1, tag=5)
hvd.barrier()
"""
    done = job.run("-np", "2", *python(code))
    assert done.returncode == 0
    assert "a message of 24 bytes was never received: receive from rank 0 with tag 5" in done.stderr


def test_the_summary_names_who_failed_by_itself_and_not_its_victim(job: Job) -> None:
    # A big process takes longer to end than those that it fails.
    code = """
import atexit, os, sys, time
if os.environ["HOROVOD_RANK"] == "1":
    atexit.register(time.sleep, 2.5)
import numpy as np
import sirtaki as hvd
hvd.init()
if hvd.rank() == 1:
    sys.exit(3)
hvd.allreduce(np.ones(3), name="grad")
"""
    done = job.run("-np", "2", *GRACE, *python(code))
    assert "Process name: rank 1 on localhost\nExit code: 3\n" in done.stderr
    assert "Process 1 exit with status code 3." in done.stderr


def test_a_killed_ranks_last_operations_are_kept(job: Job) -> None:
    code = """
import os, signal
import numpy as np
import sirtaki as hvd
hvd.init()
for step in range(9):
    if hvd.rank() == 1 and step == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce(np.ones(3), name=f"grad{step}")
"""
    done = job.run("-np", "3", *GRACE, *python(code))
    folder = done.stderr.partition("sirtaki postmortem ")[2].split()[0]
    told = subprocess.run([*SIRTAKI, "postmortem", folder], capture_output=True, text=True)
    last = told.stdout.partition("the last operations of rank 1:\n")[2]
    assert "allreduce 'grad7' (24 bytes): done" in last
