"""Jobs whose hosts each start their own launcher, as pods of Kubernetes do."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from pathlib import Path

from sirtaki.launch.errors import LaunchError
from sirtaki.launch.hosts.slots import Host, Slot, allocate
from sirtaki.records import dataclass
from sirtaki.rendezvous.trust.secret import HOW_TO_MAKE, read_secret

_DEFAULT_PORT = "29500"
# The first part of a pod's name, where the one of node 0 ends so.
_FIRST_OF_MANY = re.compile(r"(.*-)0")
_NUMBER = re.compile(r"[0-9]{1,7}")
# Where a flag is not given, the first of these that is set: torchrun's, the system's.
_VARIABLES = {
    "nnodes": ("PET_NNODES",),
    "node_rank": ("PET_NODE_RANK", "JOB_COMPLETION_INDEX"),
    "nproc_per_node": ("PET_NPROC_PER_NODE",),
    "master_addr": ("PET_MASTER_ADDR", "MASTER_ADDR"),
    "master_port": ("PET_MASTER_PORT", "MASTER_PORT"),
}
# What says of a node where it is, and would say it of ranks wrongly.
_OF_A_NODE = {name for names in _VARIABLES.values() for name in names} | {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
    "SIRTAKI_SECRET_FILE",
}


@dataclass(frozen=True)
class Nodes:
    """The hosts of a job that has a launcher on each; that of node 0 watches over all.

    count: how many. rank: which this is. per_node: ranks of each. address, port: where node 0
    listens for the others. secret: which they all know.
    """

    count: int
    rank: int
    per_node: int
    address: str
    port: int
    secret: bytes

    def names(self) -> list[str]:
        """Return a name for each node: those of pods, if that of node 0 says how they go on."""
        first = _FIRST_OF_MANY.fullmatch(self.address.partition(".")[0])
        before = first[1] if first else "node-"
        return [f"{before}{number}" for number in range(self.count)]

    def slots(self) -> list[Slot]:
        """Return the places of all ranks."""
        hosts = [Host(name, self.per_node) for name in self.names()]
        return allocate(hosts, self.count * self.per_node)


def take_nodes(args: argparse.Namespace, environ: Mapping[str, str]) -> Nodes | None:
    """Return the nodes of the job, None where this launcher starts all of it.

    args: the parsed flags, of which the number of processes is set if it is not given. Raises
    LaunchError.
    """
    given = [_flag(name) for name in _VARIABLES if getattr(args, name) is not None]
    hosts = (args.hosts, args.hostfile, args.host_discovery_script, args.min_num_proc)
    if args.nnodes is None:
        if given:
            raise LaunchError(f"{', '.join(given)} without --nnodes: say how many nodes there are")
        if any(hosts) or not ("PET_NNODES" in environ and "PET_NODE_RANK" in environ):
            return None
    elif any(hosts) or args.controller == "mpi":
        raise LaunchError(
            "--nnodes: each node starts its own ranks, so hosts, --mpi and elastic flags do not go "
            "with it; give --nproc-per-node"
        )
    count = _number(args, environ, "nnodes")
    per_node = _per_node(args, environ, count)
    args.num_proc = count * per_node
    if count == 1:
        return None
    rank = _number(args, environ, "node_rank", least=0)
    if rank >= count:
        raise LaunchError(f"--node-rank {rank} of --nnodes {count}: expected less than {count}")
    address, _ = _find(args, environ, "master_addr")
    if not address:
        raise LaunchError(
            "the address of node 0 is missing: give --master-addr, or set MASTER_ADDR"
        )
    port = _number(args, environ, "master_port", default=_DEFAULT_PORT)
    return Nodes(count, rank, per_node, address, port, _secret(environ))


def leave_node(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a node that its ranks may see."""
    return {name: value for name, value in environ.items() if name not in _OF_A_NODE}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _find(args: argparse.Namespace, environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return what a flag or else its variables say, "" for nothing, and who has said it."""
    if getattr(args, name) is not None:
        return str(getattr(args, name)), _flag(name)
    for variable in _VARIABLES[name]:
        if environ.get(variable):
            return environ[variable], variable
    return "", _flag(name)


def _number(
    args: argparse.Namespace,
    environ: Mapping[str, str],
    name: str,
    least: int = 1,
    default: str = "",
) -> int:
    text, source = _find(args, environ, name)
    text = text or default
    if not text:
        raise LaunchError(f"{source} is missing, and {' and '.join(_VARIABLES[name])} are not set")
    if _NUMBER.fullmatch(text) is None or int(text) < least:
        raise LaunchError(f"{source}={text}: expected a whole number of at least {least}")
    return int(text)


def _per_node(args: argparse.Namespace, environ: Mapping[str, str], count: int) -> int:
    """Return how many ranks each node has; -np is of all nodes together."""
    text, source = _find(args, environ, "nproc_per_node")
    if args.num_proc is not None and args.nproc_per_node is None:
        each, left = divmod(args.num_proc, count)
        if left:
            raise LaunchError(f"-np {args.num_proc} is not a multiple of the {count} nodes")
        return int(each)
    each = _counted(text) if text in ("auto", "cpu", "gpu") else 0
    each = each or _number(args, environ, "nproc_per_node", default="1")
    if args.num_proc not in (None, each * count):
        raise LaunchError(
            f"-np {args.num_proc}: {count} nodes with {source} {each} are {each * count} processes"
        )
    return each


def _counted(what: str) -> int:
    """Return how many GPUs or CPUs this node has; auto: of what torchrun would count."""
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
