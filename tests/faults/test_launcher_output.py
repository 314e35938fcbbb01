"""Whoever reads the launcher's output, or does not: nothing is lost, and signals are heard."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
import time

import pytest

from tests.single.launching import GRACE, HOROVODRUN, LIMIT, Job, python

# The pipe has room for 64 KiB, of which pieces that do not fill a page leave some.
_NEARLY_FULL = 32768
ENDLESS = "while True: print('x' * 99, flush=True)"


def start(job: Job, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
    """A launcher whose stdout and stderr are pipes that nobody reads yet."""
    return subprocess.Popen(
        [*HOROVODRUN, *GRACE, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**job.environment, **more},
    )


def wait_until_stuck(launcher: subprocess.Popen[bytes]) -> None:
    """Return once the pipe from the launcher is as good as full and stays so."""
    assert launcher.stdout is not None
    before = 0
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        (unread,) = struct.unpack("i", fcntl.ioctl(launcher.stdout, termios.FIONREAD, b"\0" * 4))
        if unread == before and unread > _NEARLY_FULL:
            return
        before = unread
        time.sleep(0.5)
    raise AssertionError("the launcher never waits for its reader")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_job_whose_output_nobody_reads(job: Job, number: signal.Signals) -> None:
    with start(job, "-np", "2", *python(ENDLESS)) as launcher:
        wait_until_stuck(launcher)
        launcher.send_signal(number)
        try:
            assert launcher.wait(LIMIT) == 128 + number
        finally:
            launcher.kill()


def test_a_second_signal_is_heard_though_nobody_reads_the_output(job: Job) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENDLESS
    grace = ("--termination-grace-seconds", "500")
    with start(job, "-np", "2", *grace, *python(code)) as launcher:
        wait_until_stuck(launcher)
        try:
            launcher.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            launcher.send_signal(signal.SIGTERM)
            assert launcher.wait(LIMIT) == 128 + signal.SIGTERM
        finally:
            launcher.kill()


def test_ctrl_z_stops_a_launcher_whose_output_nobody_reads(job: Job) -> None:
    with start(job, "-np", "1", *python(ENDLESS)) as launcher:
        wait_until_stuck(launcher)
        try:
            launcher.send_signal(signal.SIGTSTP)
            _, status = os.waitpid(launcher.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            launcher.send_signal(signal.SIGCONT)
            launcher.send_signal(signal.SIGTERM)
            assert launcher.wait(LIMIT) == 128 + signal.SIGTERM
        finally:
            launcher.kill()


def test_a_slow_reader_gets_everything(job: Job) -> None:
    code = "for i in range(20000): print('x' * 99, i)"
    with start(job, "-np", "1", *python(code)) as launcher:
        wait_until_stuck(launcher)
        output, _ = launcher.communicate(timeout=LIMIT)
        assert launcher.returncode == 0
    assert len(output.splitlines()) == 20000
