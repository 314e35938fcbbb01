"""Runs a command of a scene, and shows and reads its output like a user at a terminal."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_SIRTAKI = (sys.executable, "-m", "sirtaki.launch.cli")
# The machine may be busy.
_PATIENCE_SECONDS = 600.0
_END_SECONDS = 30.0
_KEPT_LINES = 30


class SceneError(Exception):
    """A scene did not show what it should."""


class Program:
    """A running `sirtaki` command, whose lines are read as they arrive.

    Args:
        command: The words after `sirtaki`; "python" stands for this interpreter.
        folder: Where it runs.
        shown: Whether to print its lines.
    """

    def __init__(self, command: str, folder: Path, shown: bool = True) -> None:
        self._command = f"sirtaki {command}"
        self._shown = shown
        self._lines: queue.Queue[tuple[float, str] | None] = queue.Queue()
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)
        say(f"$ {self._command}")
        words = [sys.executable if word == "python" else word for word in shlex.split(command)]
        self._process = subprocess.Popen(
            [*_SIRTAKI, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # One compute thread per process, on any machine.
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        threading.Thread(target=self._read, name="sirtaki demo reads", daemon=True).start()

    def _read(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._lines.put((time.monotonic(), line.rstrip("\n")))
        self._lines.put(None)

    def lines(self, quiet: float | None = None) -> Iterator[tuple[float, str]]:
        """Yield the arrival time of each line, and the line, until the command ends.

        Args:
            quiet: Stop after this many seconds without a line; by default that is an error.
        """
        while True:
            try:
                came = self._lines.get(timeout=_PATIENCE_SECONDS if quiet is None else quiet)
            except queue.Empty:
                if quiet is not None:
                    return
                raise self.error(f"printed nothing for {_PATIENCE_SECONDS:g} s") from None
            if came is None:
                self._lines.put(None)  # for later calls
                return
            if self._shown:
                say(came[1])
            self._kept.append(came[1])
            yield came

    def wait_for(self, pattern: str) -> tuple[float, re.Match[str]]:
        """Read until a line matches; return its arrival time, and the match.

        Args:
            pattern: A regular expression, searched for in each line.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        for when, line in self.lines():
            if found := re.search(pattern, line):
                return when, found
            if time.monotonic() > end:
                break
        raise self.error(f"printed no line with {pattern!r}")

    def finish(self) -> None:
        """Read until the command ends, which must succeed."""
        for _ in self.lines():
            pass
        code = self._process.wait(_END_SECONDS)
        if code != 0:
            raise self.error(f"ended with exit code {code}")

    def told(self, text: str) -> bool:
        """Return whether one of the last lines contains a text."""
        return any(text in line for line in self._kept)

    def error(self, what: str) -> SceneError:
        """Return an error with the last lines, if they were not shown.

        Args:
            what: What the command did wrong.
        """
        hidden = [] if self._shown else self._kept
        return SceneError("\n".join([f"{self._command} {what}", *hidden]))

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        """End the command. In a shell's background job SIGINT would have no effect."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def say(text: str = "") -> None:
    """Print a line at once."""
    print(text, flush=True)
