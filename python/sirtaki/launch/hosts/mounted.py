"""The hosts of an MPIJob, which Kubernetes' MPI Operator mounts into its launcher."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from sirtaki.launch.hosts.slots import read_hostfile

# What each MPI reads.
_HOSTFILES = ("OMPI_MCA_orte_default_hostfile", "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE")


def take_mounted_hosts(args: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Let the job run on the hosts of its MPIJob, unless hosts are given.

    args: the parsed flags, of which the host file and, if it is not given, the number of processes
    are set. Raises LaunchError when the file cannot be read.
    """
    # An elastic job asks the operator's script again and again.
    given = (args.hosts, args.hostfile, args.host_discovery_script, args.min_num_proc)
    if environ.get("K_MPI_JOB_ROLE") != "launcher" or any(given):
        return
    path = next((environ[name] for name in _HOSTFILES if environ.get(name)), None)
    if path is None:
        return
    args.hostfile = path
    if args.num_proc is None:
        args.num_proc = sum(host.slots for host in read_hostfile(path))
