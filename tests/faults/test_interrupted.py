"""What a signal handler raises while a call waits: it arrives, and the engine keeps the tensors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.single.launching import Job, python

PROGRAM = Path(__file__).with_name("interrupted.py")
SEED = os.environ.get("SIRTAKI_TEST_SEED", "0")


# Then the program that interrupts every operation.
AGAIN = """
import runpy, signal, sys
import numpy as np
import torch
import torch.distributed as dist
import sirtaki, sirtaki.torch as hvd

class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
sys.argv = sys.argv[1:]

def interrupted(wait, *arguments):
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        wait(*arguments)
    except Late as error:
        print(type(error).__name__, end=" ")
    sirtaki.send(np.zeros(1), 0, 9)

hvd.init()
dist.init_process_group("sirtaki")
late_one = hvd.rank() == 0
floats, doubles = torch.full((10,), 2.0)[::2], torch.full((3,), 3.0, dtype=torch.float64)
ours, theirs = torch.full((8,), 4.0)[::2], torch.zeros(8)[::2]
sent = torch.full((4,), 5.0)
if late_one:
    sirtaki.recv(np.zeros(1), 1, 9)
handle = hvd.grouped_allreduce_async_([floats, doubles], op=hvd.Sum)
if not late_one:
    interrupted(hvd.synchronize, handle)
hvd.synchronize(handle)
if late_one:
    sirtaki.recv(np.zeros(1), 1, 9)
work = dist.all_reduce(ours, async_op=True)
if not late_one:
    interrupted(work.wait)
work.wait()
if late_one:
    sirtaki.recv(np.zeros(1), 1, 9)
    dist.send(sent, 1)
else:
    work = dist.irecv(theirs, 0)
    interrupted(work.wait)
    work.wait()
    print(floats.tolist(), doubles.tolist(), ours.tolist(), theirs.tolist(), ";", flush=True)
dist.destroy_process_group()
runpy.run_path(sys.argv[0], run_name="__main__")
"""

GIVEN_UP = """
import signal
import numpy as np
import sirtaki as hvd

class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
hvd.init()
first, second = np.zeros(3), np.zeros(3)
if hvd.rank() == 1:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        hvd.recv(first, 0, tag=3)
    except Late:
        hvd.send(np.zeros(1), 0, tag=9)
    hvd.recv(second, 0, tag=3)
    print(first.tolist(), second.tolist(), ";", flush=True)
else:
    hvd.recv(np.zeros(1), 1, tag=9)
    hvd.send(np.full(3, 7.0), 1, tag=3)
"""


@pytest.fixture(scope="module")
def with_torch() -> subprocess.CompletedProcess[str]:
    """A job that imports PyTorch once for all that is interrupted there."""
    program = (*python(AGAIN), str(PROGRAM), "torch,distributed", "1", SEED)
    return Job().run("-np", "2", *program, limit=240)


def check(done: subprocess.CompletedProcess[str], *bindings: str) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    for binding in bindings:
        found = re.search(rf"{binding}: (\d+) calls; 0 arrays were overwritten", done.stdout)
        assert found is not None, done.stdout + done.stderr
        assert int(found[1]) > 0


@pytest.mark.parametrize(
    ("binding", "rounds"),
    [
        ("numpy", 3),
        pytest.param("numpy", 20, marks=pytest.mark.nightly),
        pytest.param("torch", 10, marks=pytest.mark.nightly),
        pytest.param("distributed", 5, marks=pytest.mark.nightly),
        pytest.param("tensorflow", 5, marks=pytest.mark.slow),
        pytest.param("jax", 5, marks=pytest.mark.slow),
    ],
)
def test_memory_of_an_interrupted_call_is_nobody_elses(job: Job, binding: str, rounds: int) -> None:
    if binding in ("tensorflow", "jax"):
        needs.package(binding)
    # TensorFlow takes 12 s on an idle machine and 50 s beside other tests.
    program = (sys.executable, str(PROGRAM), binding, str(rounds), SEED)
    check(job.run("-np", "2", *program, limit=240), binding)


@pytest.mark.slow
def test_memory_of_an_interrupted_call_of_pytorch_is_nobody_elses(
    with_torch: subprocess.CompletedProcess[str],
) -> None:
    check(with_torch, "torch", "distributed")


def test_a_second_wait_after_an_interrupted_one_fills_the_callers_tensors(
    with_torch: subprocess.CompletedProcess[str],
) -> None:
    expected = f"Late Late Late {[4.0] * 5} {[6.0] * 3} {[8.0] * 4} {[5.0] * 4} ;"
    assert expected in with_torch.stdout, with_torch.stdout + with_torch.stderr


def test_the_message_of_an_interrupted_receive_goes_to_the_next_one(job: Job) -> None:
    done = job.run("-np", "2", *python(GIVEN_UP))
    assert f"{[0.0] * 3} {[7.0] * 3} ;" in done.stdout, done.stdout + done.stderr
