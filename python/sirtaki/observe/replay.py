"""`sirtaki replay`: computes a step that a rank of a reproducible training has kept."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.observe.arguments import divided, missing_command
from sirtaki.rendezvous.files.kept_step import REPLAY, kept_step, last_replay
from sirtaki.rendezvous.words import printable

_PROG = "sirtaki replay"


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki replay …`; returns the program's exit code, or 2 if it replayed nothing."""
    before, command = divided(arguments)
    parser = make_parser()
    folder = Path(parser.parse_args(before).folder).absolute()
    if wrong := missing_command(command):
        parser.error(wrong)
    try:
        with kept_step(folder) as (facts, _):
            print(printable(f"rank {facts.rank} kept this step: {facts.why}"), flush=True)
        begun = last_replay(folder)
        threads = {"OMP_NUM_THREADS": str(facts.threads)}
        done = subprocess.run(
            command, env={**os.environ, **threads, REPLAY: str(folder)}, check=False
        )
        if last_replay(folder) != begun:
            return done.returncode if done.returncode >= 0 else 128 - done.returncode
    except (OSError, ValueError) as error:
        return refused(_PROG, printable(str(error)))
    why = (
        f"{shlex.join(command)} ended (exit code {done.returncode}) without a call of "
        "state.parts() of a reproducible state, so it has computed nothing of this step"
    )
    return refused(_PROG, printable(why))


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki replay`."""
    parser = CommandParser(
        prog=_PROG,
        usage=f"{_PROG} FOLDER -- command …",
        description="Compute the parts of a step that a rank has kept (SIRTAKI_KEEP_STEP=1), in "
        "one process of the same program, and name the first module whose output is not finite.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="the folder that the rank has printed")
    return parser
