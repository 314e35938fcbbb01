"""The guardian that starts before anybody knows its job."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sirtaki.launch.processes.guarding import process


def test_one_that_nobody_takes_ends_with_the_block() -> None:
    with process.guardian_ahead():
        (guardian,) = process._ahead
        assert guardian.program.poll() is None
    assert guardian.program.returncode == 0


def test_the_first_to_take_one_gets_that_of_the_block_and_the_next_another() -> None:
    with process.guardian_ahead():
        (ahead,) = process._ahead
        taken = [process.take_guardian() for _ in range(2)]
    assert taken[0] is ahead
    assert taken[1] is not ahead
    for guardian in taken:
        assert guardian.program.poll() is None
        guardian.control.close()
        assert guardian.program.wait(10) == 0


def test_one_that_has_died_is_not_taken() -> None:
    with process.guardian_ahead():
        (ahead,) = process._ahead
        ahead.program.kill()
        ahead.program.wait()
        guardian = process.take_guardian()
    assert guardian is not ahead
    guardian.control.close()
    assert guardian.program.wait(10) == 0


@pytest.mark.parametrize("flags", [("--help",), ("--no-such-flag",), ("--dry-run", "true")])
def test_a_command_that_starts_nothing_has_ended_it_before_it_ends(flags: tuple[str, ...]) -> None:
    run = (
        "import os, sys; from sirtaki.launch.cli import horovodrun; horovodrun()\n"
        "try: os.waitpid(-1, os.WNOHANG)\n"
        "except ChildProcessError: print('no child')"
    )
    done = subprocess.run(
        [sys.executable, "-c", run, *flags], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("no child\n")


def test_a_launcher_that_is_killed_while_it_loads_leaves_none_behind() -> None:
    ahead = (
        "import os, signal; from sirtaki.launch.processes.guarding import process as g\n"
        "with g.guardian_ahead():\n"
        "    print(g._ahead[0].program.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    with subprocess.Popen([sys.executable, "-c", ahead], stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        guardian = int(launcher.stdout.readline())
    assert launcher.returncode == -signal.SIGKILL
    _await_end(guardian)


def _await_end(pid: int) -> None:
    stat, limit = Path(f"/proc/{pid}/stat"), time.monotonic() + 10
    # Where nobody reaps orphans it stays a zombie.
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < limit
        time.sleep(0.01)
