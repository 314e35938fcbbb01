"""LSF: its list of hosts, and starting ranks with jsrun where a system has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.host_lists import count_names, read_lines
from sirtaki.launch.hosts.slots import Host, Slot, allocate, merged

_LAUNCH_NODE_PREFIXES = ("batch", "login", "launch")


def job_id(environ: Mapping[str, str]) -> str | None:
    """Return the id of the LSF job that these variables describe, None outside of one."""
    lists = ("LSB_DJOB_HOSTFILE", "LSB_MCPU_HOSTS", "LSB_HOSTS")
    return environ.get("LSB_JOBID") if any(environ.get(name) for name in lists) else None


def hosts_of(environ: Mapping[str, str], with_jsrun: bool) -> list[Host]:
    """Return the hosts of the job with their slots.

    with_jsrun: the system starts tasks with jsrun, so the first host is no compute node but the one
    that runs the script. Raises LaunchError when the variables cannot be understood.
    """
    hosts = _listed(environ)
    if len(hosts) > 1 and (with_jsrun or _is_launch_node(hosts)):
        del hosts[0]
    return hosts


def _listed(environ: Mapping[str, str]) -> list[Host]:
    if path := environ.get("LSB_DJOB_HOSTFILE"):
        return count_names(read_lines(path, "LSB_DJOB_HOSTFILE"), "LSB_DJOB_HOSTFILE")
    if text := environ.get("LSB_MCPU_HOSTS"):
        return parse_mcpu_hosts(text)
    return count_names(environ.get("LSB_HOSTS", "").split(), "LSB_HOSTS")


def parse_mcpu_hosts(text: str) -> list[Host]:
    """Read "hostA 2 hostB 4": names and slots in turn. Raises LaunchError."""
    words = text.split()
    names, numbers = words[::2], words[1::2]
    if len(names) != len(numbers) or not all(number.isdecimal() for number in numbers):
        raise LaunchError(
            f"cannot understand LSB_MCPU_HOSTS={text!r}: expected names and numbers of slots in "
            "turn, for example 'node-a 4 node-b 4'"
        )
    count_names(names, "LSB_MCPU_HOSTS")  # checks them
    return merged(map(Host, names, map(int, numbers)))


def _is_launch_node(hosts: Sequence[Host]) -> bool:
    first, others = hosts[0], hosts[1:]
    named_so = first.name.startswith(_LAUNCH_NODE_PREFIXES)
    return named_so and first.slots == 1 and all(host.slots != 1 for host in others)


def jsrun_slots(hosts: Sequence[Host], size: int) -> list[Slot]:
    """Give `size` ranks their places, the same number on every host, as jsrun lays them out.

    Raises LaunchError when that is impossible.
    """
    each, left = divmod(size, len(hosts))
    if left:
        raise LaunchError(
            f"jsrun starts the same number of ranks on every host, and {size} ranks do not divide "
            f"among {len(hosts)} hosts; change -np, or name fewer hosts with -H"
        )
    small = [f"{host.name} ({host.slots})" for host in hosts if host.slots < each]
    if small:
        raise LaunchError(
            f"{size} ranks are {each} a host, more than the slots of {', '.join(small)}"
        )
    return allocate([Host(host.name, each) for host in hosts], size)


def jsrun_command(hosts: Sequence[Host], used: int, gpus: int) -> list[str]:
    """Return jsrun with its options for one task a host; the program is to be appended.

    hosts: with all slots of the job, which are cores. used: how many of the hosts have ranks. gpus:
    of each host.
    """
    command = [
        "jsrun",
        f"--nrs={used}",
        "--rs_per_host=1",
        "--tasks_per_rs=1",
        f"--cpu_per_rs={min(host.slots for host in hosts)}",
        # The ranks share out the cores of the resource set.
        "--bind=rs",
    ]
    return [*command, f"--gpu_per_rs={gpus}"] if gpus else command


def gpus_per_rank(environ: Mapping[str, str]) -> int | None:
    """Return how many GPUs jsrun is to hand out for each rank, None where nobody says."""
    count = environ.get("SIRTAKI_GPUS_PER_RANK", "")
    return int(count) if count.isdecimal() else None


def variables_of_rank(slot: Slot) -> dict[str, str]:
    """Return what a rank would have as a task of jsrun, for programs that read it."""
    return {
        "JSM_NAMESPACE_RANK": str(slot.rank),
        "JSM_NAMESPACE_SIZE": str(slot.size),
        "JSM_NAMESPACE_LOCAL_RANK": str(slot.local_rank),
        "JSM_NAMESPACE_LOCAL_SIZE": str(slot.local_size),
    }
