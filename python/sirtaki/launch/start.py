"""What `horovodrun` does before it loads what it needs to understand its flags."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from sirtaki.launch.processes.guarding.process import guardian_ahead


def run(arguments: Sequence[str], prog: str) -> int:
    """Run `horovodrun` or `sirtaki run`; see `command.run`."""
    _prepare_streams()
    # What is loaded stays. Looking for garbage in it takes a tenth of the time.
    gc.disable()
    with guardian_ahead():
        from sirtaki.launch import command

        gc.freeze()
        gc.enable()
        return command.run(arguments, prog)


def _prepare_streams() -> None:
    """Make output possible whatever we were started with."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # It gets the lowest free number, which otherwise another file of ours would have.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character must not end the job.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
