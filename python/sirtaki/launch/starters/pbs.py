"""PBS (OpenPBS, PBS Professional, Torque): its list of hosts, and starting ranks with pbsdsh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.host_lists import count_names, read_lines
from sirtaki.launch.hosts.slots import Host

# They tell one task of the job from another, so a task keeps its own.
OF_A_TASK = ("PBS_NODENUM", "PBS_TASKNUM", "PBS_VNODENUM", "TMPDIR")


def job_id(environ: Mapping[str, str]) -> str | None:
    """Return the id of the PBS job that these variables describe, None outside of one."""
    return environ.get("PBS_JOBID") if environ.get("PBS_NODEFILE") else None


def hosts_of(environ: Mapping[str, str]) -> list[Host]:
    """Return the hosts of the job; each has a slot for every line of $PBS_NODEFILE that names it.

    Raises LaunchError when the file cannot be read or understood.
    """
    return count_names(read_node_lines(environ), "PBS_NODEFILE")


def read_node_lines(environ: Mapping[str, str]) -> list[str]:
    """Return the lines of $PBS_NODEFILE, a host each. Raises LaunchError."""
    return read_lines(environ["PBS_NODEFILE"], "PBS_NODEFILE")


def lines_of_ranks(lines: Sequence[str], hosts_of_ranks: Sequence[str]) -> list[int]:
    """Return which line of the node file each rank takes: the first free one of its host.

    Raises LaunchError when a host has no line left.
    """
    free: dict[str, list[int]] = {}
    for number, host in reversed(list(enumerate(lines))):
        free.setdefault(host, []).append(number)
    chosen = []
    for host in hosts_of_ranks:
        if not free.get(host):
            raise LaunchError(f"$PBS_NODEFILE has too few lines for the ranks on {host}")
        chosen.append(free[host].pop())
    return chosen


def pbsdsh_command(line: int) -> list[str]:
    """Return pbsdsh for one task on a line of the node file; the program is to be appended."""
    return ["pbsdsh", "-n", str(line), "--"]
