"""Communication beside the computation is not exposed, a call that blocks is: seen from outside.

In both jobs an operation of rank 0 is open most of the time, until rank 1 asks for it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.single.launching import LIMIT, SIRTAKI, Job, python

pytestmark = [pytest.mark.job, pytest.mark.slow]

PROGRAM = """
import os, sys, time
import numpy as np
import sirtaki as hvd
hvd.init()
print(f"rank {hvd.rank()} is {os.getpid()};", flush=True)
data = np.ones(1000, np.float32)
while True:
    if hvd.rank() == 1:
        time.sleep(0.06)
    if sys.argv[1] == "blocked":
        hvd.allreduce_(data, name="grad")
    else:
        handle = hvd.allreduce_async_(data, name="grad")
        time.sleep(0.1 if hvd.rank() == 0 else 0.04)
        hvd.synchronize(handle)
"""


def sirtaki(*arguments: str) -> str:
    done = subprocess.run(
        [*SIRTAKI, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def seen(how: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `sirtaki top` and the report of a trace say of rank 0 of such a job."""
    job = Job()
    process = job.start("-np", "2", *python(PROGRAM), how)
    try:
        assert process.stdout is not None
        line = ""
        while "rank 0 is" not in line:
            line = process.stdout.readline()
        pid = line.split("rank 0 is ")[1].split(";")[0]
        path = str(folder / "trace.json")
        sirtaki("trace", "start", pid, "-o", path, "--seconds", "2")
        top = json.loads(sirtaki("top", pid, "--once", "--json"))["ranks"][0]
        report = json.loads(sirtaki("trace", "report", path, "--json"))["times"][0]
        return top, {name: report[name] / report["whole"] for name in ("exposed", "communicating")}
    finally:
        process.kill()
        process.communicate()
        job.wait_until_gone()


def test_communication_behind_computation_is_hidden(tmp_path: Path) -> None:
    top, traced = seen("hidden", tmp_path)
    assert top["communicating"] > 0.4
    assert top["exposed"] < 0.3
    assert top["computing"] == pytest.approx(1 - top["exposed"])
    assert traced["communicating"] > 0.4
    assert traced["exposed"] < 0.3


def test_a_call_that_blocks_is_exposed(tmp_path: Path) -> None:
    top, traced = seen("blocked", tmp_path)
    assert top["exposed"] > 0.5
    assert top["communicating"] > 0.5
    assert traced["exposed"] > 0.5
