"""`sirtaki bench compare`: runs a script over Gloo and Sirtaki, and prints the ratio of steps."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Sequence

from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.observe.arguments import (
    OUTPUT,
    add_limits,
    count,
    divided,
    missing_command,
    missing_for_files,
    write,
)
from sirtaki.observe.compare.turns import NoTurn, Turn, Verdict, conclude, take_turn
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_seconds
from sirtaki.observe.scaling.runs import Limits
from sirtaki.rendezvous.words import aligned
from sirtaki.timed_steps import GLOO, SIRTAKI

_NAMES = {GLOO: "Gloo", SIRTAKI: "Sirtaki"}
_FAILED = 1
_PROG = "sirtaki bench compare"


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki bench compare …`.

    Returns 0, 1 if a run failed or turns disagree, or 2.
    """
    before, command = divided(arguments)
    args, flags = make_parser().parse_known_args(before)
    if wrong := missing_command(command) or missing_for_files(args.json):
        return refused(_PROG, wrong)
    facts = machine_facts()
    limits = Limits(args.seconds, None, args.warm_up, args.patience)
    turns: list[Turn] = []
    failure = ""
    try:
        for number, by in enumerate(_order(args.pairs), 1):
            words = f"turn {number} of {2 * args.pairs}, {_NAMES[by]} ..."
            print(f"{_PROG}: {words}", file=sys.stderr, flush=True)
            turns.append(take_turn(by, command, flags, args.num_proc, limits))
    except NoTurn as why:
        failure = str(why)
    except KeyboardInterrupt:
        failure = "it was ended by Ctrl-C"
    verdict = conclude(turns, len(os.sched_getaffinity(0)))
    if args.json != OUTPUT:
        print("\n".join(_lines(turns, verdict, args.num_proc)))
    if args.json:
        result = {
            "benchmark": "compare",
            "command": shlex.join(["sirtaki", "bench", "compare", *arguments]),
            "ranks": args.num_proc,
            "machine": facts,
            "turns": [dataclasses.asdict(one) for one in turns],
            **dataclasses.asdict(verdict),
            "error": failure,
        }
        write(args.json, json.dumps(result, indent=1))
    if failure or verdict.ratio is None:
        return refused(_PROG, failure or verdict.doubt, _FAILED)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki bench compare`."""
    parser = CommandParser(
        _PROG,
        usage=f"{_PROG} [flags] -- command …",
        allow_abbrev=False,
        epilog="All other flags, such as -H, are those of horovodrun.",
        description="Run your own PyTorch script, DDP or hvd, over Gloo and over Sirtaki by turns, "
        "and print the ratio of the time of a step. The script stays as it is. A step is the time "
        "from one step of an optimizer to the next.",
    )
    parser.add_argument("-np", "--num-proc", type=count, default=2, help="ranks (2)")
    parser.add_argument("--pairs", type=count, default=3, help="pairs of turns, one over each (3)")
    add_limits(parser, seconds=10.0)
    return parser


def _order(pairs: int) -> list[str]:
    """Return the order of turns: each is first in every other pair, in case the machine slows."""
    return [by for number in range(pairs) for by in ((GLOO, SIRTAKI), (SIRTAKI, GLOO))[number % 2]]


def _lines(turns: Sequence[Turn], verdict: Verdict, ranks: int) -> list[str]:
    if not verdict.ratios:
        return []
    rows = [["PAIR", "GLOO", "SIRTAKI", "RATIO"]]
    for number, ratio in enumerate(verdict.ratios):
        steps = {one.by: one.step for one in turns[2 * number : 2 * number + 2]}
        times = (show_seconds(steps[by]) for by in (GLOO, SIRTAKI))
        rows.append([str(number + 1), *times, f"{ratio:.2f}"])
    lines = aligned(rows)
    if verdict.ratio is not None:
        lines.append(
            f"On {ranks} ranks a step over Sirtaki takes {verdict.ratio:.2f} times as long as over "
            "Gloo."
        )
    return lines
