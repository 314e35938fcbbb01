"""Ranks that all wait for one another: none of them can go on, and all are told."""

from __future__ import annotations

import re

import pytest

from tests.single.launching import Job, python

START = """
import threading, time
import numpy as np
import sirtaki as hvd
hvd.init()
rank, data = hvd.rank(), np.ones(4)

def told(wait, *arguments, **keywords):
    try:
        wait(*arguments, **keywords)
    except hvd.CollectiveTimeoutError as error:
        print(f"rank {rank} is told: {error};", flush=True)
    else:
        print(f"rank {rank} goes on;", flush=True)
"""

NEVER_MEET = """
if rank == 0: told(hvd.allreduce, data, name="a")
if rank == 1: told(hvd.allreduce, data, name="b")
if rank == 2: told(hvd.recv, data, 0, tag=7)
"""

ONE_CAN_GO_ON = """
# Rank 1 computes.
if rank == 1: time.sleep(4)
told(hvd.allreduce, data, name="first")

# Another thread of rank 1 comes.
if rank == 1:
    thread = threading.Thread(target=hvd.send, args=(data, 1, 5))
    thread.start()
    hvd.recv(data, 1, tag=5)
    thread.join()
    threading.Timer(4, hvd.allreduce, (data,), {"name": "a"}).start()
    told(hvd.allreduce, data, name="b")
else:
    told(hvd.allreduce, data, name="a")
    told(hvd.allreduce, data, name="b")
"""

TWO_ENGINES = """
from datetime import timedelta
import torch
import torch.distributed as dist
dist.init_process_group("sirtaki")
if rank == 1: told(dist.barrier)
work = dist.irecv(torch.ones(1), 1) if rank == 0 else None
try:
    if rank == 0: work.wait(timedelta(seconds=4))
except RuntimeError as error:
    print("its own limit:", error, flush=True)
if rank == 0: told(dist.barrier)
hvd.barrier()
print("now neither can;", flush=True)
if rank == 0: told(hvd.allreduce, data, name="a")
if rank == 1: told(dist.barrier)
"""


def run(job: Job, ranks: int, program: str) -> str:
    job.environment["SIRTAKI_DEADLOCK_SECONDS"] = "2"
    done = job.run("-np", str(ranks), *python(START + program), limit=100)
    return done.stdout + done.stderr


def test_ranks_that_can_never_meet_are_told_who_waits_for_what(job: Job) -> None:
    text = run(job, 3, NEVER_MEET)
    said = re.findall(r"rank (\d) is told: .*(every rank of the job.*);", text)
    assert sorted(rank for rank, _ in said) == ["0", "1", "2"], text
    assert all("waiting with allreduce 'a'" in what for _, what in said), text
    assert all("waiting with allreduce 'b'" in what for _, what in said), text
    assert all("in receive from rank 0 with tag 7" in what for _, what in said), text


def test_ranks_of_which_one_can_go_on_are_left_alone(job: Job) -> None:
    text = run(job, 2, ONE_CAN_GO_ON)
    assert "is told" not in text, text
    assert sorted(re.findall(r"rank (\d) goes on", text)) == ["0", "0", "0", "1", "1"], text


@pytest.mark.slow
def test_groups_count_and_a_wait_with_a_limit_of_its_own_is_left_to_it(job: Job) -> None:
    text = run(job, 2, TWO_ENGINES)
    assert "its own limit: recv from rank 1: Timed out waiting 4 s" in text, text
    assert set(re.findall(r"rank (\d) goes on", text)) == {"0", "1"}, text
    # Each is blocked in another group.
    assert sorted(re.findall(r"rank (\d) is told: .*every rank", text)) == ["0", "1"], text
