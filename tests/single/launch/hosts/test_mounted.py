"""The hosts that an MPI Operator mounts into the launcher of its job."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from sirtaki.launch.hosts.mounted import take_mounted_hosts
from sirtaki.launch.hosts.slots import Host, read_hostfile

FORMS = {
    "OMPI_MCA_orte_default_hostfile": "{0} slots=2\n{1} slots=1\n",
    "I_MPI_HYDRA_HOST_FILE": "{0}:2\n{1}:1\n",
}


def taken(environ: dict[str, str], **given: object) -> argparse.Namespace:
    names = ("hosts", "hostfile", "host_discovery_script", "num_proc", "min_num_proc")
    args = argparse.Namespace(**{**dict.fromkeys(names), **given})
    take_mounted_hosts(args, environ)
    return args


@pytest.mark.parametrize("variable", FORMS)
def test_the_launcher_of_an_mpi_job_runs_on_its_workers(tmp_path: Path, variable: str) -> None:
    path = tmp_path / "hostfile"
    workers = [Host("job-worker-0.job.ns.svc", 2), Host("job-worker-1.job.ns.svc", 1)]
    path.write_text(FORMS[variable].format(*(worker.name for worker in workers)))
    args = taken({"K_MPI_JOB_ROLE": "launcher", variable: str(path)})
    assert (args.hostfile, args.num_proc) == (str(path), 3)
    assert read_hostfile(args.hostfile) == workers


def test_what_is_given_stays(tmp_path: Path) -> None:
    path = tmp_path / "hostfile"
    path.write_text("a slots=4\n")
    mounted = {"K_MPI_JOB_ROLE": "launcher", "HYDRA_HOST_FILE": str(path)}
    assert taken(mounted, hosts="b:1").hostfile is None
    assert taken(mounted, num_proc=2).num_proc == 2
    assert taken(mounted, min_num_proc=2).hostfile is None


@pytest.mark.parametrize("environ", [{}, {"HYDRA_HOST_FILE": "/x"}, {"K_MPI_JOB_ROLE": "launcher"}])
def test_other_launchers_are_left_alone(environ: dict[str, str]) -> None:
    assert taken(environ).hostfile is None
