"""Parses lists of hosts as schedulers provide them: one name per slot."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

# A name that no shell or ssh can mistake, such as for an option. It is a string because `re`
# compiles it at first use, and most jobs need none.
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"


def read_lines(path: str, variable: str) -> list[str]:
    """Return the lines of a scheduler's list of hosts, without blank ones.

    variable: the one with the file's name, for messages. Raises ValueError.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise ValueError(
            f"cannot read {path!r}, named by {variable}: {error.strerror}; the variable may be "
            "left from another job, or this host does not have the file"
        ) from None
    except (UnicodeDecodeError, ValueError):
        raise ValueError(f"{path!r}, named by {variable}, is not a text file") from None
    return [line.strip() for line in lines if line.strip()]


def count_names(names: Iterable[str], source: str) -> dict[str, int]:
    """Return each host with one slot per occurrence, in order of first appearance.

    source: the origin of the names, for messages. Raises ValueError.
    """
    return add_up(((name, 1) for name in names), source)


def add_up(hosts: Iterable[tuple[str, int]], source: str) -> dict[str, int]:
    """Return the sum of the slots of each host. See `count_names`."""
    slots: dict[str, int] = {}
    for name, count in hosts:
        if re.fullmatch(NAME, name) is None:
            raise ValueError(f"{source} has {name!r} where the name of a host is expected")
        slots[name] = slots.get(name, 0) + count
    if not slots:
        raise ValueError(f"{source} names no host")
    return slots
