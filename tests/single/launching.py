"""Running the launcher's programs from tests, and finding what they leave behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

HOROVODRUN = (
    sys.executable,
    "-c",
    "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())",
)
SIRTAKI = (sys.executable, "-m", "sirtaki.launch.cli")
LIMIT = 300.0
# Short, so that tests which need SIGKILL do not last.
GRACE = ("--termination-grace-seconds", "0.3")
_MARK = "SIRTAKI_TEST_MARK"
_REMARKS = re.compile(
    r"^\d+ ranks?, [\d.]+ s(, .*)?\n\Z|^\S+: warning: \d+ ranks share \d+ CPUs?,.*\n", re.MULTILINE
)


class Job:
    """A unique mark in the environment of everything a test starts."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.environment = {**os.environ, _MARK: self.mark}

    def run(
        self, *arguments: str, limit: float = LIMIT, **extra: str
    ) -> subprocess.CompletedProcess[str]:
        """Run horovodrun to its end, at most for `limit` seconds; `extra` are more variables.

        See `without_remarks` for what is left out.
        """
        done = subprocess.run(
            [*HOROVODRUN, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            env={**self.environment, **extra},
            check=False,
        )
        done.stderr = without_remarks(done.stderr)
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start horovodrun; its standard output is a pipe, its errors join it."""
        return subprocess.Popen(
            [*HOROVODRUN, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )

    def processes(self) -> dict[int, str]:
        """The command lines of all processes alive that carry the mark."""
        mark = f"{_MARK}={self.mark}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            # A process may end at any time between being listed and being read.
            with contextlib.suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes():
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(entry.name)] = command
        return found

    def wait_until_gone(self) -> None:
        """Return once no process has the mark; kill them and fail when that lasts very long."""
        deadline = time.monotonic() + LIMIT
        while left := self.processes():
            if time.monotonic() > deadline:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"still alive: {left}")
            time.sleep(0.02)


def without_remarks(stderr: str) -> str:
    """Leave out how long the job took, and that there are few CPUs, which differs by machine."""
    return _REMARKS.sub("", stderr)


def python(code: str) -> tuple[str, str, str]:
    """The command that runs `code` in a worker."""
    return (sys.executable, "-c", code)
