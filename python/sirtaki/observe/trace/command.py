"""`sirtaki trace`: starts and ends the recording of a job, and reports on the records."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from sirtaki.hang.report import spans
from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.observe.trace import collect, files
from sirtaki.observe.trace.chrome import NoTrace
from sirtaki.observe.trace.matching import align
from sirtaki.observe.trace.model import Rank, Trace
from sirtaki.observe.trace.report import examine, text_of
from sirtaki.questions.asking import JOB_HELP, UnknownJob, find_launched
from sirtaki.rendezvous.host.presence import Presence
from sirtaki.rendezvous.words import printable

_COMMANDS = ("start", "stop", "report", "merge")
# A file beside a rank's record that contains the path for the trace.
_TARGET = "trace"
_POLL_SECONDS = 0.5


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki trace …`; returns 0, 1 if ranks are missing, or 2."""
    parser = make_parser()
    if arguments and arguments[0] not in _COMMANDS and _is_job(arguments[0]):
        parser.error(
            f"`sirtaki trace start {arguments[0]}` begins to record that job, "
            f"`sirtaki trace stop {arguments[0]}` writes the file"
        )
    args = parser.parse_args(arguments)
    try:
        return int(args.do(args))
    except (UnknownJob, collect.Refused, NoTrace, OSError, ValueError) as error:
        return refused(f"sirtaki trace {args.what}", printable(str(error)))


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki trace`."""
    parser = CommandParser(
        prog="sirtaki trace",
        description="Record what all ranks of a running job do, in one file for Perfetto or "
        "chrome://tracing, and tell from it where the time goes: on the launcher's host those of "
        "all hosts, else those on this machine. The job need not be prepared for it.",
    )
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    _add_start(commands)
    _add_stop(commands)
    _add_report(commands)
    _add_merge(commands)
    return parser


def _add_start(commands: argparse._SubParsersAction[CommandParser]) -> None:
    one = commands.add_parser("start", help="begin to record", description="Begin to record.")
    _add_job(one)
    one.add_argument("-o", "--output", metavar="FILE", help=_OUTPUT)
    one.add_argument(
        "--seconds", type=_seconds, help="stop by itself after so long; default: by `stop`"
    )
    one.set_defaults(do=_start)


_MERGED = (
    "name of the merged file: FILE.json or FILE.json.gz for all programs, FILE.pftrace for Perfetto"
)
_OUTPUT = (
    "name of the file that `stop` writes: FILE.json or FILE.json.gz for all programs, FILE.pftrace "
    "for Perfetto (default: trace-JOB.json.gz here)"
)


def _add_job(one: argparse.ArgumentParser) -> None:
    one.add_argument("job", nargs="?", help=JOB_HELP)
    one.add_argument(
        "--patience", type=_seconds, default=5.0, help="seconds for a rank to answer (default: 5)"
    )


def _add_stop(commands: argparse._SubParsersAction[CommandParser]) -> None:
    one = commands.add_parser(
        "stop", help="end it, and write the file", description="End it, and write the file."
    )
    _add_job(one)
    one.add_argument("-o", "--output", metavar="FILE", help="in place of the name given to `start`")
    one.set_defaults(do=_stop)


def _add_report(commands: argparse._SubParsersAction[CommandParser]) -> None:
    one = commands.add_parser(
        "report",
        help="say from a file where each rank's time went",
        description="Say where each rank's time went, who held up the others, and what to change.",
    )
    one.add_argument("file", help="a .json or .json.gz that `sirtaki trace` has written")
    one.add_argument("--plot", metavar="FILE", help="draw it, as FILE.svg or FILE.png")
    one.add_argument("--json", action="store_true", help="for programs: one object")
    one.set_defaults(do=_report)


def _add_merge(commands: argparse._SubParsersAction[CommandParser]) -> None:
    one = commands.add_parser(
        "merge",
        help="put files of several hosts together",
        description="Put files of one job's hosts together. Clocks are set by the operations that "
        "ranks of several hosts took part in.",
    )
    one.add_argument("files", nargs="+", metavar="FILE", help="each of a host's ranks")
    one.add_argument("-o", "--output", metavar="FILE", required=True, help=_MERGED)
    one.set_defaults(do=_merge)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.01 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.01 to 86400")
    return seconds


def _is_job(name: str) -> bool:
    try:
        return bool(name) and bool(find_launched(name)[0])
    except UnknownJob:
        return False


def _start(args: argparse.Namespace) -> int:
    job, ranks = find_launched(args.job)
    target = str(Path(args.output or f"trace-{job}.json.gz").absolute())
    files.require_writable(target)
    recorder = collect.Recorder(job, args.patience)
    try:
        recorder.start()
    finally:
        _name_failures(recorder)
    for one in ranks:
        with contextlib.suppress(OSError):
            (one.folder / _TARGET).write_text(target)
    code = 1 if recorder.failures else 0
    if args.seconds is None:
        where = "" if ranks else f" -o {target}"
        print(f"recording; `sirtaki trace stop {job}{where}` writes {target}")
        _name_others(recorder)
        return code
    with contextlib.suppress(KeyboardInterrupt):
        until = time.monotonic() + args.seconds
        going = True
        while going and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
            going = recorder.poll()
    return max(_write(job, target, recorder), code)


def _stop(args: argparse.Namespace) -> int:
    job, ranks = find_launched(args.job)
    target = args.output or _target(job, ranks)
    files.require_writable(target)
    return _write(job, target, collect.Recorder(job, args.patience))


def _target(job: str, ranks: Sequence[Presence]) -> str:
    for one in ranks:
        with contextlib.suppress(OSError):
            return (one.folder / _TARGET).read_text()
    return f"trace-{job}.json.gz"


def _write(job: str, target: str, recorder: collect.Recorder) -> int:
    found = recorder.take()
    _name_failures(recorder)
    if not found:
        raise collect.Refused("no rank has told what it recorded")
    whole = Trace(job, found)
    _name_clocks(align(whole))
    files.write(whole, target)
    print(f"{target}: {_described(found)}")
    _name_others(recorder)
    return 1 if recorder.failures or (recorder.everywhere and recorder.missing) else 0


def _described(ranks: Sequence[Rank]) -> str:
    operations = sum(len(one.operations) for one in ranks)
    messages = sum(len(one.messages) for one in ranks)
    lost = [str(one.rank) for one in ranks if one.lost]
    text = f"{len(ranks)} ranks, {operations} operations"
    text += f", {messages} sends and receives" if messages else ""
    return text + (f"; of ranks {', '.join(lost)} only the latest fitted" if lost else "")


def _name_failures(recorder: collect.Recorder) -> None:
    for rank, why in sorted(recorder.failures.items()):
        print(printable(f"rank {rank}: {why}"), file=sys.stderr)


def _name_clocks(clocks: Mapping[str, tuple[int, int]]) -> None:
    for host, (late, wrong) in clocks.items():
        text = f"{host}: its clock was {late / 1e6:.3f} ms late, to {wrong / 1e6:.3f} ms"
        print(printable(text), file=sys.stderr)


def _name_others(recorder: collect.Recorder) -> None:
    """Print which ranks were not asked, and how to ask them."""
    missing = recorder.missing
    if not missing:
        return
    if recorder.everywhere:
        print(f"ranks {spans(missing)} have not answered", file=sys.stderr)
        return
    hosts = sorted({printable(recorder.hosts[rank]) for rank in missing})
    print(
        f"only ranks of this host: ranks {spans(missing)} are on {', '.join(hosts)}. On the "
        "launcher's host the command records all; of other launchers' jobs record on each host, "
        "and `sirtaki trace merge` the files"
    )


def _report(args: argparse.Namespace) -> int:
    trace = files.read(args.file)
    found = examine(trace)
    if args.plot:
        from sirtaki.observe.plots import draw_trace  # needs matplotlib

        draw_trace(found, args.plot)
    lines = map(printable, text_of(found).splitlines())
    print(json.dumps(asdict(found)) if args.json else "\n".join(lines))
    return 0


def _merge(args: argparse.Namespace) -> int:
    traces = [files.read(name) for name in args.files]
    jobs = sorted({each.job for each in traces})
    if len(jobs) > 1:
        raise ValueError(f"the files are of different jobs: {', '.join(jobs)}")
    ranks = {one.rank: one for each in traces for one in each.ranks}
    whole = Trace(jobs[0], [ranks[rank] for rank in sorted(ranks)])
    _name_clocks(align(whole))
    files.write(whole, args.output)
    print(f"{args.output}: {_described(whole.ranks)}")
    return 0
