"""A program of a scheduler while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_BOUND = Path(__file__).with_name("bound.py")
# How long it may go on when every agent has ended by itself.
_ENDING_SECONDS = 20.0
# The same when the agent of some host is not to be waited for: the host may be gone.
_CUT_SECONDS = 0.5
# How long what agents have said last may be on its way when it has ended.
_LAST_WORDS_SECONDS = 2.0


class Starter(threading.Thread):
    """The scheduler's program that starts the agents of some hosts. It dies with this process.

    argv: program and arguments. environ: its variables. hosts: their numbers. Its output is ours.
    """

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], hosts: Sequence[int]
    ) -> None:
        super().__init__(name="sirtaki-starter", daemon=True)
        self.argv = list(argv)
        self._environ = dict(environ)
        self._hosts = hosts
        self._held = len(hosts)
        self._ending_seconds = _ENDING_SECONDS
        self._process: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()
        self.code: int | None = None

    def begin(
        self, ended: Callable[[Sequence[int]], None], late: Callable[[Sequence[int]], None]
    ) -> None:
        """Start the program, once for all its hosts.

        ended: told of these when it has. late: told when some of them are still needed after that.
        """
        if self._process is not None:
            return
        self._ended, self._late = ended, late
        # In a session of its own: a terminal's Ctrl-C is for us, who pass it on with grace.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_BOUND), str(os.getpid()), *self.argv],
            stdin=subprocess.DEVNULL,
            env=self._environ,
            start_new_session=True,
        )
        self.start()

    def run(self) -> None:
        """Wait for the end."""
        assert self._process is not None
        self.code = self._process.wait()
        self._ended(self._hosts)
        if not self._over.wait(_LAST_WORDS_SECONDS):
            self._late(self._hosts)

    def release(self, patiently: bool) -> None:
        """Be told that a host needs it no more; the last one waits for its end."""
        self._held -= 1
        if self._process is None:
            return
        if not patiently:
            self._process.terminate()
            self._ending_seconds = _CUT_SECONDS
        if self._held == 0:
            self._over.set()
            self.join(self._ending_seconds)
            self._process.kill()
            self.join()
