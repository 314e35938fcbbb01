"""The line with which a job ends."""

from __future__ import annotations

import re
import subprocess

import pytest

from sirtaki.launch.output.summary import elastic_summary, summary
from tests.single.launching import HOROVODRUN, LIMIT, python


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            [b"312.0 12.0 9 9", b"312.0 12.0 9 9", b"312.0 0.0 9 9", b"312.2 12.2 9 9"],
            "4 ranks, 312 s, 97 % computing, slowest rank 2 (+4 %)",
        ),
        ([b"8.04 4.02 1 1", b"8.04 4.02 1 1"], "2 ranks, 8.0 s, 50 % computing"),
        # One computes, and the others only wait for it.
        ([b"2.0 2.0 1 1", b"2.0 0.0 1 1"], "2 ranks, 2.0 s, 50 % computing, slowest rank 1"),
        ([b"2.0 2.0 1 1", b"2.0 2.0 1 1"], "2 ranks, 2.0 s, 0 % computing"),
        # Who has asked for few results has waited elsewhere.
        ([b"20.0 0.0 0 5", b"20.0 0.0 0 5"], "2 ranks, 20 s"),
        ([b"20.0 0.0 2 500", b"20.0 0.0 2 500"], "2 ranks, 20 s"),
        ([b"20.0 0.0 0 0", b"20.0 0.0 0 0"], ""),
        ([b"20.0 1.0 5 5", None], ""),
        ([b"20.0 1.0 5 5"], ""),
        ([b"of another version", b"20.0 1.0 5 5"], ""),
    ],
)
def test_the_line_says_only_what_was_measured(told: list[bytes | None], line: str) -> None:
    assert summary(told) == line


def run(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*HOROVODRUN, "-np", "2", *flags, *python(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)


@pytest.mark.job
def test_a_job_ends_with_one_line_that_names_the_slowest_rank() -> None:
    code = (
        "import time, numpy as np, sirtaki as hvd\nhvd.init()\ntime.sleep(0.1 + hvd.rank())\n"
        "hvd.allreduce(np.ones(3), name='grad')"
    )
    done = run(code)
    assert (done.returncode, done.stdout) == (0, "")
    assert re.fullmatch(
        r"2 ranks, \d\.\d s, \d+ % computing, slowest rank 1 \(\+\d+ %\)\n", done.stderr
    )
    assert run("pass").stderr == ""


@pytest.mark.job
def test_a_rank_that_the_others_have_left_has_told_its_times_too() -> None:
    code = (
        "import time, numpy as np, sirtaki as hvd\nhvd.init()\nhvd.barrier()\n"
        "time.sleep(hvd.rank() / 2)\nhvd.shutdown()"
    )
    assert re.fullmatch(r"2 ranks, \d\.\d s, \d+ % computing.*\n", run(code).stderr)


@pytest.mark.job
def test_the_line_adds_up_the_worlds_of_a_process() -> None:
    code = (
        "import time, sirtaki as hvd\nfor pause in (2, 0):\n  hvd.init()\n  hvd.barrier()\n"
        "  time.sleep(pause)\n  hvd.shutdown()"
    )
    assert re.fullmatch(r"2 ranks, [2-9]\.\d s, \d+ % computing.*\n", run(code).stderr)


@pytest.mark.job
def test_an_elastic_job_ends_with_the_number_of_its_worlds() -> None:
    code = "import sirtaki as hvd\nhvd.init()\nhvd.barrier()"
    assert re.fullmatch(r"2 ranks, \d\.\d s, 1 world\n", run(code, "--min-np", "1").stderr)


@pytest.mark.parametrize(
    ("ranks", "seconds", "worlds", "line"),
    [(3, 312.4, 2, "3 ranks, 312 s, 2 worlds"), (1, 4.26, 1, "1 rank, 4.3 s, 1 world")],
)
def test_the_line_of_an_elastic_job(ranks: int, seconds: float, worlds: int, line: str) -> None:
    assert elastic_summary(ranks, seconds, worlds) == line
