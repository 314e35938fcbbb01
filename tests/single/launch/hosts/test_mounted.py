"""The hosts that an MPI Operator mounts into the launcher of its job."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirtaki.launch.flags.flags import Flags, read_flags
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.flags.settings import make_settings
from sirtaki.launch.hosts.slots import Host, read_hostfile

FORMS = {
    "OMPI_MCA_orte_default_hostfile": "{0} slots=2\n{1} slots=1\n",
    "I_MPI_HYDRA_HOST_FILE": "{0}:2\n{1}:1\n",
}


def flags_in(environ: dict[str, str], *given: str) -> Flags:
    return read_flags(make_parser("horovodrun").parse_args(given), environ, pytest.fail)


@pytest.mark.parametrize("variable", FORMS)
def test_the_launcher_of_an_mpi_job_runs_on_its_workers(tmp_path: Path, variable: str) -> None:
    path = tmp_path / "hostfile"
    workers = [Host("job-worker-0.job.ns.svc", 2), Host("job-worker-1.job.ns.svc", 1)]
    path.write_text(FORMS[variable].format(*(worker.name for worker in workers)))
    flags = flags_in({"K_MPI_JOB_ROLE": "launcher", variable: str(path)}, "true")
    assert flags.hostfile == str(path)
    assert len(make_settings(flags, {}).slots) == 3
    assert read_hostfile(str(path)) == workers


def test_what_is_given_stays(tmp_path: Path) -> None:
    path = tmp_path / "hostfile"
    path.write_text("a slots=4\n")
    mounted = {"K_MPI_JOB_ROLE": "launcher", "HYDRA_HOST_FILE": str(path)}
    assert flags_in(mounted, "-H", "b:1").hostfile is None
    assert flags_in(mounted, "-np", "2").num_proc == 2
    assert flags_in(mounted, "--min-np", "2").hostfile is None


@pytest.mark.parametrize("environ", [{}, {"HYDRA_HOST_FILE": "/x"}, {"K_MPI_JOB_ROLE": "launcher"}])
def test_other_launchers_are_left_alone(environ: dict[str, str]) -> None:
    assert flags_in(environ).hostfile is None
