"""`sirtaki top`: shows the speed of each rank of a job, and which ranks it waits for."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence

from sirtaki.inspect.live import screen
from sirtaki.inspect.live.view import Looks, table
from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.questions.asking import JOB_HELP, UnknownJob, find_launched
from sirtaki.rendezvous.words import printable


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki top …`; returns 0, 1 if no rank answered, or 2."""
    parser = make_parser()
    args = parser.parse_args(arguments)
    if args.web and (args.once or args.json):
        parser.error("--web shows a page: it goes with neither --once nor --json")
    if args.port is not None and not args.web:
        parser.error("--port is of the page: give --web too")
    try:
        job, _ = find_launched(args.job)
    except UnknownJob as error:
        return refused("sirtaki top", error)
    looks = Looks(job, args.interval)
    with contextlib.suppress(KeyboardInterrupt):
        if args.web:
            from sirtaki.inspect.live.page import serve

            if looks.look() is None:
                return _say_ended(looks)
            return serve(looks, args.port or 0)
        if args.once or args.json or not screen.usable():
            return _show(looks, args)
        if screen.Screen(looks).run():
            return _say_ended(looks)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki top`."""
    parser = CommandParser(
        prog="sirtaki top",
        description="For each rank, show step time, CPU, memory, bytes/s and four shares of the "
        "time: COMPUTE, EXPOSED (blocked on communication), COMM (any operation in flight) and "
        "WAIT (an operation that another rank has not called yet). A star marks the straggler, "
        "the rank that others wait for. On a terminal, with the package rich: s sorts by the next "
        "column; up, down or a number, and Enter, show a rank's stack; q ends it, as does "
        "Ctrl-C. The job goes on as if nobody had looked.",
    )
    parser.add_argument("job", nargs="?", help=JOB_HELP)
    parser.add_argument("--once", action="store_true", help="show it once, not until Ctrl-C")
    parser.add_argument(
        "--json", action="store_true", help="as a line of JSON, with a list `ranks`, for programs"
    )
    parser.add_argument(
        "--interval", type=_interval, default=2.0, help="seconds between two looks (default: 2)"
    )
    parser.add_argument(
        "--web",
        action="store_true",
        help="as a page for a browser of this machine, whose address is printed; Ctrl-C ends it",
    )
    parser.add_argument("--port", type=_port, help="of that page (default: one that is free)")
    return parser


def _interval(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.1 to 3600")
    return seconds


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 65535")
    return port


def _show(looks: Looks, args: argparse.Namespace) -> int:
    """Print sample after sample until the job ends, or only one if asked to."""
    while seen := looks.look():
        if args.json:
            print(json.dumps(seen), flush=True)
        else:
            clear = "\x1b[H\x1b[J" if _can_clear() and not args.once else ""
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            print(clear + "\n".join(printable(line)[:width] for line in table(seen)), flush=True)
        if args.once:
            return 0 if looks.answered else 1
        time.sleep(args.interval)
    return _say_ended(looks)


def _can_clear() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _say_ended(looks: Looks) -> int:
    print(
        f"sirtaki top: no rank of {looks.job} is left here, or has called init() yet",
        file=sys.stderr,
    )
    return 1
