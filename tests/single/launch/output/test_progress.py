"""The line that says what a job waits for, on a terminal and nowhere else."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
from pathlib import Path

import pytest

from sirtaki.launch.errors import JobError
from sirtaki.launch.output import progress
from sirtaki.launch.output.output import Outputs
from sirtaki.launch.output.progress import Progress
from sirtaki.launch.processes.awaited import ABSENT_SECONDS
from sirtaki.launch.processes.events import HostJob, Process
from sirtaki.launch.processes.remote import RemoteProcesses
from sirtaki.launch.processes.supervise import Supervisor
from sirtaki.launch.starters.ssh_channel import SshChannel
from sirtaki.rendezvous.stores.store import open_store
from sirtaki.rendezvous.stores.unix_store import UnixStoreServer
from sirtaki.rendezvous.world.membership import Membership
from tests.single.launching import GRACE, HOROVODRUN, Job, python

# Rank 1 imports for long; nobody prints before both have met.
LATE = """
import os, time, sirtaki as hvd
if os.environ["HOROVOD_RANK"] == "1": time.sleep(2.5)
hvd.init()
print("trains")
"""


def rest_of(terminal: int) -> str:
    """All that was written to a terminal that its writers have closed; a read may give a part."""
    written = b""
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 1 << 16):
            written += data
    os.close(terminal)
    return written.decode()


def on_a_terminal(job: Job, command: tuple[str, ...], **extra: str) -> str:
    """All that a command of a job writes to its terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, {**job.environment, "NO_COLOR": "1", **extra})
    written = b""
    # Linux ends a terminal that nobody has open with EIO.
    while data := read(terminal):
        written += data
    os.close(terminal)
    os.waitpid(pid, 0)
    return written.decode()


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def screen(written: str) -> list[str]:
    """What stands on the screen in the end."""
    lines = [""]
    column = 0
    for piece in re.findall(r"\r|\n|\x1b\[K|[^\r\n\x1b]+", written):
        if piece == "\r":
            column = 0
        elif piece == "\n":
            lines.append("")
            column = 0
        elif piece == "\x1b[K":
            lines[-1] = lines[-1][:column]
        else:
            lines[-1] = lines[-1][:column] + piece + lines[-1][column + len(piece) :]
            column += len(piece)
    return [line for line in lines if line]


def test_it_counts_the_ranks_that_have_joined_and_leaves_nothing_behind(job: Job) -> None:
    written = on_a_terminal(job, (*HOROVODRUN, *GRACE, "-np", "2", *python(LATE)))
    assert "1 of 2 ranks are in init()" in written
    assert sorted(screen(written)) == ["[0]<stdout>:trains", "[1]<stdout>:trains"]


def test_it_ends_with_the_first_output_of_a_rank(job: Job) -> None:
    code = "import time; time.sleep(1.5); print('first', flush=True); time.sleep(1.5)"
    written = on_a_terminal(job, (*HOROVODRUN, *GRACE, "-np", "2", *python(code)))
    before, _, after = written.partition("<stdout>:first")
    assert "starting 2 ranks, no output yet" in before
    assert "starting" not in after
    assert sorted(screen(written)) == ["[0]<stdout>:first", "[1]<stdout>:first"]


def test_it_ends_with_a_job_that_prints_nothing(job: Job) -> None:
    command = (*HOROVODRUN, *GRACE, "-np", "2", "sleep", "1.5")
    written = on_a_terminal(job, command)
    assert "starting 2 ranks" in written
    assert screen(written) == []


@pytest.mark.parametrize(
    ("flags", "term"), [(("--verbose",), "xterm"), ((), "dumb")], ids=["verbose", "dumb"]
)
def test_it_is_not_wanted_everywhere(job: Job, flags: tuple[str, ...], term: str) -> None:
    command = (*HOROVODRUN, *GRACE, "-np", "2", *flags, "sleep", "1.5")
    assert "starting 2 ranks" not in on_a_terminal(job, command, TERM=term)


def test_it_keeps_off_the_terminal_while_another_program_is_in_the_foreground(job: Job) -> None:
    shell = f"set -m; '{sys.executable}' -m sirtaki.launch.cli run -np 2 sleep 1.5 & wait"
    assert "starting 2 ranks" not in on_a_terminal(job, ("/bin/bash", "-c", shell))


def test_it_is_not_in_a_file(job: Job, tmp_path: Path) -> None:
    file = tmp_path / "errors"
    command = f"'{sys.executable}' -m sirtaki.launch.cli run -np 2 sleep 1.5 2>'{file}'"
    assert on_a_terminal(job, ("/bin/sh", "-c", command)) == ""
    assert file.read_text() == ""


def test_it_names_the_hosts_that_have_not_answered() -> None:
    reader, writer = pty.openpty()
    channel = SshChannel(["sleep", "600"], lambda code, lines: "", 30.0)
    job = HostJob([], {}, "/", 1, bytes(32), 0.3)
    hosts = [RemoteProcesses("far", [Process(1, 0, {}, {})], channel, job)]
    with os.fdopen(writer, "w") as terminal:
        outputs, progress = Outputs(2, terminal, terminal), Progress(terminal, 2, 2)
        late = ABSENT_SECONDS + 0.5
        supervisor = Supervisor(hosts, outputs, None, late, lambda: False, progress=progress)
        with pytest.raises(JobError, match="no answer from far"):
            supervisor.run()
    written = rest_of(reader)
    assert "waiting for 1 of 2 hosts: far (1 s)" in written
    # It stands there already, so that no line need say it.
    assert screen(written) == []


def test_a_long_line_is_cut_so_that_it_can_be_erased() -> None:
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as terminal:
        progress = Progress(terminal, 40, 40)
        progress._due = 0.0
        progress.update([f"node{number}" for number in range(40)])
        progress.end()
    written = rest_of(reader)
    longest = max(map(len, re.split(r"\r|\x1b\[K", written)))
    assert longest == 79
    assert screen(written) == []


def test_a_store_counts_the_members_that_have_come_on_one_host() -> None:
    wanted = Membership.of(0, range(3))
    world = f"world/{wanted.name}/1"
    with UnixStoreServer() as server:
        store = open_store(server.address, 10.0)
        assert server.joined(wanted) == 0
        store.set(f"{world}/leader", b"@name")
        assert server.joined(wanted) == 1
        store.get(f"{world}/leader", 10.0)
        assert server.joined(wanted) == 2
        store.close()


def test_a_store_counts_the_hosts_whose_ranks_have_all_come() -> None:
    wanted = Membership.of(0, range(6))
    world = f"world/{wanted.name}/1"
    with UnixStoreServer() as server:
        store = open_store(server.address, 10.0)
        store.set(f"{world}/host/4", b"ranks 4 and 5")
        assert server.joined(wanted) == 1
        # Rank 0 has all of its own host and asks for the next.
        store.get(f"{world}/host/4", 10.0)
        assert server.joined(wanted) == 2
        store.close()


@pytest.mark.parametrize(("group", "shown"), [(os.getpgrp(), True), (os.getpgrp() + 1, False)])
def test_only_a_job_in_the_foreground_writes_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, group: int, shown: bool
) -> None:
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: group)
    assert progress._in_foreground(0) is shown
