"""What stands between Hydra and a rank: lines are whole, and a rank that fails ends the job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from sirtaki.launch.processes.guarding import mpi_rank

pytestmark = pytest.mark.job

LIMIT = 150.0


class Rank:
    """A rank of Hydra's: `hydra` is our end of what it calls PMI_FD."""

    def __init__(self, *command: str) -> None:
        self.hydra, theirs = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", mpi_rank.__file__, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PMI_RANK": "3", "PMI_FD": str(theirs)},
            pass_fds=[theirs],
            start_new_session=True,
        )
        os.close(theirs)

    def pieces(self) -> Iterator[bytes]:
        """What Hydra would put its label before."""
        assert self.process.stdout is not None
        while piece := os.read(self.process.stdout.fileno(), 1 << 14):
            yield piece

    def end(self) -> tuple[int, str, bytes]:
        """Its exit code, what it has said of itself, and what it has told Hydra."""
        errors = self.process.communicate(timeout=LIMIT)[1].decode()
        told = os.read(self.hydra, 1 << 12)
        os.close(self.hydra)
        return self.process.returncode, errors, told


def shell(script: str) -> Rank:
    return Rank("sh", "-c", script)


def test_pieces_of_a_line_become_one() -> None:
    rank = shell("printf step; sleep 0.02; printf ' 1\\n'; sleep 0.02; printf 'last'")
    assert list(rank.pieces()) == [b"step 1\n", b"last"]
    assert rank.end() == (0, "", b"")


def test_a_line_whose_end_does_not_come_is_shown() -> None:
    rank = shell("printf 'name? '; sleep 60")
    assert next(rank.pieces()) == b"name? "
    os.killpg(rank.process.pid, signal.SIGKILL)
    rank.end()


def test_lines_are_read_whole_whatever_the_reader_is_late_for() -> None:
    code = "for i in range(300): print('x' * 53 * i)"
    rank = Rank(sys.executable, "-c", code)
    time.sleep(0.2)
    pieces = list(rank.pieces())
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert b"".join(pieces) == b"".join(b"x" * 53 * i + b"\n" for i in range(300))
    rank.end()


@pytest.mark.parametrize(
    ("script", "code", "how"),
    [("exit 7", 7, "code 7"), ("exit 255", 255, "code 255"), ("kill -9 $$", 137, "SIGKILL")],
)
def test_a_rank_that_fails_ends_the_job(script: str, code: int, how: str) -> None:
    ended, said, told = shell(script).end()
    assert (ended, told) == (code, b"cmd=abort exitcode=%d\n" % code)
    assert said == f"horovodrun: rank 3 on {os.uname().nodename} ended with {how}\n"


def test_a_command_that_cannot_be_executed_ends_the_job() -> None:
    ended, said, told = Rank("no-such-program").end()
    assert (ended, told) == (127, b"cmd=abort exitcode=127\n")
    assert "cannot execute 'no-such-program': No such file or directory" in said


def test_a_rank_that_is_asked_to_end_has_its_time() -> None:
    rank = shell("trap 'sleep 0.1; echo saved; exit 5' TERM; sleep 60 & echo ready; wait")
    pieces = rank.pieces()
    assert next(pieces) == b"ready\n"
    os.killpg(rank.process.pid, signal.SIGTERM)
    assert next(pieces) == b"saved\n"
    assert rank.end() == (5, "", b"")
