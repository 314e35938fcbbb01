"""Lists of hosts as schedulers leave them: a name for every slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.slots import Host, parse_hosts


def read_lines(path: str, variable: str) -> list[str]:
    """Return the lines of a scheduler's list of hosts, blank ones left out.

    variable: the one that named the file, for messages. Raises LaunchError.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LaunchError(
            f"cannot read {path!r}, named by {variable}: {error.strerror}; the variable may be "
            "left from another job, or this host does not have the file"
        ) from None
    except (UnicodeDecodeError, ValueError):
        raise LaunchError(f"{path!r}, named by {variable}, is not a text file") from None
    return [line.strip() for line in lines if line.strip()]


def count_names(names: Iterable[str], source: str) -> list[Host]:
    """Return each host named with as many slots as it was named, in order of first appearance.

    source: where the names are from, for messages. Raises LaunchError.
    """
    hosts = [Host(name, count) for name, count in Counter(names).items()]
    if not hosts:
        raise LaunchError(f"{source} names no host")
    for host in hosts:
        try:
            valid = parse_hosts(f"{host.name}:1") == [Host(host.name, 1)]
        except LaunchError:
            valid = False
        if not valid:
            raise LaunchError(f"{source} has {host.name!r} where the name of a host is expected")
    return hosts
