"""Real Slurm on virtual hosts of one machine, see slurm_bed.sh."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests import needs

_SCRIPT = Path(__file__).with_name("slurm_bed.sh")
_PROGRAMS = ("ip", "munged", "nsenter", "sbatch", "slurmctld", "slurmd", "srun", "unshare")
_NAMESPACES = ("--net", "--uts", "--mount", "--pid")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT = 60.0
_POLL = 0.05


def reason_to_skip() -> str | None:
    """Why there can be no bed here; None when there can."""
    if os.geteuid() != 0:
        return needs.missing("root")
    missing = [program for program in _PROGRAMS if shutil.which(program, path=_SYSTEM_PATH) is None]
    if missing:
        return needs.missing(", ".join(missing))
    probe = subprocess.run(["unshare", *_NAMESPACES, "--fork", "true"], capture_output=True)
    return None if probe.returncode == 0 else needs.missing(f"namespaces: {probe.stderr!r}")


class SlurmBed:
    """Hosts node1 to node<count> with four cores each; entered, Slurm runs on them."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.count = count

    def __enter__(self) -> SlurmBed:
        outside = {
            name: value for name, value in os.environ.items() if not name.startswith("SLURM")
        }
        self._keeper = subprocess.Popen(
            [
                *("unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc"),
                *("bash", str(_SCRIPT), str(self.folder), str(self.count)),
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
            raise AssertionError(f"Slurm did not start, see {self.folder}/log")
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
        """The command line that runs `command` beside Slurm's controller, in a folder of ours."""
        return ["nsenter", f"--target={self._pid}", *_NAMESPACES, "--wd=/", "--", *command]

    def run(self, *command: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env={**env, "SLURM_CONF": f"{self.folder}/slurm.conf"},
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
            env={**env, "SLURM_CONF": f"{self.folder}/slurm.conf"},
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
