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


def line_of(lines: Sequence[str], host: str) -> int:
    """Return which line of the node file is the first to name a host. Raises LaunchError."""
    if host not in lines:
        raise LaunchError(f"$PBS_NODEFILE has no line for {host}")
    return lines.index(host)


def cpus_per_host(environ: Mapping[str, str]) -> int | None:
    """Return how many CPUs the job has on each host, None where PBS does not say."""
    count = environ.get("NCPUS", "")
    return int(count) if count.isdecimal() and int(count) else None


def pbsdsh_command(line: int) -> list[str]:
    """Return pbsdsh for one task on a line of the node file; the program is to be appended."""
    return ["pbsdsh", "-n", str(line), "--"]
