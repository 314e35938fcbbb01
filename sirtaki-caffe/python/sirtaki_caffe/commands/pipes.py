"""Commands whose output may have no reader, as in `caffe --help | head -1`."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence


def ends_quietly(
    main: Callable[[Sequence[str] | None], int],
) -> Callable[[Sequence[str] | None], int]:
    """Make a command end like other programs when nothing reads its output."""

    @functools.wraps(main)
    def command(arguments: Sequence[str] | None = None) -> int:
        try:
            code = main(arguments)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            # Python's last flush needs a destination that accepts the remaining output.
            nobody = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nobody, sys.stdout.fileno())
            os.close(nobody)
            return 128 + signal.SIGPIPE
        return code

    return command
