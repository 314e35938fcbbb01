"""--output-ranks shows some ranks alone; --debug-rank gives one of them the terminal."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

from tests.single.launching import HOROVODRUN, LIMIT, Job, python

pytestmark = pytest.mark.job

SPEAKS = (
    "import os, sys; rank = os.environ['HOROVOD_RANK']\n"
    "print('out of', rank); print('err of', rank, file=sys.stderr)\n"
)


def test_only_the_chosen_ranks_are_shown_and_files_get_all(tmp_path):
    done = Job().run(
        *("-np", "4", "--output-ranks", "0,2-3", "--tee", str(tmp_path)), *python(SPEAKS)
    )
    assert done.returncode == 0
    shown = [f"[{rank}]<stdout>:out of {rank}" for rank in (0, 2, 3)]
    assert sorted(done.stdout.splitlines()) == shown
    assert "err of 1" not in done.stderr
    assert "err of 2" in done.stderr
    assert sorted((tmp_path / "rank.1.log").read_text().splitlines()) == ["err of 1", "out of 1"]


def test_the_traceback_of_a_rank_that_is_not_shown_is():
    done = Job().run("-np", "2", "--output-ranks", "0", *python(SPEAKS + "[0][int(rank)]\n"))
    assert "[1]<stderr>:IndexError: list index out of range" in done.stderr
    assert "of 1" not in done.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--output-ranks", "2"), "--output-ranks: there is no rank 2 among 2"),
        (("--output-ranks", "a"), "'a' is not a list of ranks such as 0,4-7"),
        (("--output-ranks", "0", "--mpi"), "--output-ranks: with --mpi"),
        (("--debug-rank", "2"), "--debug-rank: there is no rank 2 among 2"),
        (("--debug-rank", "0"), "--debug-rank: standard input is no terminal"),
        (("--debug-rank", "1", "-H", "localhost:1,192.0.2.1:1"), "rank 1 is on 192.0.2.1"),
        (("--debug-rank", "0", "--min-np", "1"), "--debug-rank: not with --mpi"),
    ],
)
def test_ranks_that_cannot_be_chosen_are_refused(flags, message):
    done = Job().run("-np", "2", *flags, *python(""))
    assert done.returncode != 0
    assert message in done.stderr


def test_the_debugged_rank_reads_the_terminal_while_the_others_wait():
    code = (
        "import os, sys, sirtaki\n"
        "if os.environ['HOROVOD_RANK'] == '1': breakpoint()\n"
        "sirtaki.init()\n"
        "print('terminal', sys.stdin.isatty(), 'rank', sirtaki.rank())\n"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*HOROVODRUN, "-np", "2", "--debug-rank", "1", *python(code)],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as launcher:
        os.close(theirs)
        seen = b""
        while b"(Pdb)" not in seen:
            seen += os.read(ours, 1000)
        os.write(ours, b"p 6 * 7\ncontinue\n")
        others, _ = launcher.communicate(timeout=LIMIT)
        while b"rank 1" not in seen:
            seen += os.read(ours, 1000)
    os.close(ours)
    assert launcher.returncode == 0
    assert b"42" in seen
    assert b"terminal True rank 1" in seen
    assert b"[0]<stdout>:terminal False rank 0" in others
