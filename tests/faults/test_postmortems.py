"""What ranks did when a job failed: as PyTorch's own tool reads it, and of elastic jobs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.single.launching import GRACE, SIRTAKI, Job, python

pytestmark = needs.installed("torch")

# Of the pair rank 2 does not come; in the whole group rank 1 calls another operation.
DIFFER = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("sirtaki")
pair = dist.new_group([1, 2])
rank, five = dist.get_rank(), torch.ones(5)
dist.all_reduce(five)
dist.all_reduce(five)
if rank == 1:
    waiting = dist.all_reduce(torch.ones(7), group=pair, async_op=True)
try:
    dist.broadcast(five, 0) if rank == 1 else dist.all_reduce(five)
except Exception:
    if rank:
        time.sleep(60)
    raise
"""


def read(folder: Path) -> str:
    """What `torchfrtrace` says of a folder."""
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_the_launcher_and_the_tool_of_pytorch_find_what_ranks_did_differently(
    job: Job, tmp_path: Path
) -> None:
    flags = ("--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "3")
    kept = {"SIRTAKI_POSTMORTEM": str(tmp_path)}
    done = job.run(*flags, *GRACE, "-np", "3", *python(DIFFER), limit=100, **kept)
    # Ranks of a group are called by their numbers in the job.
    assert re.search(
        r"  allreduce 'noname\.0' of group \S+ has waited for 1 s; called by rank 1; "
        r"missing ranks: 2 \(localhost\)\n",
        done.stderr,
    ), done.stderr
    assert "; rank 2 held up rank 1\n" in done.stderr
    [folder] = [path.parent for path in tmp_path.glob("*/postmortem.json")]
    told = read(folder / "torch")
    assert re.search(
        r"Collective sequence number: 3 has errors.*"
        r"Expected collective type: 'all_reduce' does not match found collective type: 'broadcast'",
        told,
        re.DOTALL,
    ), told
    assert re.search(
        r"Not all ranks joining collective, sequence number: 1\n.*missing ranks: \{2\}",
        told,
        re.DOTALL,
    ), told


ELASTIC = """
import os, time
import numpy as np
import sirtaki as hvd
from sirtaki import elastic
from sirtaki.core.operations.objects import broadcast_object

@elastic.run
def train(state):
    hvd.allreduce(np.ones(3), name="grad")
    state.commit()
    if os.environ["SIRTAKI_PROCESS"] == "2":
        time.sleep(60)
    raise ArithmeticError("bad sample")

hvd.init()
train(elastic.ObjectState(broadcast_object, hvd.rank, step=0))
"""


def test_what_the_processes_of_an_elastic_job_did_is_kept_too(job: Job, tmp_path: Path) -> None:
    kept = {"SIRTAKI_POSTMORTEM": str(tmp_path)}
    done = job.run(*GRACE, "-np", "3", "--min-np", "2", *python(ELASTIC), **kept)
    [folder] = re.findall(r"what the ranks did: sirtaki postmortem (\S+)", done.stderr)
    told = subprocess.run(
        [*SIRTAKI, "postmortem", folder], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(
        r"\nthe job was ended: process [01] on localhost ended with code 1; the same error came "
        r"twice after 1 commits: .*bad sample",
        told,
    ), told
    assert re.search(
        r"\n  rank \d \(localhost, process \d+\): .*\n      <string>:13 in train", told
    ), told
