"""The programs `sirtaki` and `horovodrun`."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence

import sirtaki
from sirtaki.launch.errors import ONLY_LINUX, USAGE

# Name: what it does, the module that does it, and its function of the remaining arguments.
_SUBCOMMANDS = {
    "run": ("run a script as several processes", "sirtaki.launch.cli", "run"),
    "submit": ("submit a job to Slurm or PBS", "sirtaki.launch.starters.submit", "main"),
    "doctor": (
        "show what works here, and why something does not",
        "sirtaki.launch.doctor.doctor",
        "main",
    ),
    "ps": ("list your jobs here, and what one is doing", "sirtaki.launch.questions.ps", "main"),
    "stacks": (
        "show where every thread of a job's ranks is",
        "sirtaki.launch.questions.stacks",
        "main",
    ),
    "caffe": ("train, test and measure Caffe's nets", "sirtaki_caffe.commands.main", "main"),
    "bench": ("measure collectives on this machine", "sirtaki.observe.bench", "main"),
}


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
        near = difflib.get_close_matches(name, _SUBCOMMANDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        print(f"sirtaki: error: unknown subcommand {name!r}{hint}\n{_usage()}", file=sys.stderr)
        return 2
    _, module, function = _SUBCOMMANDS[name]
    return _exit_code(module, function, rest)


def horovodrun(arguments: Sequence[str] | None = None) -> int:
    """Run `horovodrun …`; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    return _exit_code("sirtaki.launch.cli", "_horovodrun", arguments)


def run(arguments: Sequence[str]) -> int:
    """Run `sirtaki run …`."""
    from sirtaki.launch import command

    return command.run(arguments, "sirtaki run")


def _horovodrun(arguments: Sequence[str]) -> int:
    from sirtaki.launch import command

    return command.run(arguments, "horovodrun")


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


def _usage() -> str:
    lines = [f"  {name:8} {summary}" for name, (summary, _, _) in _SUBCOMMANDS.items()]
    return "\n".join(["usage: sirtaki <subcommand> …", "", *lines])


if __name__ == "__main__":
    sys.exit(main())
