"""The arguments shared by `sirtaki bench scaling` and `sirtaki bench compare`."""

from __future__ import annotations

import argparse
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


def missing_command(command: Sequence[str]) -> str:
    """Return the error for a missing command, "" if there is one."""
    if command:
        return ""
    return "the command to run is missing: write it behind --, such as -- python train.py"


def missing_folder(*names: str | None) -> str:
    """Return the error for a file whose folder does not exist, "" if all folders exist."""
    without = (n for n in names if n and n != OUTPUT and not Path(n).resolve().parent.is_dir())
    return next((f"no folder for {name}" for name in without), "")


def write(name: str, text: str) -> None:
    """Write a line to a file, or to the standard output."""
    if name == OUTPUT:
        print(text)
    else:
        Path(name).write_text(text + "\n")
