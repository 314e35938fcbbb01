"""The arguments shared by `sirtaki bench`, its subcommands and `sirtaki predict`."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path

# The name for standard output among names of files.
OUTPUT = "-"


def divided(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags, and the command after --."""
    words = list(arguments)
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def add_limits(parser: argparse.ArgumentParser, seconds: float) -> None:
    """Add --seconds with this default, --warm-up, --patience and --json."""
    parser.add_argument(
        "--seconds",
        type=_positive,
        default=seconds,
        help=f"to watch the steps of each run ({seconds:g})",
    )
    parser.add_argument(
        "--warm-up", type=_positive, default=2.0, help="seconds of steps that do not count (2)"
    )
    parser.add_argument(
        "--patience", type=_positive, default=300.0, help="seconds until the first steps (300)"
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const=OUTPUT,
        metavar="FILE",
        help="write one JSON object there, or alone to the standard output",
    )


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a time in seconds")
    return value


def count(text: str) -> int:
    """Parse a positive number of an argument."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def missing_command(command: Sequence[str]) -> str:
    """Return the error for a missing command, "" if there is one."""
    if command:
        return ""
    return "the command to run is missing: write it behind --, such as -- python train.py"


def missing_for_files(json: str | None, plot: str | None = None) -> str:
    """Return the error for a missing folder of a file or package for a plot, "" if none is."""
    for name in filter(None, (json, plot)):
        if name != OUTPUT and not Path(name).resolve().parent.is_dir():
            return f"no folder for {name}"
    if plot and importlib.util.find_spec("matplotlib") is None:
        return "--plot needs matplotlib: pip install matplotlib"
    return ""


def write(name: str, text: str) -> None:
    """Write a line to a file, or to the standard output."""
    if name == OUTPUT:
        print(text)
    else:
        Path(name).write_text(text + "\n")
