"""Grid Engine: Sun's, Son of Grid Engine, and those of Univa and Altair."""

from __future__ import annotations

import shlex
from pathlib import Path

from sirtaki.schedulers.job_script import WORD, Flag, SubmitRequest, bash_script, given, require
from sirtaki.schedulers.scheduler import Agents, Scheduler, add_up, present, read_lines
from sirtaki.schedulers.start import Environ

_HOSTS = "PE_HOSTFILE"
# The ranks of each host, which are its slots divided by the threads of a rank, as a value of -H.
_HOSTS_OF_THREADS = """awk '{ printf "%s%s:%d", comma, $1, $2 / THREADS; comma = "," }'"""


class GridEngine(Scheduler):
    """A job of qsub in a parallel environment, where `qrsh -inherit` starts tasks."""

    name = "grid-engine"
    shown = ("SGE_ROOT", "JOB_ID", _HOSTS)
    job_variable = _HOSTS
    cure = "raise the number after -pe"
    # A task has the environment of the job's submission, not ours.
    inherits = False
    of_task = (
        *("TMPDIR", "TMP", "JOB_NAME", "REQNAME", "REQUEST", "NHOSTS", "NQUEUES", "NSLOTS"),
        *("SGE_JOB_SPOOL_DIR", _HOSTS),
    )
    submit = ("qsub",)
    flags = (Flag("--pe", "NAME", "Grid Engine: parallel environment of the job"),)

    def job(self, environ: Environ) -> str | None:
        """See `Scheduler`; a job without a parallel environment has no list of hosts."""
        return environ.get("JOB_ID") if environ.get(_HOSTS) else None

    def hosts(self, environ: Environ) -> dict[str, int]:
        """See `Scheduler`: a line contains a host, its slots, a queue and processors."""
        rows = [line.split() for line in read_lines(environ[_HOSTS], _HOSTS)]
        if not all(len(row) >= 2 and row[1].isdecimal() for row in rows):
            raise ValueError(
                f"cannot understand {environ[_HOSTS]!r}, named by {_HOSTS}: expected a host and "
                "its slots on each line"
            )
        return add_up(((row[0], int(row[1])) for row in rows), _HOSTS)

    def starter(self, environ: Environ) -> str:
        """See `Scheduler`."""
        return present("qrsh", environ)

    def commands(self, agents: Agents) -> list[list[str]]:
        """Return qrsh for each host, where a shell parses the words again."""
        return [
            ["qrsh", "-inherit", host, *map(shlex.quote, (*agents.program, str(number)))]
            for number, host in enumerate(agents.hosts)
        ]

    def cpus(self, environ: Environ, host: str) -> int | None:
        """See `Scheduler`: a slot is a core."""
        return self.hosts(environ).get(host)

    def script(self, request: SubmitRequest, programs: Path) -> str:
        """See `Scheduler`; the parallel environment determines the slots per host."""
        environment = request.own["pe"]
        if environment is None:
            raise ValueError(
                "Grid Engine needs a parallel environment, which says how slots spread over hosts: "
                "give --pe NAME; qconf -spl lists them"
            )
        require(WORD, environment, "--pe", "one word")
        slots = request.nodes * request.ranks_per_node * request.threads
        options = [
            "-S /bin/bash",
            f"-N {request.name}",
            f"-pe {environment} {slots}",
            "-cwd",
            "-j y",
            *([f"-l gpu={request.gpus}"] if request.gpus else []),
            *given("-l h_rt=", request.time),
            *given("-P ", request.account),
            *given("-q ", request.queue),
            *given("-o ", request.output),
        ]
        hosts = ""
        if request.threads > 1:
            counted = _HOSTS_OF_THREADS.replace("THREADS", str(request.threads))
            hosts = f' -H "$({counted} "${_HOSTS}")"'
        return bash_script("#$", options, "", request, programs, hosts)


GRID_ENGINE = GridEngine()
