"""The checked request of `sirtaki submit`, and the common part of all job scripts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The scheduler, not a shell, parses directives, with rules of its own for quotes, so only single
# plain words are allowed. These are strings because `re` compiles them at first use.
WORD = r"[A-Za-z0-9_][A-Za-z0-9_.+@:=,-]*"
_PATH = r"[A-Za-z0-9_./~%][A-Za-z0-9_./~%+@:=,-]*"
_MODULE = r"[A-Za-z0-9_][A-Za-z0-9_./+@:=-]*"
_TIME = r"[0-9]{1,4}:[0-5][0-9]:[0-5][0-9]"
_JOB_NAME = r"[A-Za-z][A-Za-z0-9_.-]*"


@dataclass(frozen=True)
class Flag:
    """A flag of `sirtaki submit` for one scheduler only.

    metavar, help: as in argparse. number: whether its value is a whole number.
    """

    name: str
    metavar: str
    help: str
    number: bool = False

    @property
    def attribute(self) -> str:
        """Its name among the parsed flags."""
        return self.name.lstrip("-").replace("-", "_")


@dataclass(frozen=True)
class SubmitRequest:
    """A request to a scheduler.

    command: program and arguments of every rank. threads: per rank, also its cores. gpus: per node.
    time: "HH:MM:SS". queue: a partition in Slurm. output: the file for the job's output. own: the
    values of the scheduler's own flags. shown: it is only printed, so it contains no secret. Raises
    ValueError for a value that a job script cannot contain.
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
    own: Mapping[str, Any] = field(default_factory=dict)
    shown: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        require(_JOB_NAME, self.name, "--name", "a letter, then letters, digits, _ . -")
        require(_TIME, self.time, "--time", "HH:MM:SS")
        require(WORD, self.account, "--account", "one word")
        require(WORD, self.queue, "--partition, --queue", "one word")
        require(_PATH, self.output, "--output", "a path without spaces and quotes")
        for module in self.modules:
            require(_MODULE, module, "--module", "the name of a module, such as gcc/12.2")
        if any("\0" in word for word in self.command):
            raise ValueError("the command contains a byte of value zero")


def require(form: str, value: str | None, flag: str, expected: str) -> None:
    """Raise ValueError for a flag's value that is not of a form, None if it was not given."""
    if value is not None and re.fullmatch(form, value) is None:
        raise ValueError(f"{flag} {value!r}: expected {expected}")


def given(option: str, value: str | None) -> list[str]:
    """Return an option with its value, [] if it was not given."""
    return [] if value is None else [option + value]


def bash_script(
    prefix: str,
    options: list[str],
    enter: str,
    request: SubmitRequest,
    programs: Path,
    hosts: str = "",
) -> str:
    """Return a job script.

    prefix: of a line with an option. enter: the command that changes to the job's folder, "" if the
    job starts there. programs: the folder of the `sirtaki` to run. hosts: flags for it.
    """
    # `module` is a function that only a login shell is sure to define.
    lines = ["#!/bin/bash -l" if request.modules else "#!/bin/bash"]
    lines += [f"{prefix} {option}" for option in options]
    lines += ["", "set -euo pipefail", *([enter] if enter else [])]
    if request.modules:
        lines.append("set +u  # the module function of many sites uses variables that are not set")
        lines += [f"module load {shlex.quote(module)}" for module in request.modules]
        lines.append("set -u")
    lines += [
        f"export OMP_NUM_THREADS={request.threads}",
        f'export PATH={shlex.quote(str(programs))}:"$PATH"',
        # exec, so that the scheduler's signals reach it.
        f"exec sirtaki run{hosts} -- {shlex.join(request.command)}",
        "",
    ]
    return "\n".join(lines)
