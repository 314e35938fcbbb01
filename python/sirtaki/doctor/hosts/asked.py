"""A host that the doctor checks by a helper, started as the launcher starts its agents."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import Any

import sirtaki
from sirtaki.doctor.hosts.helper import MARK
from sirtaki.launch.hosts.slots import is_local
from sirtaki.launch.starters.ssh import Ssh, explain_end, ssh_command
from sirtaki.rendezvous.words import parse_json

HELPER = "sirtaki.doctor.hosts.helper"
_KEPT_LINES = 5
_END_SECONDS = 5.0
_LOOKS_AT_CLOCK = 8
# Error messages of ssh and the launcher, with their fixes.
_FIXES = (
    ("'ssh' here:", "install ssh on this machine (openssh-client)"),
    ("Connection refused", "start sshd there, or name its port with -p"),
    (
        "Could not resolve",
        "check the spelling; the name must be in DNS, /etc/hosts or ~/.ssh/config",
    ),
    ("Permission denied", "ssh-copy-id {host}, or name your key with -i"),
    ("Host key verification", "ssh-keygen -R {host}, if the machine was reinstalled"),
    ("there is no Python", "give the path of Python there with --remote-python"),
    (
        "is not installed",
        "install {version} there, from the same clone or wheel as here, or give --remote-python",
    ),
    ("runs here", "install {version} there, the same version on all hosts"),
    ("no answer", "try `ssh {host} true`; raise --start-timeout if the login is slow"),
    ("timed out", "check the address, that the machine is on, and that no firewall blocks ssh"),
    (
        "No route to host",
        "check the address, that the machine is on, and the routes of this machine",
    ),
    ("Network is unreachable", "check the address, and the routes of this machine"),
)


class Unreachable(Exception):
    """A host does not answer; the message explains why."""


class AskedHost:
    """The helper on one host. `close` ends it. Raises Unreachable when ssh is not installed."""

    def __init__(self, name: str, ssh: Ssh, start_seconds: float) -> None:
        self.name = name
        self._ssh = ssh
        self._start_seconds = start_seconds
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.local = is_local(name)
        argv = [sys.executable, "-u", "-m", HELPER]
        if not self.local:
            argv = ssh_command(ssh, name, start_seconds, HELPER)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(f"{argv[0]!r} here: {error.strerror}") from None
        self._readers = [
            threading.Thread(target=read, name=f"sirtaki-doctor-{name}", daemon=True)
            for read in (self._read_answers, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    def greet(self) -> None:
        """Wait for the helper's first message. Raises Unreachable."""
        version = self._next(self._start_seconds)["version"]
        if version != sirtaki.__version__:
            raise Unreachable(
                f"Sirtaki {version} is installed there, {sirtaki.__version__} runs here"
            )

    def ask(self, patience: float, /, **request: object) -> dict[str, Any]:
        """Return the answer to a request. Raises Unreachable, ValueError for an error as answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise Unreachable(self._why_ended()) from None
        answer = self._next(patience)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def clock(self) -> tuple[float, float]:
        """Return how many seconds its clock is ahead of ours, and the possible error."""
        looks = []
        for _ in range(_LOOKS_AT_CLOCK):
            begun, before = time.monotonic(), time.time()
            there = self.ask(self._start_seconds, do="clock")["now"]
            took = time.monotonic() - begun
            looks.append((took / 2, there - before - took / 2))
        off, ahead = min(looks)
        return ahead, off

    def close(self) -> None:
        """End the helper."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            # With the proxy command of ssh, which has our pipes, too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join(_END_SECONDS)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _next(self, seconds: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            said = f": {'; '.join(self._lines)}" if self._lines else ""
            raise Unreachable(f"no answer within {seconds:g} s{said}") from None
        if answer is None:
            self._answers.put(None)
            raise Unreachable(self._why_ended())
        return answer

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                if line.startswith(MARK):
                    with contextlib.suppress(ValueError):
                        self._answers.put(parse_json(line[len(MARK) :]))
        finally:
            self._answers.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.strip():
                self._lines.append(line.strip())

    def _why_ended(self) -> str:
        code = self._process.wait()
        self._readers[1].join(_END_SECONDS)
        lines = list(self._lines)
        if any(f"No module named {HELPER.rpartition('.')[0]}" in line for line in lines):
            return (
                f"the Sirtaki there is older and has no doctor for hosts, {sirtaki.__version__} "
                "runs here"
            )
        return explain_end(self._ssh, code, lines)


def fix_of(host: str, why: str) -> str:
    """Return the fix for a host that does not answer."""
    for words, fix in _FIXES:
        if words in why:
            return fix.format(host=host, version=sirtaki.__version__)
    return f"try `ssh {host} true`, which must not ask anything"
