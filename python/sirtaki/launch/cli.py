"""The programs `sirtaki` and `horovodrun`."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence

import sirtaki
from sirtaki.launch.errors import ONLY_LINUX, USAGE
from sirtaki.records import dataclass


@dataclass(frozen=True)
class Subcommand:
    """A word after `sirtaki`.

    summary: what it does. module: that does it, by `function` of the remaining arguments; its
    `make_parser()` makes the parser of these.
    """

    summary: str
    module: str
    function: str = "main"


GROUPS = {
    "Run": {
        "run": Subcommand("run a script as several processes", "sirtaki.launch.cli", "run"),
        "submit": Subcommand(
            "submit to Slurm, PBS or Kubernetes", "sirtaki.launch.starters.submit"
        ),
        "new": Subcommand("write a training script to start from", "sirtaki.launch.new"),
    },
    "Look into jobs that run": {
        "ps": Subcommand(
            "list your jobs here, or say what one does", "sirtaki.launch.questions.ps"
        ),
        "hang": Subcommand(
            "say why a job hangs, and who holds it up", "sirtaki.launch.questions.hang"
        ),
        "top": Subcommand(
            "show how fast each rank is, and which rank it waits for",
            "sirtaki.launch.questions.top",
        ),
        "trace": Subcommand(
            "record what all ranks do, and say where the time goes", "sirtaki.observe.trace.command"
        ),
        "postmortem": Subcommand(
            "tell what the ranks of a failed job did", "sirtaki.launch.questions.postmortem"
        ),
        "stacks": Subcommand(
            "show where every thread of a job's ranks is", "sirtaki.launch.questions.stacks"
        ),
    },
    "Check and measure": {
        "doctor": Subcommand(
            "show what works here, why something does not, and what to do",
            "sirtaki.launch.doctor.doctor",
        ),
        "bench": Subcommand(
            "measure collectives here, or how your script scales", "sirtaki.observe.bench"
        ),
    },
    "Caffe's nets": {
        "caffe": Subcommand("train, test and measure them", "sirtaki_caffe.commands.main"),
    },
    "Your shell": {
        "completion": Subcommand(
            "print a completion script for your shell", "sirtaki.launch.completion"
        ),
    },
}
_SUBCOMMANDS = {name: each for group in GROUPS.values() for name, each in group.items()}
_EXAMPLES = """\
examples:
  sirtaki new pytorch train.py                    a script that trains at any size
  sirtaki run -np 4 python train.py               four processes on this machine
  sirtaki run -H node1:4,node2:4 python train.py  eight processes on two machines
  sirtaki hang JOB                                why it hangs; `sirtaki ps` lists jobs

`sirtaki SUBCOMMAND --help` lists the flags of one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `sirtaki <subcommand> …`; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        print(_usage(), file=sys.stderr)
        return 2
    name, *rest = arguments
    if name in ("-h", "--help"):
        print(_usage())
        return 0
    if name in ("-v", "--version"):
        print(sirtaki.__version__)
        return 0
    if name not in _SUBCOMMANDS:
        import difflib

        near = difflib.get_close_matches(name, _SUBCOMMANDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        print(f"sirtaki: error: unknown subcommand {name!r}{hint}\n{_usage()}", file=sys.stderr)
        return 2
    chosen = _SUBCOMMANDS[name]
    return _exit_code(chosen.module, chosen.function, rest)


def horovodrun(arguments: Sequence[str] | None = None) -> int:
    """Run `horovodrun …`; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    return _exit_code("sirtaki.launch.cli", "_horovodrun", arguments)


def run(arguments: Sequence[str]) -> int:
    """Run `sirtaki run …`."""
    from sirtaki.launch import start

    return start.run(arguments, "sirtaki run")


def _horovodrun(arguments: Sequence[str]) -> int:
    from sirtaki.launch import start

    return start.run(arguments, "horovodrun")


def _exit_code(module: str, function: str, arguments: Sequence[str]) -> int:
    """Call the function; argparse's way of leaving becomes an exit code too."""
    if sys.platform != "linux" and module.startswith("sirtaki."):
        print(f"sirtaki: error: {ONLY_LINUX}", file=sys.stderr)
        return USAGE
    try:
        return int(getattr(importlib.import_module(module), function)(arguments))
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        package = error.name.replace("_", "-")
        print(
            f"sirtaki: error: this needs the package {package}: pip install {package}",
            file=sys.stderr,
        )
        return 2
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except KeyboardInterrupt:  # nobody who has pressed Ctrl-C wants to see where
        return 128 + signal.SIGINT


def _usage() -> str:
    lines = ["usage: sirtaki SUBCOMMAND ..."]
    for title, subcommands in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:11} {each.summary}" for name, each in subcommands.items()]
    return "\n".join([*lines, "", _EXAMPLES])


if __name__ == "__main__":
    sys.exit(main())
