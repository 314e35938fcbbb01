"""Reads the stacks that `faulthandler` has written for a process that cannot run Python."""

from __future__ import annotations

import re

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def main_stack(text: str) -> list[list[object]]:
    """Return the frames of the main thread, innermost first, as `hang.place` gives them.

    Args:
        text: What was written: the threads from the newest to the main one.
    """
    last = re.split(r"^(?:Current thread|Thread) .*$", text, flags=re.MULTILINE)[-1]
    return [
        [file, int(line), name, "", _seems_own(file)] for file, line, name in _FRAME.findall(last)
    ]


def _seems_own(file: str) -> bool:
    """A process that cannot run tells not where its libraries are; their folders have names."""
    return not re.search(r"/site-packages/|/dist-packages/|/lib/python3\.\d+/|^<frozen", file)
