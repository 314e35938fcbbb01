"""`sirtaki predict`: reads a trace, and says how long its steps will take on more hosts."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.observe.arguments import count
from sirtaki.observe.predict.forecast import DILOCO, Forecast, Question, forecasts
from sirtaki.observe.predict.link import parse_link, read_link
from sirtaki.observe.predict.steps import steps_of
from sirtaki.observe.trace import files
from sirtaki.rendezvous.words import aligned, printable

_MOST_HOSTS = 4096
_HEADINGS = ("HOSTS", "EXCHANGE", "STEP", "SPEED-UP", "BOUND BY", "PAYS FROM")


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki predict …`; returns 0, or 2 if a file or an argument is wrong."""
    args = make_parser().parse_args(arguments)
    try:
        link = read_link(args.link) if Path(args.link).is_file() else parse_link(args.link)
        steps = steps_of(files.read(args.trace))
    except (OSError, ValueError) as error:
        return refused("sirtaki predict", printable(str(error)))
    cores = args.cores or steps.cores or math.inf
    asked = Question(steps, link, args.ranks or steps.ranks, cores, args.sync_every)
    found = list(forecasts(asked, args.hosts))
    if args.json:
        print(json.dumps(_result(asked, found)))
    else:
        print("\n".join(_shown(asked, found, args.batch)))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki predict`."""
    parser = CommandParser(
        "sirtaki predict",
        description="From a trace of a job on one or two ranks, predict how long its steps take on "
        "more hosts with float32, bf16, int8 and int4 gradients and with DiLoCo, what bounds them, "
        "and with which batch more hosts are faster than one.",
    )
    parser.add_argument("trace", help="a .json or .json.gz that `sirtaki trace` has written")
    parser.add_argument(
        "--hosts", type=_hosts, required=True, metavar="N,N,…", help="the numbers of hosts"
    )
    parser.add_argument(
        "--link",
        required=True,
        metavar="RATE,TIME",
        help="of each host: its rate and the round trip of a small message, such as 1gbit,0.2ms; "
        "or a file that `sirtaki doctor --hosts … --json` has printed",
    )
    parser.add_argument(
        "--ranks", type=count, metavar="N", help="of each host (default: as in the trace)"
    )
    parser.add_argument(
        "--batch", type=count, metavar="N", help="samples of a rank's step in the trace"
    )
    parser.add_argument(
        "--sync-every", type=count, default=100, metavar="N", help="steps of DiLoCo (100)"
    )
    parser.add_argument(
        "--cores",
        type=_cores,
        metavar="N",
        help="that each rank may use (default: as in the trace)",
    )
    parser.add_argument("--json", action="store_true", help="for programs: one object")
    return parser


def _hosts(text: str) -> list[int]:
    numbers = sorted({int(word) for word in text.split(",")})
    if not 1 <= numbers[0] <= numbers[-1] <= _MOST_HOSTS:
        raise argparse.ArgumentTypeError(f"{text} are not numbers of hosts from 1 to {_MOST_HOSTS}")
    return numbers


def _cores(text: str) -> float:
    number = float(text)
    if not 0.01 <= number <= 4096:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.01 to 4096")
    return number


def _result(asked: Question, found: Sequence[Forecast]) -> dict[str, object]:
    return {
        "ranks": asked.ranks,
        "step": asked.steps.step,
        "computing": asked.steps.computing,
        "gradients": asked.steps.gradients,
        "link": asked.link._asdict(),
        "forecasts": [one._asdict() for one in found],
    }


def _shown(asked: Question, found: Sequence[Forecast], batch: int | None) -> list[str]:
    steps, link = asked.steps, asked.link
    ranks = "1 rank" if asked.ranks == 1 else f"{asked.ranks} ranks"
    return [
        f"{ranks} on a host: a step of {_time(steps.step)}, of which {_time(steps.computing)} "
        f"computes; {steps.gradients / 1e6:.3g} MB of gradients",
        f"link: {link.rate / 1e6:.3g} MB/s, {link.round_trip * 1e3:.3g} ms round trip",
        *aligned([_HEADINGS, *(_row(one, batch) for one in found)]),
        f"{DILOCO} exchanges every {asked.sync_every} steps. PAYS FROM: the batch of a rank with "
        "which these hosts train more samples a second than one",
    ]


def _row(one: Forecast, batch: int | None) -> tuple[str, ...]:
    if one.pays_from is None:
        pays = "never"
    elif batch is None:
        pays = f"{one.pays_from:.2g} x"
    else:
        pays = f"{max(1, round(one.pays_from * batch))}"
    speed_up = f"{one.speed_up:.2f}"
    return str(one.hosts), one.exchange, _time(one.step), speed_up, one.bound, pays


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
