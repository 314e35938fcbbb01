"""The channel to an agent over ssh, at a rate that the sshd of a jump host accepts."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.processes.channels import Explain
from sirtaki.rendezvous.threads import start_thread

# Beyond 10 connections that have not logged in, sshd rejects some at random (MaxStartups).
_AT_ONCE = 8
_PAUSE_SECONDS = 0.5
_ASK_SECONDS = 10.0
_END_SECONDS = 5.0
_LOOK_SECONDS = 0.1
_READ_BYTES = 1 << 16
_SSH_FAILED = 255
_TURNED_AWAY = b"kex_exchange_identification|ssh_exchange_identification"
_JUMPS = r"^(proxyjump|proxycommand) (?!none$)(.+)$"
# How many more may connect now through each jump host.
_places: dict[str, threading.Semaphore] = {}


class SshChannel:
    """An ssh that runs an agent on another host, retried while a busy sshd rejects it.

    argv: program and arguments. explain: see `Channel`. seconds: for how long to retry.
    """

    def __init__(self, argv: Sequence[str], explain: Explain, seconds: float) -> None:
        self._argv = list(argv)
        self.explain = explain
        self._seconds = seconds
        self.errors: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._code: int | None = None
        self._reached, self._cut = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def open(self, host: str) -> socket.socket:
        """Start ssh, in a thread, as soon as the jump host has a free place."""
        if shutil.which(self._argv[0]) is None:
            why = os.strerror(errno.ENOENT)
            raise LaunchError(f"host {host} cannot be reached: {self._argv[0]!r} here: {why}")
        with contextlib.ExitStack() as failed:
            try:
                ours, theirs = map(failed.enter_context, socket.socketpair())
                self.errors, errors = os.pipe()
                failed.callback(os.close, errors)
                os.set_blocking(self.errors, False)
                self._thread = start_thread(self._run, "sirtaki ssh", (host, theirs, errors))
            except OSError as error:
                raise LaunchError(f"host {host} cannot be reached: {error}") from None
            failed.pop_all()
        return ours

    def _run(self, host: str, theirs: socket.socket, errors: int) -> None:
        """Start ssh until it connects, and forward its messages."""
        ends = time.monotonic() + self._seconds
        with theirs, os.fdopen(errors, "wb", buffering=0) as told, contextlib.suppress(OSError):
            jump = _jump_of(self._argv)
            free = _places.setdefault(jump, threading.Semaphore(_AT_ONCE))
            places = free if jump else contextlib.nullcontext()
            while not self._cut.is_set():
                with places:
                    said = self._try(host, theirs)
                busy = self._code == _SSH_FAILED and re.search(_TURNED_AWAY, said) is not None
                if self._reached.is_set() or not busy or time.monotonic() > ends:
                    told.write(said)
                    break
                self._cut.wait(_PAUSE_SECONDS * (1 + os.urandom(1)[0] / 256))
            if self._process is not None and self._process.stderr is not None:
                while data := os.read(self._process.stderr.fileno(), _READ_BYTES):
                    told.write(data)
                self._code = self._process.wait()

    def _try(self, host: str, theirs: socket.socket) -> bytes:
        """Start ssh, wait until it has connected or ended, and return its messages."""
        with self._lock:
            if self._cut.is_set():
                return b""
            try:
                self._process = process = subprocess.Popen(
                    self._argv,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                self._code = _SSH_FAILED
                return f"{self._argv[0]!r} for {host}: {error.strerror}\n".encode()
        assert process.stderr is not None
        said, self._code = b"", None
        ready = select.poll()  # unlike select, with any number of open files
        ready.register(process.stderr, select.POLLIN)
        while not self._reached.is_set():
            if ready.poll(_LOOK_SECONDS * 1000):
                data = os.read(process.stderr.fileno(), _READ_BYTES)
                said += data
                if not data:
                    self._code = process.wait()
                    break
        return said

    def reached(self) -> None:
        """See `Channel`."""
        self._reached.set()

    def flush(self, sent: int, seconds: float) -> None:
        """See `Channel`: ssh has the bytes already."""

    def wait(self) -> int | None:
        """See `Channel`."""
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
            if self._thread.is_alive():
                self.cut()
                self._thread.join()
        return self._code

    def cut(self) -> None:
        """See `Channel`."""
        with self._lock:
            self._cut.set()
            if self._process is not None and self._process.returncode is None:
                # A proxy command has our pipe, too, and would outlive ssh.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, patiently: bool) -> None:
        """See `Channel`."""
        if not patiently:
            self.cut()
        self.wait()
        if self.errors is not None:
            os.close(self.errors)
            self.errors = None


def _jump_of(argv: Sequence[str]) -> str:
    """Return the jump host or proxy command by which ssh reaches the host, else ""."""
    asks = [argv[0], "-G", *argv[1:-1]]
    try:
        done = subprocess.run(
            asks, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(_JUMPS, done.stdout.decode(errors="replace"), re.MULTILINE)
    return "" if found is None else found[0]
