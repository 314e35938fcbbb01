"""Jobs whose hosts each start their own launcher, as pods of Kubernetes do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.flags import Flags
from sirtaki.launch.hosts.slots import Host, Slot, allocate
from sirtaki.rendezvous.trust.auth import repr_without
from sirtaki.rendezvous.trust.secret import HOW_TO_MAKE, read_secret
from sirtaki.schedulers.nodes import OF_A_LAUNCHER, OF_A_NODE, starts_each_node

_DEFAULT_PORT = "29500"
# The common part of the pods' names, if the name of node 0 ends in "-0".
_FIRST_OF_MANY = re.compile(r"(.*-)0")
_NUMBER = re.compile(r"[0-9]{1,7}")


class Nodes(NamedTuple):
    """The hosts of a job with a launcher on each; the launcher of node 0 watches over all.

    total: how many. rank: the number of this one. per_node: ranks of each. address, port: where
    node 0 listens for the others. secret: shared by all.
    """

    total: int
    rank: int
    per_node: int
    address: str
    port: int
    secret: bytes

    def __repr__(self) -> str:
        return repr_without(self, "secret")

    def names(self) -> list[str]:
        """Return a name for each node: those of pods, if node 0's name shows the pattern."""
        first = _FIRST_OF_MANY.fullmatch(self.address.partition(".")[0])
        before = first[1] if first else "node-"
        return [f"{before}{number}" for number in range(self.total)]

    def slots(self) -> list[Slot]:
        """Return the places of all ranks."""
        hosts = [Host(name, self.per_node) for name in self.names()]
        return allocate(hosts, self.total * self.per_node)


def take_nodes(flags: Flags, environ: Mapping[str, str]) -> tuple[Flags, Nodes | None]:
    """Return the nodes of the job, None if this launcher starts all of it.

    The returned flags have the number of processes that the nodes determine. Raises LaunchError.
    """
    given = [_flag(name) for name in OF_A_LAUNCHER if getattr(flags, name) is not None]
    if flags.nnodes is None:
        if given:
            raise LaunchError(
                f"{', '.join(given)}: --nnodes is missing, the number of machines that each run "
                "this command; to start all processes from this machine, give -np instead"
            )
        if flags.lists_hosts or not starts_each_node(environ):
            return flags, None
        if flags.controller == "mpi":
            raise LaunchError(
                "--mpi: PET_NNODES tells each node to start its own ranks; leave --mpi out, or "
                "give the hosts to start all ranks from one node"
            )
    elif flags.lists_hosts or flags.controller == "mpi":
        raise LaunchError(
            "--nnodes: each node starts its own ranks, so hosts, --mpi and elastic flags do not go "
            "with it; give --nproc-per-node"
        )
    count = _number(flags, environ, "nnodes")
    per_node = _per_node(flags, environ, count)
    flags = flags.but(num_proc=count * per_node)
    if count == 1:
        return flags, None
    rank = _number(flags, environ, "node_rank", least=0)
    if rank >= count:
        raise LaunchError(f"--node-rank {rank} of --nnodes {count}: expected less than {count}")
    address, _ = _find(flags, environ, "master_addr")
    if not address:
        raise LaunchError(
            "the address of node 0 is missing: give --master-addr, or set MASTER_ADDR"
        )
    port = _number(flags, environ, "master_port", default=_DEFAULT_PORT)
    return flags, Nodes(count, rank, per_node, address, port, _secret(environ))


def leave_node(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a node that its ranks may see."""
    return {name: value for name, value in environ.items() if name not in OF_A_NODE}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _find(flags: Flags, environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the value of a flag or of its variables, "" for none, and its source."""
    if (given := getattr(flags, name)) is not None:
        return str(given), _flag(name)
    for variable in OF_A_LAUNCHER[name]:
        if environ.get(variable):
            return environ[variable], variable
    return "", _flag(name)


def _number(
    flags: Flags, environ: Mapping[str, str], name: str, least: int = 1, default: str = ""
) -> int:
    text, source = _find(flags, environ, name)
    text = text or default
    if not text:
        raise LaunchError(
            f"{source} is missing, and {' and '.join(OF_A_LAUNCHER[name])} are not set"
        )
    if _NUMBER.fullmatch(text) is None or int(text) < least:
        raise LaunchError(f"{source}={text}: expected a whole number of at least {least}")
    return int(text)


def _per_node(flags: Flags, environ: Mapping[str, str], count: int) -> int:
    """Return how many ranks each node has; -np counts those of all nodes."""
    text, source = _find(flags, environ, "nproc_per_node")
    if flags.num_proc is not None and flags.nproc_per_node is None:
        each, left = divmod(flags.num_proc, count)
        if left:
            raise LaunchError(f"-np {flags.num_proc} is not a multiple of the {count} nodes")
        return each
    each = _counted(text) if text in ("auto", "cpu", "gpu") else 0
    each = each or _number(flags, environ, "nproc_per_node", default="1")
    if flags.num_proc not in (None, each * count):
        raise LaunchError(
            f"-np {flags.num_proc}: {count} nodes with {source} {each} are {each * count} processes"
        )
    return each


def _counted(what: str) -> int:
    """Return how many GPUs or CPUs this node has; auto: the kind that torchrun would count."""
    gpus = len(list(Path("/dev").glob("nvidia[0-9]*"))) if what != "cpu" else 0
    return gpus if gpus or what == "gpu" else len(os.sched_getaffinity(0))


def _secret(environ: Mapping[str, str]) -> bytes:
    path = environ.get("SIRTAKI_SECRET_FILE", "")
    if not path:
        raise LaunchError(
            f"the nodes have no common secret to recognize each other: {HOW_TO_MAKE}, "
            "give it to all nodes and name the file in SIRTAKI_SECRET_FILE"
        )
    try:
        return read_secret(path)
    except (OSError, ValueError) as error:
        raise LaunchError(f"SIRTAKI_SECRET_FILE: {error}") from None
