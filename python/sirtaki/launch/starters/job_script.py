"""Job scripts for schedulers: what the user asked for, checked, as bash."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from sirtaki.launch.errors import LaunchError
from sirtaki.records import dataclass, field

# Directives are read by the scheduler, not by a shell, and it has rules of its own for quotes: so
# nothing that could be more than one plain word.
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@:=,-]*")
_PATH = re.compile(r"[A-Za-z0-9_./~%][A-Za-z0-9_./~%+@:=,-]*")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+@:=-]*")
_TIME = re.compile(r"[0-9]{1,4}:[0-5][0-9]:[0-5][0-9]")
_JOB_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class SubmitRequest:
    """What is asked of a scheduler.

    command: program and arguments of every rank. threads: of a rank, cores as well. gpus: of a
    node. time: "HH:MM:SS". queue: a partition in Slurm. output: the file for what the job prints.
    Raises LaunchError for a value that a job script cannot hold.
    """

    command: list[str]
    nodes: int = 1
    ranks_per_node: int = 1
    threads: int = 1
    gpus: int = 0
    time: str | None = None
    account: str | None = None
    queue: str | None = None
    modules: list[str] = field(default_factory=list)
    name: str = "sirtaki"
    output: str | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        _require(_JOB_NAME, self.name, "--name", "a letter, then letters, digits, _ . -")
        _require(_TIME, self.time, "--time", "HH:MM:SS")
        _require(_WORD, self.account, "--account", "one word")
        _require(_WORD, self.queue, "--partition, --queue", "one word")
        _require(_PATH, self.output, "--output", "a path without spaces and quotes")
        for module in self.modules:
            _require(_MODULE, module, "--module", "the name of a module, such as gcc/12.2")
        if any("\0" in word for word in self.command):
            raise LaunchError("the command contains a byte of value zero")


def _require(form: re.Pattern[str], value: str | None, flag: str, expected: str) -> None:
    if value is not None and form.fullmatch(value) is None:
        raise LaunchError(f"{flag} {value!r}: expected {expected}")


def slurm_script(request: SubmitRequest, programs: Path) -> str:
    """Return the script for sbatch. programs: the folder of the `sirtaki` to run."""
    options = [
        f"--job-name={request.name}",
        f"--nodes={request.nodes}",
        f"--ntasks-per-node={request.ranks_per_node}",
        f"--cpus-per-task={request.threads}",
        *([f"--gpus-per-node={request.gpus}"] if request.gpus else []),
        *_given("--time=", request.time),
        *_given("--account=", request.account),
        *_given("--partition=", request.queue),
        *_given("--output=", request.output),
    ]
    return _script("#SBATCH", options, 'cd "$SLURM_SUBMIT_DIR"', request, programs)


def pbs_script(request: SubmitRequest, programs: Path) -> str:
    """Return the script for qsub of OpenPBS and PBS Pro. programs: as `slurm_script`."""
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
        *_given("-l walltime=", request.time),
        *_given("-A ", request.account),
        *_given("-q ", request.queue),
        *_given("-o ", request.output),
    ]
    return _script("#PBS", options, 'cd "$PBS_O_WORKDIR"', request, programs)


# By the scheduler's name: the script, and the command that takes it on standard input.
SCHEDULERS: dict[str, tuple[Callable[[SubmitRequest, Path], str], list[str]]] = {
    "slurm": (slurm_script, ["sbatch"]),
    "pbs": (pbs_script, ["qsub", "-"]),
}


def _given(option: str, value: str | None) -> list[str]:
    return [] if value is None else [option + value]


def _script(
    prefix: str, options: list[str], enter: str, request: SubmitRequest, programs: Path
) -> str:
    # Modules are a function that only a login shell is sure to have.
    lines = ["#!/bin/bash -l" if request.modules else "#!/bin/bash"]
    lines += [f"{prefix} {option}" for option in options]
    lines += ["", "set -euo pipefail", enter]
    if request.modules:
        lines.append("set +u  # the module function of many sites uses variables that are not set")
        lines += [f"module load {shlex.quote(module)}" for module in request.modules]
        lines.append("set -u")
    lines += [
        f"export OMP_NUM_THREADS={request.threads}",
        f'export PATH={shlex.quote(str(programs))}:"$PATH"',
        # In the shell's place, so that the scheduler's signals reach it.
        f"exec sirtaki run -- {shlex.join(request.command)}",
        "",
    ]
    return "\n".join(lines)
