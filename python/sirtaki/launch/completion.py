"""`sirtaki completion`: print a shell completion script, made by `shtab`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence

from sirtaki.launch.cli import GROUPS, Subcommand
from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.launch.flags.parser import make_parser as make_run_parser

SHELLS = ("bash", "zsh", "tcsh")
_FILES = ("FILE", "YAML", "SCRIPT", "PATH")


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki completion …`; returns the exit code."""
    args = make_parser().parse_args(arguments)
    try:
        import shtab
    except ModuleNotFoundError:
        return refused("sirtaki completion", "this needs the package shtab: pip install shtab")
    for parser in (_sirtaki(), make_run_parser("horovodrun")):
        _complete_files(parser, shtab.FILE, shtab.DIRECTORY)
        print(shtab.complete(parser, args.shell))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki completion`."""
    parser = CommandParser(
        prog="sirtaki completion",
        description="Print a script that completes the words of sirtaki and horovodrun in your "
        'shell. For bash: eval "$(sirtaki completion bash)"',
    )
    parser.add_argument("shell", choices=SHELLS)
    return parser


def _sirtaki() -> argparse.ArgumentParser:
    """Make a parser of all installed subcommands."""
    parser = argparse.ArgumentParser("sirtaki")
    parser.add_argument("-v", "--version", action="store_true", help="print the version")
    words = parser.add_subparsers()
    for group in GROUPS.values():
        for name, subcommand in group.items():
            own = _parser_of(name, subcommand)
            parents = [] if own is None else [own]
            words.add_parser(name, help=subcommand.summary, parents=parents, add_help=False)
    return parser


def _parser_of(name: str, subcommand: Subcommand) -> argparse.ArgumentParser | None:
    if name == "run":
        return make_run_parser("sirtaki run")
    try:
        module = importlib.import_module(subcommand.module)
    except ModuleNotFoundError:
        return None
    made: argparse.ArgumentParser | None = getattr(module, "make_parser", lambda: None)()
    return made


def _complete_files(
    parser: argparse.ArgumentParser, file: Mapping[str, object], folder: Mapping[str, object]
) -> None:
    """Mark the arguments that are names of files or folders."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                _complete_files(own, file, folder)
        elif action.metavar == "DIR":
            action.complete = folder  # type: ignore[attr-defined]
        elif action.metavar in _FILES or action.dest in ("command", "file"):
            action.complete = file  # type: ignore[attr-defined]
