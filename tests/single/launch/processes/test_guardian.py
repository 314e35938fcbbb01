"""The guardian that starts before anybody knows its job."""

from __future__ import annotations

import errno
import marshal
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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


def ended(guardian: process.GuardianProcess, job: dict[str, object], ranks: int) -> list[Any]:
    """What the guardian of a job tells until it ends."""
    told = {"grace": 1.0, "room": 64, "open_files": 64, "together": False, "silent_seconds": 0.0}
    start = [{"rank": rank, "environment": {}, "cpus": []} for rank in range(ranks)]
    with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as secret:
        marshal.dump({"environment": {}, **told, **job}, file)
        file.seek(0)
        socket.send_fds(guardian.control, [b"job"], [file.fileno(), secret.fileno()])
    with tempfile.TemporaryFile() as file:
        marshal.dump([{**each, "terminal": None} for each in start], file)
        file.seek(0)
        socket.send_fds(guardian.control, [b"start"], [file.fileno()])
    events = []
    while data := guardian.control.recv(4096):
        events.append(marshal.loads(data))
    guardian.program.wait(20)
    guardian.control.close()
    return events


@pytest.mark.parametrize(
    ("command", "environment"),
    [(["true", "a\0b"], {}), (["true"], {"": "x"}), (["true"], {"a": "b\0"})],
)
def test_what_no_program_takes_is_told_and_is_no_exit_code(
    command: list[str], environment: dict[str, str]
) -> None:
    job = {"command": command, "environment": {"PATH": "/bin:/usr/bin", **environment}}
    events = ended(process.GuardianProcess(), job, 1)
    assert [each["errno"] for each in events if each["event"] == "failed"] == [errno.EINVAL]


@pytest.mark.parametrize(("silent", "kinds"), [(0.0, {"failed"}), (60.0, {"said", "exited"})])
def test_a_shortage_of_descriptors_is_told_and_leaves_the_guardian_alive(
    silent: float, kinds: set[str]
) -> None:
    job = {"command": ["sleep", "0.1"], "room": 14, "silent_seconds": silent}
    job["environment"] = {"PATH": "/bin:/usr/bin"}
    guardian = process.GuardianProcess()
    events = ended(guardian, job, 6)
    started = {each["rank"] for each in events if each["event"] == "started"}
    others = {each["event"] for each in events if each["rank"] not in started}
    assert started != set(range(6))
    assert others == kinds
    assert guardian.program.returncode == 0
