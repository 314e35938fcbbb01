"""Executes a program that dies with its parent: `bound.py PARENT PROGRAM [ARGUMENT...]`.

PARENT is the parent's process id. The starters of schedulers end their tasks when they die, so
no process of a job outlives its launcher.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Execute the program; returns only when that is impossible."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        print("cannot tie this process to the launcher", file=sys.stderr)
        return 1
    if os.getppid() != parent:
        return 1
    # Python ignores these two, and an executed program inherits ignored signals.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot execute {command[0]}: {error.strerror}", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main())
