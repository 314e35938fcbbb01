"""Measure allreduce bandwidth on this machine, and compare it with copying (memcpy)."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from sirtaki.launch.api import run
from sirtaki.launch.errors import LaunchError
from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.observe.arguments import missing_for_files
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import Plan, measure_own, sizes_between, table

_SMALLEST = 4
_LARGEST = 256 << 20
_OF_SCRIPTS = ("scaling", "compare")
_NOTE = """\
A float32 sum over {ranks} ranks in place; medians; GB/s of one rank's payload.
core: the compiled core alone. numpy: sirtaki.allreduce_. torch: hvd.allreduce_.
memcpy: every rank copies as many bytes at the same time, none of them in a cache."""


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki bench …`; returns the exit code."""
    # Imported here, because measurements of collectives do not need these.
    if arguments[:1] == ["scaling"]:
        from sirtaki.observe.scaling import command

        return command.main(arguments[1:])
    if arguments[:1] == ["compare"]:
        from sirtaki.observe.compare import command as compare

        return compare.main(arguments[1:])
    args = make_parser().parse_args(arguments)
    if args.operation in _OF_SCRIPTS:
        return refused("sirtaki bench", f"{args.operation} comes before its flags")
    if wrong := missing_for_files(args.json, args.plot):
        return refused("sirtaki bench", wrong)
    plan = Plan(sizes_between(_SMALLEST, args.max_bytes), seconds=args.seconds)
    facts = machine_facts()
    print(f"Measuring {len(plan.sizes)} sizes on {args.num_proc} ranks ...", file=sys.stderr)
    try:
        timings = run(measure_own, (plan,), num_proc=args.num_proc)[0]
    except LaunchError as error:
        return refused("sirtaki bench", error, error.exit_code)
    except RuntimeError as error:
        print(f"sirtaki bench: {error}", file=sys.stderr)
        return 1
    print("\n".join(table(timings)))
    print(_NOTE.format(ranks=args.num_proc))
    if args.json:
        result = {
            "benchmark": args.operation,
            "command": shlex.join(["sirtaki", "bench", *arguments]),
            "ranks": args.num_proc,
            "machine": facts,
            "timings": timings,
        }
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    if args.plot:
        # Here, because it imports matplotlib.
        from sirtaki.observe.plots import draw_timings

        draw_timings(timings, args.num_proc, args.plot)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki bench`."""
    parser = CommandParser("sirtaki bench", description=__doc__)
    parser.add_argument(
        "operation",
        nargs="?",
        choices=["allreduce", *_OF_SCRIPTS],
        default="allreduce",
        help="what to measure: allreduce, the default; or with your own script scaling, or compare "
        "with Gloo, which have flags of their own (sirtaki bench scaling --help)",
    )
    parser.add_argument("-np", "--num-proc", type=int, default=2, help="ranks (2)")
    parser.add_argument(
        "--max-bytes", type=_size, default=_LARGEST, help="largest array, in bytes (256 MiB)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.04, help="seconds per round, 8 rounds (0.04)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the measurements there")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw them there, as .svg, .png or .pdf (needs matplotlib)"
    )
    return parser


def _size(text: str) -> int:
    size = int(text)
    if size < _SMALLEST:
        raise argparse.ArgumentTypeError(f"{size} is less than the {_SMALLEST} bytes of a float32")
    return size
