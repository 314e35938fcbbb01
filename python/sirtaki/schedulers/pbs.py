"""PBS (OpenPBS, PBS Professional, Torque)."""

from __future__ import annotations

from pathlib import Path

from sirtaki.schedulers.job_script import SubmitRequest, bash_script, given
from sirtaki.schedulers.scheduler import (
    Agents,
    Scheduler,
    count_names,
    number_of,
    present,
    read_lines,
)
from sirtaki.schedulers.start import Environ

_HOSTS = "PBS_NODEFILE"


class Pbs(Scheduler):
    """A job of qsub, in which pbsdsh starts tasks if it is on the PATH."""

    name = "pbs"
    shown = ("PBS_JOBID", _HOSTS)
    job_variable = "PBS_JOBID"
    slot = "line(s) of $PBS_NODEFILE"
    cure = "raise mpiprocs= in its -l select="
    # A task of pbsdsh has the environment of the job's submission, not ours.
    inherits = False
    submit = ("qsub", "-")
    of_task = ("PBS_NODENUM", "PBS_TASKNUM", "PBS_VNODENUM", "TMPDIR")

    def job(self, environ: Environ) -> str | None:
        """See `Scheduler`."""
        return environ.get("PBS_JOBID") if environ.get(_HOSTS) else None

    def hosts(self, environ: Environ) -> dict[str, int]:
        """See `Scheduler`: each line of the file with a host's name is a slot."""
        return count_names(read_lines(environ[_HOSTS], _HOSTS), _HOSTS)

    def starter(self, environ: Environ) -> str:
        """See `Scheduler`."""
        return present("pbsdsh", environ)

    def commands(self, agents: Agents) -> list[list[str]]:
        """Return pbsdsh for the first line of each host in the list of hosts."""
        lines = read_lines(agents.environ[_HOSTS], _HOSTS)
        # pbsdsh starts a program without our environment; a Python of a module may need this.
        libraries = agents.environ.get("LD_LIBRARY_PATH")
        given = ["/usr/bin/env", f"LD_LIBRARY_PATH={libraries}"] if libraries else []
        for host in agents.hosts:
            if host not in lines:
                raise ValueError(f"$PBS_NODEFILE has no line for {host}")
        return [
            ["pbsdsh", "-n", str(lines.index(host)), "--", *given, *agents.program, str(number)]
            for number, host in enumerate(agents.hosts)
        ]

    def cpus(self, environ: Environ, host: str) -> int | None:
        """See `Scheduler`: NCPUS is that of one line, the threads of a process."""
        return self.hosts(environ).get(host, 0) * (number_of(environ, "NCPUS") or 0) or None

    def script(self, request: SubmitRequest, programs: Path) -> str:
        """See `Scheduler`: for OpenPBS and PBS Pro."""
        cores = request.ranks_per_node * request.threads
        chunk = (
            f"{request.nodes}:ncpus={cores}:mpiprocs={request.ranks_per_node}"
            f":ompthreads={request.threads}"
        )
        if request.gpus:
            chunk += f":ngpus={request.gpus}"
        options = [
            f"-N {request.name}",
            f"-l select={chunk}",
            "-l place=scatter",
            "-j oe",
            *given("-l walltime=", request.time),
            *given("-A ", request.account),
            *given("-q ", request.queue),
            *given("-o ", request.output),
        ]
        return bash_script("#PBS", options, 'cd "$PBS_O_WORKDIR"', request, programs)


PBS = Pbs()
