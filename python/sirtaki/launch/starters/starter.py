"""A running program of a scheduler."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sirtaki.launch.errors import FAILED, LaunchError
from sirtaki.rendezvous.threads import begin

_BOUND = Path(__file__).with_name("bound.py")
# How long it may run after every agent has ended by itself.
_ENDING_SECONDS = 20.0
# The same when some host's agent was cut: the host may be gone.
_CUT_SECONDS = 0.5
# How long the agents' last messages may take to arrive after it has ended.
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
        """Start the program, once for all its hosts. Raises LaunchError.

        ended: called with the hosts at its end. late: called with hosts still needed after that.
        """
        if self._process is not None:
            return
        self._ended, self._late = ended, late
        try:
            # In a session of its own: the launcher handles a terminal's Ctrl-C, with a grace.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_BOUND), str(os.getpid()), *self.argv],
                stdin=subprocess.DEVNULL,
                env=self._environ,
                start_new_session=True,
            )
            begin(self)
        except (OSError, ValueError) as error:
            if self._process is not None:
                self._process.kill()
            raise LaunchError(f"{self.argv[0]} cannot be started: {error}", FAILED) from None

    def run(self) -> None:
        """Wait for the program's end."""
        assert self._process is not None
        self.code = self._process.wait()
        self._ended(self._hosts)
        if not self._over.wait(_LAST_WORDS_SECONDS):
            self._late(self._hosts)

    def release(self, patiently: bool) -> None:
        """Release the program for one host; the last release waits for its end."""
        self._held -= 1
        if self._process is None:
            return
        if not patiently:
            self._process.terminate()
            self._ending_seconds = _CUT_SECONDS
        if self._held == 0:
            self._over.set()
            if self.is_alive():
                self.join(self._ending_seconds)
            self._process.kill()
            if self.is_alive():
                self.join()
