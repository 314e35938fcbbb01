"""A copy of the installed package that tests import in its place, and running them."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Mapping
from os import killpg
from pathlib import Path

import sirtaki
from tools.mutants.suites import ROOT, Suite

# What a test that hangs takes; coverage makes tests slow.
TEST_SECONDS = 60
COVERED_TEST_SECONDS = 300


class PackageCopy:
    """A copy of the installed package that tests import in its place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        installed = Path(sirtaki.__file__).parents[1]
        for package in ("sirtaki", "horovod", "sirtaki_caffe", "caffe"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(installed / package, folder / package, ignore=ignored)

    def run(
        self, suite: Suite, tests: list[str], limit: float, settings: Path | None = None
    ) -> tuple[bool, str]:
        """Run tests of a suite; returns whether they passed, and what they said.

        `settings` are those of coverage, which then notes which test runs which line.
        """
        options = ("-q", "-x", "-p", "no:cacheprovider")
        tracer: tuple[str, ...] = ()
        seconds = TEST_SECONDS
        if settings:
            options += ("-p", "tools.mutants.contexts")
            tracer = ("coverage", "run", f"--rcfile={settings}", "-m")
            seconds = COVERED_TEST_SECONDS
        options += ("-o", f"timeout={seconds}")
        return finished(
            suite.command(tests, options, tracer), limit, suite.environment(self.folder)
        )


def finished(
    command: list[str], limit: float, environment: Mapping[str, str] | None = None
) -> tuple[bool, str]:
    """Run a command, at most `limit` seconds; returns whether it passed, and what it said."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        end(process)
        return False, "did not end"
    except BaseException:
        end(process)
        raise
    return process.returncode == 0, said


def end(process: subprocess.Popen[str]) -> None:
    """End a launcher, which ends its ranks; what does not go is killed."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=10)
    with contextlib.suppress(ProcessLookupError):
        killpg(process.pid, signal.SIGKILL)
    process.communicate()
