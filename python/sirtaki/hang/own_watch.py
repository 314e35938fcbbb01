"""Watches a job that our launcher has not started: a thread in the lowest rank of each host."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

from sirtaki.hang.collect import FAR, POLL, collect
from sirtaki.hang.watching import Watching


class OwnWatch:
    """Prints the report of a hang on standard error.

    Args:
        job: The job's name.
        seconds: How long nothing may move.
    """

    def __init__(self, job: str, seconds: float) -> None:
        self._job = job
        self._watching = Watching(job, seconds, time.monotonic())
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sirtaki watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._end.set()

    def _watch(self) -> None:
        watching = self._watching
        while not self._end.wait(max(0.0, watching.due - time.monotonic())):
            question = POLL if watching.question == POLL else FAR
            try:
                text = watching.take(collect(self._job, question), time.monotonic())
            except Exception as error:  # whatever it is, the job must go on
                if not threading.main_thread().is_alive():
                    return  # the interpreter ends, and starts no threads any more
                text = f"nobody watches for hangs any more: {error!r}"
                self._end.set()
            if text:
                with contextlib.suppress(OSError, ValueError):
                    print(f"sirtaki: {text}", file=sys.stderr, flush=True)
