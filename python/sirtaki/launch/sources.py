"""Source code that is in no file, such as that of notebooks, for the tracebacks of ranks."""

from __future__ import annotations

import linecache
from collections.abc import Mapping


def known() -> dict[str, str]:
    """Return the code that this process knows by names of files that are none."""
    return {
        name: "".join(entry[2])
        for name, entry in linecache.cache.items()
        if len(entry) == 4 and entry[1] is None
    }


def remember(sources: Mapping[str, str]) -> None:
    """Let tracebacks of this process show lines of this code.

    Args:
        sources: Code by the name of the file that it was compiled with.
    """
    for name, code in sources.items():
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
