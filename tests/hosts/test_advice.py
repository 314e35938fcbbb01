"""A job whose steps wait for the network says so, once; others do not."""

from __future__ import annotations

import os
import re
import sys

import pytest

from tests.hosts.bed import Bed
from tests.hosts.jobs import RUN, python, run

# SECONDS of rank 0, and of the others, in which a step computes; bytes of the sum.
PROGRAM = """
import os, time
import numpy as np
import sirtaki as hvd
hvd.init()
own, others, count, steps = map(float, os.environ["STEP"].split())
gradient = np.ones(int(count) // 4, np.float32)
for step in range(int(steps)):
    time.sleep(own if hvd.rank() == 0 else others)
    hvd.allreduce(gradient, name="gradient")
"""
SLOW = "0.005 0.005 100000 120"
SAID = (
    r"\[0\]<stderr>:sirtaki: in \d+ steps rank 0 waited for the network for \d\d% of the time: "
    r"\d+ of \d+ ms\. Without the other hosts, each of the 3 would train faster than all do now\. "
    r"Meanwhile eth0 sent \d\.\d MB/s( of \d+)?.*\. "
    r'Try hvd\.DiLoCo, as the page "Train over a slow network" says '
    r"\(SIRTAKI_ADVICE=0: no such advice\)"
)


def said(bed: Bed, step: str, **more: str) -> list[str]:
    """The lines with advice of a job with these steps on all hosts."""
    done = run(bed, *python(PROGRAM), env={"STEP": step, **more})
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stderr.splitlines() if "waited for the network" in line]


@pytest.fixture
def slow_bed(bed: Bed) -> Bed:
    """The three hosts, with links of 20 Mbit/s."""
    for host in bed.hosts:
        host.throttle("20mbit")
    return bed


def test_a_job_that_waits_for_the_network_says_so_once(slow_bed: Bed) -> None:
    (line,) = said(slow_bed, SLOW)
    assert re.fullmatch(SAID, line), line


def test_advice_can_be_turned_off(slow_bed: Bed) -> None:
    assert said(slow_bed, SLOW, SIRTAKI_ADVICE="0") == []


def test_a_fast_job_says_nothing(bed: Bed) -> None:
    assert said(bed, "0.03 0.03 4000 120") == []


def test_a_job_that_waits_for_a_slow_rank_says_nothing(bed: Bed) -> None:
    assert said(bed, "0 0.04 4000 100") == []


def test_a_job_on_one_host_says_nothing(bed: Bed) -> None:
    environment = {**os.environ, "STEP": "0 0.02 40000000 100"}
    command = (*RUN, "-np", "2", sys.executable, "-c", PROGRAM)
    done = bed.hosts[0].run(*command, env=environment)
    assert done.returncode == 0, done.stderr
    assert "waited for the network" not in done.stderr
