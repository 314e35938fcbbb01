"""The shared heap of the ranks: whether they get it, and how it comes into their processes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from sirtaki.core.world.shared_heap import LIBRARY
from sirtaki.launch.errors import LaunchError
from sirtaki.rendezvous.files import memory_file
from sirtaki.rendezvous.words import heap_mode

VARIABLE = "SIRTAKI_SHARED_HEAP"
_PRELOAD = "LD_PRELOAD"
_LOCAL_SIZE = "HOROVOD_LOCAL_SIZE"
_VALUES = {"on": "1", "off": "0", "auto": "auto"}
# Between the names in LD_PRELOAD.
_SEPARATORS = ": "


def shared_heap(text: str) -> str:
    """Accept the value of --shared-heap; returns that of the variable."""
    if text not in _VALUES:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(_VALUES)}")
    return _VALUES[text]


def with_heap(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable by which a rank gets the heap; nothing where it does not.

    environ: all that the rank has. What the user preloads stays, and comes first. Raises
    LaunchError for a value that is none.
    """
    if why_not(environ) is not None:
        return {}
    others = environ.get(_PRELOAD, "")
    return {_PRELOAD: f"{others}:{LIBRARY}" if others else str(LIBRARY)}


def described(environ: Mapping[str, str]) -> str:
    """Say what becomes of a request for the heap, as the end of a line; "" without one."""
    if _mode(environ) == "off":
        return ""
    why = why_not(environ)
    return ", shared heap" if why is None else f", no shared heap: {why}"


def why_not(environ: Mapping[str, str]) -> str | None:
    """Return the reason for which a rank with these variables does not get it, None if it does."""
    mode = _mode(environ)
    if mode == "off":
        return "it was not asked for"
    if any(separator in str(LIBRARY) for separator in _SEPARATORS):
        return f"LD_PRELOAD cannot name {LIBRARY}"
    return None if mode == "on" else _why_not_by_itself(environ)


def _mode(environ: Mapping[str, str]) -> str:
    try:
        return heap_mode(environ.get(VARIABLE, "")) or "off"
    except ValueError as error:
        raise LaunchError(str(error)) from None


def _why_not_by_itself(environ: Mapping[str, str]) -> str | None:
    if int(environ.get(_LOCAL_SIZE, "1")) < 2:
        return "the rank is alone on its host"
    names = environ.get(_PRELOAD, "").replace(":", " ").split()
    allocators = [name for name in names if "malloc" in Path(name).name]
    if allocators:
        return f"{allocators[0]} is preloaded"
    try:
        os.close(memory_file.create("sirtaki-probe"))
    except OSError as error:
        return f"no file in memory can be made ({error.strerror})"
    return None


def through_shell(command: list[str]) -> list[str]:
    """Return the command that preloads the heap into the given one, on whatever host it runs.

    For starters that do not let us say what the ranks alone have: the variable must not reach
    mpirun itself.
    """
    script = 'export LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$0"; exec "$@"'
    return ["sh", "-c", script, str(LIBRARY), *command]
