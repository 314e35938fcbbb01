"""What is kept of a job that has failed, and `sirtaki postmortem`, which tells it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sirtaki.launch.errors import JobError
from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.processes.outcome import Outcome
from sirtaki.launch.questions.job_watch import JobWatch
from sirtaki.rendezvous.host.presence import job_name, own_folder

VARIABLE = "SIRTAKI_POSTMORTEM"
_FILE = "postmortem.json"
_FOLDER = "postmortem"
_MOST_KEPT = 8
_MOST_BYTES = 16 << 20
_MOST_OPERATIONS = 8


@contextlib.contextmanager
def kept_if_it_fails(
    settings: Settings, store: str, watch: JobWatch, say: Callable[[str], object]
) -> Iterator[Callable[[Outcome], Outcome]]:
    """Keep what is known of a job that fails within, and say where.

    Args:
        settings: What was started.
        store: Where its ranks meet.
        watch: What has asked them at last.
        say: Prints a line.

    Yields:
        What takes the job's outcome, and returns it.
    """

    def kept(outcome: Outcome, error: str = "") -> Outcome:
        name = job_name(store)
        if folder := keep(outcome, settings, name, watch.answers, os.environ, error):
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
    answers: Sequence[Mapping[str, Any]],
    environ: Mapping[str, str],
    error: str = "",
) -> Path | None:
    """Write down what is known of a job that has failed.

    Args:
        outcome: How it ended.
        settings: What was started.
        job: The job's name.
        answers: What its ranks have told at last; see `hang.collect`.
        environ: Where the user says that nothing is to be kept, or in which folder.
        error: What ended the job where no rank did.

    Returns:
        The folder; None where nothing was to be kept or could be.
    """
    chosen = environ.get(VARIABLE, "")
    alone = settings.elastic is None and len(settings.slots) < 2
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
    with contextlib.suppress(OSError):
        root = Path(chosen) if chosen else own_folder() / _FOLDER
        folder = root / job
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            (folder / "new").write_text(_text(launcher, answers))
            (folder / "new").rename(folder / _FILE)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)  # of a full disk
            raise
        _write_flight_records(folder, answers)
        if not chosen:
            _forget_old(root)
        return folder
    return None


def _write_flight_records(job: Path, answers: Sequence[Mapping[str, Any]]) -> None:
    # Here, because jobs that end well start faster without it.
    from sirtaki.launch.questions.flight_records import FLIGHT_RECORDS, flight_records

    folder, files = job / FLIGHT_RECORDS, flight_records(answers)
    if not files or sum(map(len, files.values())) > _MOST_BYTES:
        return
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for rank, content in files.items():
            (folder / f"rank_{rank}").write_bytes(content)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


def _text(launcher: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> str:
    """What is written, without stacks where that would be too long, or without the ranks."""
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
    """The folders of failed jobs, the latest first."""
    files = sorted(root.glob(f"*/{_FILE}"), key=lambda file: -file.stat().st_mtime)
    return [file.parent for file in files]


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki postmortem …`; returns 0, or 2 where nothing is kept there."""
    args = make_parser().parse_args(arguments)
    try:
        folder = Path(args.folder) if args.folder else next(iter(_kept(own_folder() / _FOLDER)))
        seen = json.loads((folder / _FILE).read_text())
        print("\n".join(story(seen["launcher"], seen["ranks"])))
    except StopIteration:
        print("sirtaki postmortem: error: no job of yours has failed here", file=sys.stderr)
        return 2
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"sirtaki postmortem: error: {folder / _FILE}: {error!r}", file=sys.stderr)
        return 2
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki postmortem`."""
    parser = argparse.ArgumentParser(
        prog="sirtaki postmortem",
        description="Tell what the ranks of a job did when it failed: which one failed first and "
        "how, what each was in, where, and its last operations.",
    )
    parser.add_argument(
        "folder", nargs="?", help="the folder that `horovodrun` named (default: the latest)"
    )
    return parser


def story(launcher: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of what happened.

    Args:
        launcher: What the launcher has seen.
        ranks: What the ranks had told, before the launcher ended them.
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
        return [*lines, "its ranks had told nothing when the job was ended"]
    finding = analyse(job_of(ranks))
    told = report(finding, "").splitlines()
    lines += ["what the ranks did then:", *(told if finding.missed else told[1:])]
    return lines + _last_operations(launcher["rank"], ranks)


def _end(launcher: Mapping[str, Any]) -> str:
    """What ended the job: its first rank that failed, or what the launcher has seen."""
    if launcher["rank"] is None:
        return f"the job was ended: {launcher['error']}"
    how = f"exit code {launcher['exit_code']}"
    if launcher["signal"]:
        how = f"killed by {launcher['signal']}"
    if launcher["out_of_memory"]:
        how += f": memory ran out in {launcher['out_of_memory']}"
    return f"rank {launcher['rank']} on {launcher['host']} failed first: {how}"


def _last_operations(rank: int | None, ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """The latest operations of the rank that failed, as a rank beside it has read them."""
    for answer in ranks:
        for world in answer.get("work") or ():
            for state in world["ranks"]:
                if world["whole"] and state["rank"] == rank and state.get("records"):
                    records = state["records"][-_MOST_OPERATIONS:]
                    return [f"the last operations of rank {rank}:", *(f"  {r}" for r in records)]
    return []
