"""Execution of a shell command that ends together with all its descendants."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, TextIO

from sirtaki.launch.output.output import timestamp
from sirtaki.launch.processes.guarding.workers import descendants

GRACEFUL_TERMINATION_TIME_S = 5
_LOOK_SECONDS = 0.1


def execute(
    command: str | Sequence[str],
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    index: int | None = None,
    events: Sequence[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Run a command, given as a shell line or words, and return its exit code.

    stdout, stderr: files for its output, default ours. index: a prefix of every line. events:
    setting any of them ends the command, with SIGTERM first.
    """
    process = subprocess.Popen(
        command,
        shell=isinstance(command, str),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        errors="replace",
        start_new_session=True,
    )
    readers = []
    targets = ((process.stdout, stdout or sys.stdout), (process.stderr, stderr or sys.stderr))
    for name, (source, target) in zip(("stdout", "stderr"), targets, strict=True):
        front = "" if index is None else f"[{index}]<{name}>:"
        arguments = (source, target, front, prefix_output_with_timestamp)
        readers.append(threading.Thread(target=_forward, args=arguments, daemon=True))
        readers[-1].start()
    try:
        while process.poll() is None:
            if any(event.is_set() for event in events or ()):
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_SECONDS if events else None)
    finally:
        _end(process)
    for reader in readers:
        reader.join()
    return process.returncode


def _forward(source: IO[str], target: TextIO, front: str, timestamps: bool) -> None:
    with source:
        for line in source:
            stamp = timestamp() if timestamps and front else ""
            target.write(stamp + front + line)
            target.flush()


def _end(process: subprocess.Popen[str]) -> None:
    """End the command, if it runs, and its descendants."""
    if process.poll() is None:
        _signal([process.pid, *descendants(process.pid)], signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACEFUL_TERMINATION_TIME_S)
        _signal([process.pid, *descendants(process.pid)], signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
