"""The start of `horovodrun`, before it imports the modules that parse its flags."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from sirtaki.launch.processes.guarding.process import guardian_ahead


def run(arguments: Sequence[str], prog: str) -> int:
    """Run `horovodrun` or `sirtaki run`; see `command.run`."""
    _prepare_streams()
    # Imported modules stay; collecting garbage among them would take a tenth of the time.
    gc.disable()
    with guardian_ahead():
        from sirtaki.launch import command

        gc.freeze()
        gc.enable()
        return command.run(arguments, prog)


def _prepare_streams() -> None:
    """Open missing standard streams and make them accept all characters."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # /dev/null takes the lowest free number, so that no other file of ours gets it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character must not end the job.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
