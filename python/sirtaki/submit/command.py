"""`sirtaki submit`: writes a job script and submits it to a scheduler."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sirtaki.launch.errors import FAILED, NOT_FOUND, LaunchError, reported
from sirtaki.launch.flags.options import positive, whole
from sirtaki.launch.flags.parser import LaunchParser
from sirtaki.schedulers import table
from sirtaki.schedulers.job_script import SubmitRequest
from sirtaki.schedulers.scheduler import Scheduler

_PROG = "sirtaki submit"


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all flags; the first non-flag and all after it are `command`."""
    schedulers = _schedulers()
    parser = LaunchParser(
        prog=_PROG,
        usage=f"{_PROG} --scheduler {{{','.join(schedulers)}}} [flags] -- command …",
        description="Write a job script that runs a training script, and submit it.",
    )
    parser.add_argument("--scheduler", choices=sorted(schedulers), required=True)
    parser.add_argument("--nodes", type=positive, default=1, metavar="N", help="hosts (1)")
    parser.add_argument(
        "--ranks-per-node", type=positive, default=1, metavar="N", help="processes on each (1)"
    )
    parser.add_argument(
        "--threads", type=positive, default=1, metavar="N", help="cores of each process (1)"
    )
    parser.add_argument("--gpus", type=positive, default=0, metavar="N", help="GPUs of each node")
    parser.add_argument("--time", metavar="HH:MM:SS", help="longest time the job may run")
    parser.add_argument("--account", metavar="NAME", help="the account to charge")
    parser.add_argument(
        "--partition", "--queue", dest="queue", metavar="NAME", help="where to queue"
    )
    parser.add_argument(
        "--module",
        dest="modules",
        action="append",
        default=[],
        metavar="NAME",
        help="load this environment module (may be repeated)",
    )
    parser.add_argument("--name", default="sirtaki", help="of the job (sirtaki)")
    parser.add_argument("--output", metavar="FILE", help="what the job prints goes here")
    parser.add_argument(
        "--print",
        "--dry-run",
        dest="only_print",
        action="store_true",
        help="show the script, submit nothing",
    )
    for each in schedulers.values():
        for flag in each.flags:
            kind = whole if flag.number else str
            parser.add_argument(flag.name, type=kind, metavar=flag.metavar, help=flag.help)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="program and its arguments")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki submit …`; returns the exit code, that of sbatch or qsub if it ran."""
    try:
        args = make_parser().parse_args(arguments)
        scheduler = _schedulers()[args.scheduler]
        with reported():
            # The interpreter's folder: the job uses this installation, whatever modules it loads.
            script = scheduler.script(_request(args, scheduler), Path(sys.executable).parent)
        if args.only_print:
            print(script, end="")
            return 0
        return _submit(list(scheduler.submit), script)
    except LaunchError as error:
        print(f"{_PROG}: error: {error}", file=sys.stderr)
        return error.exit_code


def _schedulers() -> dict[str, Scheduler]:
    return {each.name: each for each in table.every() if each.submit}


def _request(args: argparse.Namespace, scheduler: Scheduler) -> SubmitRequest:
    values = vars(args)
    command = list(values["command"])
    if command[:1] == ["--"]:
        del command[0]
    if not command:
        raise LaunchError("the command to run is missing: … -- python train.py")
    own = {name: values[name] for name in (flag.attribute for flag in scheduler.flags)}
    asked = {name: values[name] for name in SubmitRequest.__dataclass_fields__ if name in values}
    return SubmitRequest(**{**asked, "command": command}, own=own, shown=args.only_print)


def _submit(command: list[str], script: str) -> int:
    if shutil.which(command[0]) is None:
        raise LaunchError(
            f"{command[0]} is not on the PATH here; --print shows the script to submit elsewhere",
            NOT_FOUND,
        )
    data = script.encode(errors="surrogateescape")
    try:
        return subprocess.run(command, input=data, check=False).returncode
    except OSError as error:
        raise LaunchError(f"{command[0]} cannot be started: {error.strerror}", FAILED) from None
