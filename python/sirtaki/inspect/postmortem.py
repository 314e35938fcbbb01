"""Keeps the state of a failed job, which `sirtaki postmortem` shows."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sirtaki.launch.errors import JobError
from sirtaki.launch.flags.guesses import CommandParser, refused
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.job_watch import JobWatch
from sirtaki.launch.processes.outcome import Outcome
from sirtaki.questions.messages import RankAnswer
from sirtaki.rendezvous.files.private_folder import (
    make_private_folder,
    opened,
    private_folder_in,
    write_whole,
)
from sirtaki.rendezvous.host.presence import job_name, own_folder
from sirtaki.rendezvous.words import parse_json, printable

VARIABLE = "SIRTAKI_POSTMORTEM"
_FILE = "postmortem.json"
_FOLDER = "postmortem"
_MOST_KEPT = 8
_MOST_BYTES = 16 << 20
_MOST_OPERATIONS = 8
# Raised for a missing or invalid file, or one of another version.
_NO_STORY = (OSError, ValueError, LookupError, TypeError, AttributeError)


@contextlib.contextmanager
def kept_if_it_fails(
    settings: Settings, store: str, watch: JobWatch, say: Callable[[str], object]
) -> Iterator[Callable[[Outcome], Outcome]]:
    """Keep what is known of a job that fails in this context, and print where.

    Args:
        settings: The job's settings.
        store: The address of its store.
        watch: The watch that asked its ranks last.
        say: Prints a line.

    Yields:
        A function that receives the job's outcome, and returns it.
    """

    def kept(outcome: Outcome, error: str = "") -> Outcome:
        name = job_name(store)
        try:
            folder = keep(outcome, settings, name, watch.answers, os.environ, error)
        except OSError as why:
            say(f"nothing is kept of what the ranks did: {why}")
            return outcome
        if folder is not None:
            say(f"what the ranks did: sirtaki postmortem {folder}")
        return outcome

    try:
        yield kept
    except JobError as error:
        kept(Outcome(), str(error))
        raise


def keep(
    outcome: Outcome,
    settings: Settings,
    job: str,
    answers: Sequence[RankAnswer],
    environ: Mapping[str, str],
    error: str = "",
) -> Path | None:
    """Save what is known of a failed job.

    Args:
        outcome: How it ended.
        settings: The job's settings.
        job: The job's name.
        answers: The last answers of its ranks; see `questions.collect`.
        environ: May name the folder, or disable this.
        error: The reason for the end, if it was not a rank.

    Returns:
        The folder; None if this is disabled.

    Raises:
        OSError: Nothing could be saved.
    """
    chosen = environ.get(VARIABLE, "")
    alone = len(settings.slots) == 1  # an elastic job has none
    if chosen == "0" or alone or (outcome.failure is None and not (error and answers)):
        return None
    first = outcome.first_error
    launcher = {
        "job": job,
        "time": time.time(),
        "command": settings.command,
        "error": error,
        "rank": None,
        "first_error": None if first is None else [first.rank, first.error],
    }
    if (failure := outcome.failure) is not None:
        launcher |= {
            "rank": failure.rank,
            "host": settings.slots[failure.rank].host,
            "exit_code": failure.exit_code,
            "signal": failure.signal_name,
            "out_of_memory": outcome.out_of_memory.get(failure.rank, ""),
        }
    root = Path(chosen) if chosen else own_folder() / _FOLDER
    folder = private_folder_in(root, job)
    try:
        with opened(folder) as inside:
            write_whole(inside, _FILE, _text(launcher, answers).encode(errors="replace"))
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)  # such as on a full disk
        raise
    _write_flight_records(folder, answers)
    if not chosen:
        _forget_old(root)
    return folder


def _write_flight_records(job: Path, answers: Sequence[RankAnswer]) -> None:
    # Here, because jobs that end well start faster without it.
    from sirtaki.inspect.flight_records import FLIGHT_RECORDS, flight_records

    folder, files = job / FLIGHT_RECORDS, flight_records(answers)
    if not files or sum(map(len, files.values())) > _MOST_BYTES:
        return
    try:
        make_private_folder(folder)
        with opened(folder) as inside:
            for rank, content in files.items():
                write_whole(inside, f"rank_{rank}", content)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


def _text(launcher: Mapping[str, Any], answers: Sequence[RankAnswer]) -> str:
    """Return the text to write, without stacks or without ranks if it would be too long."""
    bare = [{**answer, "place": None} for answer in answers]
    for ranks in (list(answers), bare):
        text = json.dumps({"launcher": launcher, "ranks": ranks})
        if len(text) <= _MOST_BYTES:
            return text
    return json.dumps({"launcher": launcher, "ranks": []})


def _forget_old(root: Path) -> None:
    for folder in _kept(root)[_MOST_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


def _kept(root: Path) -> list[Path]:
    """Return the folders of failed jobs, the latest first."""
    found = []
    for file in root.glob(f"*/{_FILE}"):
        with contextlib.suppress(FileNotFoundError):  # another job has just removed it
            found.append((file.stat().st_mtime, file.parent))
    return [folder for _, folder in sorted(found, reverse=True)]


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki postmortem …`; returns 0, or 2 if nothing was kept."""
    args = make_parser().parse_args(arguments)
    try:
        folders = [Path(args.folder)] if args.folder else _kept(own_folder() / _FOLDER)
    except OSError as error:
        return refused("sirtaki postmortem", error)
    if not folders:
        return refused("sirtaki postmortem", "none of your jobs has failed on this machine")
    file = folders[0] / _FILE
    try:
        seen = parse_json(file.read_bytes())
        lines = story(seen["launcher"], seen["ranks"])
    except _NO_STORY as error:
        return refused("sirtaki postmortem", printable(f"{file}: {error!r}"))
    print("\n".join(map(printable, lines)))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki postmortem`."""
    parser = CommandParser(
        prog="sirtaki postmortem",
        description="Show what the ranks of a failed job were doing: which one failed first and "
        "how, which operation each was in and at which line, and the failed rank's last "
        "operations.",
    )
    parser.add_argument(
        "folder", nargs="?", help="the folder that `horovodrun` printed (default: the latest)"
    )
    return parser


def story(launcher: Mapping[str, Any], ranks: Sequence[RankAnswer]) -> list[str]:
    """Return the lines that describe the failure.

    Args:
        launcher: The launcher's record.
        ranks: The ranks' answers before the launcher ended them.
    """
    from sirtaki.hang.analysis import analyse
    from sirtaki.hang.answers import job_of
    from sirtaki.hang.report import report

    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(launcher["time"]))
    lines = [f"job {launcher['job']}, {when}: {shlex.join(launcher['command'])}", _end(launcher)]
    if launcher["first_error"]:
        rank, error = launcher["first_error"]
        lines.append(f"the first error is that of rank {rank}: {error}")
    if not ranks:
        return [*lines, "no rank reported its last operations"]
    finding = analyse(job_of(ranks))
    told = report(finding, "").splitlines()
    lines += ["what the ranks did then:", *(told if finding.missed else told[1:])]
    return lines + _last_operations(launcher["rank"], ranks)


def _end(launcher: Mapping[str, Any]) -> str:
    """Return what ended the job: its first failed rank, or the launcher's error."""
    if launcher["rank"] is None:
        return f"the job was ended: {launcher['error']}"
    how = f"exit code {launcher['exit_code']}"
    if launcher["signal"]:
        how = f"killed by {launcher['signal']}"
    if launcher["out_of_memory"]:
        how += f": memory ran out in {launcher['out_of_memory']}"
    return f"rank {launcher['rank']} on {launcher['host']} failed first: {how}"


def _last_operations(rank: int | None, ranks: Sequence[RankAnswer]) -> list[str]:
    """Return the failed rank's latest operations, as another rank of its host read them."""
    for answer in ranks:
        for world in answer.get("work") or ():
            for state in world["ranks"]:
                if world["whole"] and state["rank"] == rank and state.get("records"):
                    records = state["records"][-_MOST_OPERATIONS:]
                    return [f"the last operations of rank {rank}:", *(f"  {r}" for r in records)]
    return []
