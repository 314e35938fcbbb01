"""`sirtaki submit`: write a job script and hand it to a scheduler."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sirtaki.launch.errors import NOT_FOUND, LaunchError
from sirtaki.launch.flags.options import positive, whole
from sirtaki.launch.flags.parser import LaunchParser
from sirtaki.launch.starters import kubernetes
from sirtaki.launch.starters.job_script import SCHEDULERS, SubmitRequest

_PROG = "sirtaki submit"
_PODS = "kubernetes"


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all flags; what begins with the first non-flag is `command`."""
    parser = LaunchParser(
        prog=_PROG,
        usage=f"{_PROG} --scheduler {{{','.join((*SCHEDULERS, _PODS))}}} [flags] -- command …",
        description="Write a job script that runs a training script, and submit it.",
    )
    parser.add_argument("--scheduler", choices=sorted((*SCHEDULERS, _PODS)), required=True)
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
    parser.add_argument("--image", metavar="NAME", help="Kubernetes: of the containers")
    parser.add_argument("--namespace", metavar="NAME", help="Kubernetes: of the job's objects")
    parser.add_argument(
        "--restarts",
        type=whole,
        metavar="N",
        help="Kubernetes: start all pods again after a failure, so often, by a JobSet",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="program and its arguments")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Do what the arguments say; returns the exit code, that of sbatch or qsub if it ran."""
    try:
        args = make_parser().parse_args(arguments)
        if args.scheduler == _PODS:
            return _submit_pods(args)
        make_script, submit = SCHEDULERS[args.scheduler]
        # Beside the interpreter: the program is this installation's, whatever modules change.
        script = make_script(_request(args), Path(sys.executable).parent)
        if args.only_print:
            print(script, end="")
            return 0
        return _submit(submit, script)
    except LaunchError as error:
        print(f"{_PROG}: error: {error}", file=sys.stderr)
        return error.exit_code


def _submit_pods(args: argparse.Namespace) -> int:
    if args.image is None:
        raise LaunchError("Kubernetes runs images: give --image NAME, of one that has sirtaki")
    pods = kubernetes.Pods(args.image, args.namespace, args.restarts)
    objects = kubernetes.manifest(_request(args), pods, secret=not args.only_print)
    if args.only_print:
        print(objects, end="")
        return 0
    return _submit(kubernetes.SUBMIT, objects)


def _request(args: argparse.Namespace) -> SubmitRequest:
    values = vars(args)
    command = list(values["command"])
    if command[:1] == ["--"]:
        del command[0]
    if not command:
        raise LaunchError("the command to run is missing: … -- python train.py")
    asked = {name: values[name] for name in SubmitRequest.__dataclass_fields__ if name != "command"}
    return SubmitRequest(command=command, **asked)


def _submit(command: list[str], script: str) -> int:
    if shutil.which(command[0]) is None:
        raise LaunchError(
            f"{command[0]} is not on the PATH here; --print shows the script to submit elsewhere",
            NOT_FOUND,
        )
    data = script.encode(errors="surrogateescape")
    return subprocess.run(command, input=data, check=False).returncode
