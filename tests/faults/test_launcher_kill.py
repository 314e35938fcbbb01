"""Whatever ends a job, no process of it stays behind."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.single.launching import GRACE, HOROVODRUN, LIMIT, Job, python

# In short pieces: Python notices a signal that comes just before a sleep begins when that ends.
SLEEP = "import time; print('ready', flush=True); [time.sleep(0.1) for _ in range(6000)]"
STUBBORN = (
    "import signal, time\n"
    "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\n"
    "    signal.signal(number, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)"
)
# A worker whose children leave its session and its parenthood, and do not mind SIGTERM.
DAEMONS = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0: time.sleep(600)\n"
    "    os._exit(0)\n"
    "os.wait()\n"
)
TREES = {
    "one process": python(SLEEP),
    "a shell around it": ("bash", "-c", f'{sys.executable} -c "{SLEEP}"; true'),
    "a program that starts two": python(
        "import subprocess, sys\n"
        f"children = [subprocess.Popen([sys.executable, '-c', {SLEEP!r}]) for _ in 'ab']\n"
        "[child.wait() for child in children]"
    ),
    "daemons": python(DAEMONS + SLEEP),
    "stubborn": python(STUBBORN),
}


# Each rank is one of them.
ALL_TREES = (
    "bash",
    "-c",
    "case $HOROVOD_RANK in\n"
    + "".join(f"{rank}) exec {shlex.join(tree)};;\n" for rank, tree in enumerate(TREES.values()))
    + "*) echo ready $$; exec sleep 600;;\nesac",
)


@contextlib.contextmanager
def running(job: Job, *arguments: str, size: int = 2) -> Iterator[subprocess.Popen[str]]:
    """A job whose every rank has said that it is ready."""
    launcher = job.start("-np", str(size), *GRACE, *arguments)
    assert launcher.stdout is not None
    with launcher:
        ready: set[str] = set()
        while len(ready) < size:
            line = launcher.stdout.readline()
            assert line, "the job ended before its ranks were ready"
            if "ready" in line:
                ready.add(line.partition("]")[0])
        try:
            yield launcher
        finally:
            launcher.kill()


def pids(job: Job, text: str) -> list[int]:
    """Processes of the job whose command line contains `text`."""
    return [pid for pid, command in job.processes().items() if text in command]


def test_killing_the_launcher_kills_everything(job: Job) -> None:
    with running(job, *ALL_TREES, size=len(TREES)) as launcher:
        launcher.kill()
        launcher.wait(LIMIT)
        job.wait_until_gone()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_launcher_ends_everything(
    job: Job, number: signal.Signals, code: int
) -> None:
    with running(job, *ALL_TREES, size=len(TREES)) as launcher:
        launcher.send_signal(number)
        output, _ = launcher.communicate(timeout=LIMIT)
        assert launcher.returncode == code
        assert f"{number.name} received" in output
        assert "Traceback" not in output.replace("]<stderr>:Traceback", "")
        assert not job.processes()


def test_a_second_signal_does_not_wait_for_the_grace(job: Job) -> None:
    grace = ("--termination-grace-seconds", "500")
    with running(job, *grace, *python(STUBBORN)) as launcher:
        launcher.send_signal(signal.SIGINT)
        assert launcher.stdout is not None
        assert "SIGINT received" in launcher.stdout.readline()
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(LIMIT) == 130
        assert not job.processes()


def test_workers_are_asked_before_they_are_killed(job: Job, tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal, sys, time\n"
        "def save(*_):\n"
        f"    pathlib.Path({str(tmp_path)!r}, os.environ['HOROVOD_RANK']).write_text('saved')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n" + SLEEP
    )
    with running(job, "--termination-grace-seconds", "60", *python(code)) as launcher:
        launcher.kill()
        job.wait_until_gone()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_stopped_workers_are_ended_too(job: Job) -> None:
    with running(job, *python(SLEEP)) as launcher:
        for pid in pids(job, "ready"):
            if pid != launcher.pid:
                os.kill(pid, signal.SIGSTOP)
        launcher.terminate()
        assert launcher.wait(LIMIT) == 143
        assert not job.processes()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_worker_ends_the_others_and_is_named(job: Job, number: signal.Signals) -> None:
    last = len(TREES)
    launcher = job.start("-np", str(last + 1), *GRACE, *ALL_TREES)
    assert launcher.stdout is not None
    with launcher:
        ready: dict[str, str] = {}
        while len(ready) <= last:
            line = launcher.stdout.readline()
            assert line
            rank, _, said = line.partition("<stdout>:ready")
            if said:
                ready[rank] = said
        os.kill(int(ready[f"[{last}]"]), number)
        output, _ = launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == 1
    assert f"Process {last} exit with status code {128 + number}." in output
    assert f"Process name: rank {last} on localhost" in output
    assert f"killed by {number.name}" in output
    assert not job.processes()


def test_a_worker_that_fails_takes_its_own_children_along(job: Job) -> None:
    done = job.run("-np", "1", *GRACE, *python(DAEMONS + "sys.exit(7)"))
    assert done.returncode == 1
    assert not job.processes()


def test_what_workers_leave_running_ends_with_the_job(job: Job) -> None:
    done = job.run("-np", "2", *GRACE, *python(DAEMONS))
    assert done.returncode == 0
    assert not job.processes()


def test_a_killed_guardian_ends_the_job_with_an_error(job: Job) -> None:
    with running(job, *python(SLEEP)) as launcher:
        (guardian,) = pids(job, "guardian.py")
        os.kill(guardian, signal.SIGKILL)
        output, _ = launcher.communicate(timeout=LIMIT)
        assert launcher.returncode == 1
        assert "watches the workers" in output
        job.wait_until_gone()


def test_a_reader_that_goes_away_ends_the_job_quietly(job: Job) -> None:
    code = "while True: print('line', flush=True)"
    launcher = subprocess.Popen(
        [*HOROVODRUN, "-np", "2", *GRACE, *python(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=job.environment,
    )
    assert launcher.stdout is not None
    assert launcher.stderr is not None
    launcher.stdout.readline()
    launcher.stdout.close()
    errors = launcher.stderr.read()
    assert launcher.wait(LIMIT) == 128 + signal.SIGPIPE
    launcher.stderr.close()
    assert "BrokenPipe" not in errors.replace("]<stderr>:BrokenPipe", "")


# A shell without job control starts what is in the background with SIGINT ignored.
BACKGROUND = """
import fcntl, signal, sys, termios
if terminal := int(sys.argv.pop()):
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_IGN)
"""


def in_the_background(job: Job, terminal: int) -> subprocess.Popen[str]:
    flags = ("-np", "1", *GRACE, *python(SLEEP), str(terminal))
    return subprocess.Popen(
        [sys.executable, "-c", BACKGROUND + HOROVODRUN[2], *flags],
        stdout=subprocess.PIPE,
        text=True,
        env=job.environment,
        start_new_session=True,
        pass_fds=(terminal,) if terminal else (),
    )


def test_a_job_in_the_background_of_a_terminal_keeps_ignoring_ctrl_c(job: Job) -> None:
    master, terminal = os.openpty()
    launcher = in_the_background(job, terminal)
    assert launcher.stdout is not None
    with launcher:
        assert "ready" in launcher.stdout.readline()
        launcher.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            launcher.wait(0.5)
        launcher.terminate()
        assert launcher.wait(LIMIT) == 143
    os.close(terminal)
    os.close(master)


def test_a_job_in_the_background_of_a_batch_script_takes_sigint(job: Job) -> None:
    launcher = in_the_background(job, 0)
    assert launcher.stdout is not None
    with launcher:
        assert "ready" in launcher.stdout.readline()
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(LIMIT) == 130


def test_a_killed_launcher_in_the_middle_of_a_start_leaves_nothing(job: Job) -> None:
    for delay in (0.02, 0.06, 0.1, 0.14, 0.2):
        launcher = job.start("-np", "8", *GRACE, *python(SLEEP))
        with launcher:
            time.sleep(delay)
            launcher.kill()
        job.wait_until_gone()


def test_a_job_goes_on_without_the_file_for_which_the_disk_is_full(
    job: Job, tmp_path: Path
) -> None:
    # A limit to the size of files stands in for a full disk.
    limited = ("/bin/sh", "-c", 'ulimit -f 8192 && exec "$0" "$@"', *HOROVODRUN)
    output = ("--output-filename", str(tmp_path))
    done = subprocess.run(
        [
            *limited,
            "-np",
            "1",
            *GRACE,
            *output,
            *python("print('x' * (1 << 23)); print('the end')"),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=job.environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the end\n")
    assert re.search(r"rank\.0/stdout.*File too large", done.stderr), done.stderr
    assert not job.processes()


def test_processes_that_do_not_start_in_time_are_reported(job: Job) -> None:
    done = job.run("-np", "2", *GRACE, "--start-timeout", "0", *python(SLEEP))
    assert done.returncode == 1
    assert "did not start within 0 s" in done.stderr
    assert not job.processes()
