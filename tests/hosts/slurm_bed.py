"""Real schedulers on virtual hosts of one machine, see slurm_bed.sh and grid_engine_bed.sh."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from tests import needs

if TYPE_CHECKING:
    from typing import Self  # since Python 3.11

_SLURM = ("munged", "sbatch", "slurmctld", "slurmd", "srun")
_GRID_ENGINE = ("qrsh", "qsub", "sge_execd", "sge_qmaster")
_NAMESPACES = ("--net", "--uts", "--mount", "--pid")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT = 150.0
_POLL = 0.05


def reason_to_skip(programs: Sequence[str] = _SLURM) -> str | None:
    """Why there can be no bed here; None when there can. programs: of the scheduler."""
    if os.geteuid() != 0:
        return needs.missing("root")
    needed = ("ip", "nsenter", "unshare", *programs)
    missing = [program for program in needed if shutil.which(program, path=_SYSTEM_PATH) is None]
    if missing:
        return needs.missing(", ".join(missing))
    probe = subprocess.run(["unshare", *_NAMESPACES, "--fork", "true"], capture_output=True)
    return None if probe.returncode == 0 else needs.missing(f"namespaces: {probe.stderr!r}")


def reason_to_skip_grid_engine() -> str | None:
    """As `reason_to_skip`."""
    return reason_to_skip(_GRID_ENGINE)


class SchedulerBed:
    """Hosts node1 to node<count> with four cores each; entered, a scheduler runs on them.

    script: in this folder, starts it. own: how its variables begin, of which jobs get none.
    """

    script = ""
    own = ""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.count = count

    def variables(self) -> dict[str, str]:
        """What its commands read."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        outside = {
            name: value for name, value in os.environ.items() if not name.startswith(self.own)
        }
        self._keeper = subprocess.Popen(
            [
                *("unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc"),
                *(
                    "bash",
                    str(Path(__file__).with_name(self.script)),
                    str(self.folder),
                    str(self.count),
                ),
            ],
            # Its end of file ends the bed, even when we are killed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**outside, "PATH": f"{outside.get('PATH', '')}:{_SYSTEM_PATH}"},
        )
        assert self._keeper.stdout is not None
        said = self._keeper.stdout.readline()
        if said != "up\n":
            self.__exit__(None, None, None)
            raise AssertionError(f"{self.script} failed, see {self.folder}/log")
        children = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children")
        self._pid = int(children.read_text().split()[0])
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._keeper.kill()
        self._keeper.wait()
        for stream in (self._keeper.stdin, self._keeper.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()

    def command(self, *command: str) -> list[str]:
        """The command line that runs `command` beside the controller, in a folder of ours."""
        return ["nsenter", f"--target={self._pid}", *_NAMESPACES, "--wd=/", "--", *command]

    def run(self, *command: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env={**env, **self.variables()},
            check=False,
        )

    def start(self, *command: str, env: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a command; its output is one pipe."""
        return subprocess.Popen(
            self.command(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**env, **self.variables()},
        )

    def do(self, *command: str) -> str:
        """Run a command that must succeed; returns what it prints."""
        done = self.run(*command, env={**os.environ, "PATH": _SYSTEM_PATH})
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def cut(self, host: int) -> None:
        """Take a host off the network."""
        self.do("ip", "link", "set", f"veth{host}", "down")

    def mend(self, host: int) -> None:
        """Put a host back on the network."""
        self.do("ip", "link", "set", f"veth{host}", "up")


class SlurmBed(SchedulerBed):
    """Slurm."""

    script = "slurm_bed.sh"
    own = "SLURM"

    def variables(self) -> dict[str, str]:
        return {"SLURM_CONF": f"{self.folder}/slurm.conf"}

    def jobs(self) -> list[str]:
        """The ids of the jobs that Slurm has not finished."""
        return self.do("squeue", "--noheader", "--format=%i").split()

    def wait_until_idle(self) -> None:
        """Return once Slurm has no jobs and all hosts may take some."""
        deadline = time.monotonic() + LIMIT
        while True:
            states = self.do("sinfo", "--noheader", "-N", "--format=%T").split()
            if not self.jobs() and states == ["idle"] * self.count:
                return
            assert time.monotonic() < deadline, f"jobs {self.jobs()}, hosts {states}"
            time.sleep(_POLL)


class GridEngineBed(SchedulerBed):
    """Grid Engine, whose parallel environment `two` gives a job two slots on each host."""

    script = "grid_engine_bed.sh"
    own = "SGE_"

    def variables(self) -> dict[str, str]:
        ports = {"SGE_QMASTER_PORT": "17002", "SGE_EXECD_PORT": "17003"}
        return {"SGE_ROOT": str(self.folder), **ports}
