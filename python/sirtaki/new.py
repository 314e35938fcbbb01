"""`sirtaki new`: writes an initial training script."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from sirtaki.launch.flags.guesses import CommandParser, refused

FRAMEWORKS = ("pytorch", "keras", "tensorflow", "jax")


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki new …`; return the exit code."""
    args = make_parser().parse_args(arguments)
    path = Path(args.file)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(script(args.framework))
    except FileExistsError:
        return refused("sirtaki new", f"{path} exists and is not overwritten; give another name")
    except OSError as error:
        return refused("sirtaki new", f"cannot write {path}: {error.strerror}")
    name = shlex.quote(str(path))
    print(f"{path} trains a small network. Run it:")
    print(f"  python {name}")
    print(f"  sirtaki run -np 2 python {name}")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `sirtaki new`."""
    parser = CommandParser(
        prog="sirtaki new",
        description="Write a small training script that runs with one process or many.",
    )
    parser.add_argument("framework", choices=FRAMEWORKS)
    parser.add_argument(
        "file", nargs="?", default="train.py", help="file to write (default: train.py)"
    )
    return parser


def script(framework: str) -> str:
    """Return the script for a framework of `FRAMEWORKS`."""
    name = f"train_{framework}.py"
    return resources.files("sirtaki.templates").joinpath(name).read_text(encoding="utf-8")
