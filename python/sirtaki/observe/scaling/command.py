"""`sirtaki bench scaling`: runs a script at several numbers of ranks, and shows its limits."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from sirtaki.launch.cores.binding import own_processors
from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.observe.arguments import (
    OUTPUT,
    add_limits,
    divided,
    missing_command,
    missing_for_files,
    write,
)
from sirtaki.observe.machine import machine_facts
from sirtaki.observe.scaling import causes, curve
from sirtaki.observe.scaling.causes import Point
from sirtaki.observe.scaling.runs import Limits, NoSteps, Run, run_script
from sirtaki.rendezvous.words import parse_json

_FAILED = 1
_PROG = "sirtaki bench scaling"
_HOSTS = ("-H", "--hosts", "--hostfile")


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki bench scaling …`.

    Returns 0, 1 if a run failed (earlier ones are shown), or 2.
    """
    before, command = divided(arguments)
    args, flags = make_parser().parse_known_args(before)
    wrong = _what_is_wrong(args, flags, command)
    if wrong:
        return refused(_PROG, wrong)
    cpus = _cpus()
    limits = Limits(args.seconds, args.steps, args.warm_up, args.patience)
    try:
        forecast = read_predicted(args.predicted) if args.predicted else {}
    except (OSError, ValueError) as error:
        return refused(_PROG, error)
    facts = machine_facts()
    runs: list[Run] = []
    failure = ""
    for ranks in args.num_proc or _doubling(cpus):
        print(f"{_PROG}: {ranks} rank{'s' if ranks > 1 else ''} ...", file=sys.stderr, flush=True)
        failure = _run(command, flags, ranks, limits, runs)
        if failure:
            break
    points, more = _compared(runs, cpus, args.strong)
    failure = failure or more
    if args.json != OUTPUT:
        _show(points, runs)
        print("".join(f"{line}\n" for line in predicted_lines(points, forecast)), end="")
    if args.json:
        result = _result(arguments, facts, runs, points, failure)
        result["predicted"] = {str(ranks): steps for ranks, steps in forecast.items()}
        write(args.json, json.dumps(result, indent=1))
    if args.plot and points:
        curve.draw(points, args.plot)
    return refused(_PROG, failure, _FAILED) if failure else 0


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki bench scaling`."""
    parser = CommandParser(
        _PROG,
        usage=f"{_PROG} [flags] -- command …",
        allow_abbrev=False,
        epilog="All other flags, such as -H and --verbose, are those of horovodrun.",
        description="Run your own script at several numbers of ranks; show how much faster more "
        "ranks are, and what limits them: exposed communication, stragglers, memory bandwidth, "
        "cores, or input. Steps are counted by the operations that the script asks for; of a "
        "script without any the whole time is compared.",
    )
    parser.add_argument(
        "-np",
        "--num-proc",
        type=_numbers,
        metavar="N,N,…",
        help="the numbers of ranks (default: 1, 2, 4, … up to the cores here)",
    )
    add_limits(parser, seconds=20.0)
    parser.add_argument("--steps", type=int, help="end a run sooner, after so many steps")
    parser.add_argument(
        "--strong",
        action="store_true",
        help="the script divides a fixed amount of work among its ranks; else each has its own",
    )
    parser.add_argument(
        "--predicted",
        metavar="FILE",
        help="that `sirtaki predict … --json` has printed: show what it says beside",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the curve there, as .svg, .png or .pdf (needs matplotlib)",
    )
    return parser


def _numbers(text: str) -> list[int]:
    numbers = sorted({int(word) for word in text.split(",")})
    if numbers[0] < 1:
        raise argparse.ArgumentTypeError(f"{text}: {numbers[0]} is not a number of ranks")
    return numbers


def _what_is_wrong(args: argparse.Namespace, flags: Sequence[str], command: Sequence[str]) -> str:
    if wrong := missing_command(command) or missing_for_files(args.json, args.plot):
        return wrong
    if args.steps is not None and args.steps < 1:
        return f"--steps {args.steps} is not a number of steps"
    if args.num_proc is None and any(each.startswith(_HOSTS) for each in flags):
        return "say with -np at which numbers of ranks the hosts are to be tried, such as -np 2,4"
    return ""


def _cpus() -> float:
    found = own_processors()
    return found.limit or float(len(found.cpus))


def _doubling(cpus: float) -> list[int]:
    return [1 << power for power in range(max(2, int(cpus).bit_length()))]


def _run(
    command: Sequence[str], flags: Sequence[str], ranks: int, limits: Limits, runs: list[Run]
) -> str:
    """Add a run to the earlier ones; return why it is of no use, "" if it is."""
    try:
        run = run_script(command, flags, ranks, limits)
    except NoSteps:
        return (
            f"no steps of {ranks} rank{'s' if ranks > 1 else ''} were seen within "
            f"{limits.patience:g} s: does the script call hvd.init(), and hvd.allreduce or a "
            "DistributedOptimizer in each step? --patience gives it more time"
        )
    except KeyboardInterrupt:
        return f"the run with {ranks} rank(s) was ended by Ctrl-C"
    if run.exit_code:
        told = "".join(f"\n  {line}" for line in run.tail)
        return f"the run with {ranks} rank(s) ended with code {run.exit_code}; it said:{told}"
    runs.append(run)
    return ""


def _compared(runs: Sequence[Run], cpus: float, strong: bool) -> tuple[list[Point], str]:
    if not runs:
        return [], ""
    if any(run.step for run in runs) and not all(run.step for run in runs):
        without = ", ".join(str(run.ranks) for run in runs if not run.step)
        return [], (
            f"no steps were seen with {without} rank(s), which ended too soon: give the script "
            "more steps, or a smaller --warm-up"
        )
    points = causes.compare(runs, cpus, strong)
    return points, "; ".join(point.doubt for point in points if point.doubt)


def _show(points: Sequence[Point], runs: Sequence[Run]) -> None:
    if not points:
        return
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else 100
    print("\n".join(curve.table(points, width)))
    if runs[0].step is None:
        print("No operations were seen: the time of the whole script is compared.")
    else:
        print("\n".join(curve.reasons(points)))


def _result(
    arguments: Sequence[str],
    facts: object,
    runs: Sequence[Run],
    points: Sequence[Point],
    failure: str,
) -> dict[str, object]:
    return {
        "benchmark": "scaling",
        "command": shlex.join(["sirtaki", "bench", "scaling", *arguments]),
        "machine": facts,
        "points": [dataclasses.asdict(point) for point in points],
        "runs": [dataclasses.asdict(run) for run in runs],
        "error": failure,
    }


# By the number of ranks and by exchange, the seconds of a step.
Predicted = Mapping[int, Mapping[str, float]]


def read_predicted(path: str) -> Predicted:
    """Return the steps in a file that `sirtaki predict --json` has printed.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is another file.
    """
    found: dict[int, dict[str, float]] = defaultdict(dict)
    try:
        told = parse_json(Path(path).read_bytes())
        for one in told["forecasts"]:
            ranks = int(told["ranks"]) * int(one["hosts"])
            found[ranks][str(one["exchange"])] = float(one["step"])
    except (ValueError, LookupError, TypeError) as error:
        what = f"{path}: not what `sirtaki predict … --json` prints ({error!r})"
        raise ValueError(what) from None
    return found


def predicted_lines(points: Sequence[Point], predicted: Predicted) -> list[str]:
    """Return for each number of ranks what was predicted, and how much more was measured."""
    shown = []
    for point in points:
        of_ranks = predicted.get(point.ranks, {})
        each = (
            f"{exchange} {step * 1e3:.1f} ms ({point.seconds / step - 1:+.0%})"
            for exchange, step in of_ranks.items()
        )
        if of_ranks:
            shown.append(f"{point.ranks} ranks, predicted (and measured): {', '.join(each)}")
    return shown
