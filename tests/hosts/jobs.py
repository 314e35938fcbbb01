"""Jobs on the virtual hosts: started on the first, over all of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

from sirtaki.rendezvous.host.presence import own_folder
from tests.hosts.bed import SSH_PORT, Bed

RUN = (sys.executable, "-m", "sirtaki.launch.cli", "run")
SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
# Short, so that tests which need SIGKILL do not last.
GRACE = ("--termination-grace-seconds", "0.5")


def python(code: str) -> tuple[str, str, str]:
    """The command that runs `code` in a worker."""
    return (sys.executable, "-c", code)


def launcher(bed: Bed, *arguments: str, slots: int = 1) -> list[str]:
    """The command line of a job with `slots` ranks on every host."""
    hosts = ",".join(f"{host.address}:{slots}" for host in bed.hosts)
    size = str(slots * len(bed.hosts))
    return [*RUN, "-np", size, "-H", hosts, "-p", str(SSH_PORT), *GRACE, *arguments]


def run(
    bed: Bed, *arguments: str, slots: int = 1, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a job over all hosts to its end; `env` are more variables of the launcher."""
    environment = {**os.environ, **(env or {})}
    return bed.hosts[0].run(*launcher(bed, *arguments, slots=slots), env=environment)


def forget_launcher(job: str) -> None:
    """Let no command find the launcher of a job, as on hosts where it is not.

    The virtual hosts share their files.
    """
    (own_folder() / f"launcher.{job}").unlink()


@contextlib.contextmanager
def running(bed: Bed, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A job over all hosts whose every rank has said that it is ready."""
    with bed.hosts[0].running(*launcher(bed, *arguments)) as process:
        assert process.stdout is not None
        ready: set[str] = set()
        seen = []
        while len(ready) < len(bed.hosts):
            line = process.stdout.readline()
            seen.append(line)
            assert line, f"the job ended before its ranks were ready: {seen}"
            if "ready" in line:
                ready.add(line.partition("]")[0])
        yield process
