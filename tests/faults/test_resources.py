"""What a world costs, and that it gives everything back."""

from __future__ import annotations

import subprocess

import pytest

from tests import needs
from tests.single.launching import HOROVODRUN, LIMIT, Job, python

PRELUDE = """
import os, threading, time
import numpy as np
import sirtaki as hvd

def resident_kib():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])

def held():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
"""

CYCLES = """
def cycles(count):
    for _ in range(count):
        hvd.init()
        hvd.allreduce(np.ones(1000))
        hvd.shutdown()
cycles(30)
before, resident = held(), resident_kib()
cycles(COUNT)
assert held() == before, (held(), before)
grown = resident_kib() - resident
assert grown < LIMIT, f"{grown} KiB more"
print("clean")
"""


@pytest.mark.parametrize(
    ("ranks", "count", "kib"),
    [(1, 200, 2048), (2, 200, 2048), pytest.param(2, 1000, 4096, marks=pytest.mark.slow)],
)
def test_worlds_leak_no_memory_descriptor_or_thread(
    job: Job, ranks: int, count: int, kib: int
) -> None:
    # What the first worlds leave in the allocator is less than that.
    code = CYCLES.replace("COUNT", str(count)).replace("LIMIT", str(kib))
    done = job.run("-np", str(ranks), *python(PRELUDE + code))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("clean") == ranks


def test_init_and_use_add_little_memory(job: Job) -> None:
    code = """
values = np.ones(1 << 20, np.float32)
import sirtaki.core.world.world, sirtaki.numpy.ops  # imported before the measurement
before = resident_kib()
hvd.init()
for _ in range(3):
    hvd.allreduce_(values, op=hvd.Max)
    hvd.allgather(values[:100])
added = resident_kib() - before
hvd.shutdown()
assert added <= 16 * 1024, f"{added} KiB"
print("fits")
"""
    done = job.run("-np", "2", *python(PRELUDE + code))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("fits") == 2


def test_an_idle_world_uses_no_processor(job: Job) -> None:
    code = """
hvd.init()
hvd.allreduce(np.ones(3))
hvd.barrier()
time.sleep(0.2)
start = time.process_time()
time.sleep(3)
used = (time.process_time() - start) / 3
hvd.barrier()
assert used < 0.005, f"{used:.2%} of a core"
print("idle")
"""
    done = job.run("-np", "2", *python(PRELUDE + code))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("idle") == 2


def test_a_stall_is_warned_of_by_tensor_and_rank_and_may_end_the_operation(job: Job) -> None:
    code = """
hvd.init()
if hvd.rank() == 0:
    try:
        hvd.allreduce(np.ones(3), name="lonely")
    except hvd.CollectiveTimeoutError as error:
        print("ended:", error)
else:
    time.sleep(5)
hvd.barrier()
"""
    done = job.run(
        "-np",
        "2",
        *python(PRELUDE + code),
        HOROVOD_STALL_CHECK_TIME_SECONDS="1",
        HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="3",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lonely" in done.stderr
    assert "missing ranks: 1" in done.stderr
    assert "ended: allreduce 'lonely': not submitted within 3 s" in done.stdout


@pytest.mark.parametrize(
    ("wrapper", "told"),
    [
        (["bash", "-c", 'ulimit -f 0; exec "$@"', "bash"], "may have 0 bytes (ulimit -f)"),
        pytest.param(
            ["unshare", "--mount", "bash", "-c", 'mount -t tmpfs none /proc; exec "$@"', "bash"],
            "/proc is not mounted",
            marks=needs.mounting(),
        ),
    ],
    ids=["no files", "no proc"],
)
def test_what_a_job_cannot_do_without_is_named_with_what_to_do(
    wrapper: list[str], told: str
) -> None:
    done = subprocess.run(
        [*wrapper, *HOROVODRUN, "-np", "2", "true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("horovodrun: error: ")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
