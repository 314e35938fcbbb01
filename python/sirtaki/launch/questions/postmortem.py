"""What is kept of a job that has failed, and `sirtaki postmortem`, which tells it."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sirtaki.launch.flags.settings import Settings
from sirtaki.launch.processes.outcome import Outcome
from sirtaki.rendezvous.host.presence import own_folder

VARIABLE = "SIRTAKI_POSTMORTEM"
_FILE = "postmortem.json"
_FOLDER = "postmortem"
_MOST_KEPT = 8
_MOST_BYTES = 16 << 20
_MOST_OPERATIONS = 8


def keep(
    outcome: Outcome,
    settings: Settings,
    job: str,
    answers: Sequence[Mapping[str, Any]],
    environ: Mapping[str, str],
) -> Path | None:
    """Write down what is known of a job that has failed.

    Args:
        outcome: How it ended.
        settings: What was started.
        job: The job's name.
        answers: What its ranks have told at last; see `hang.collect`.
        environ: Where the user says that nothing is to be kept, or in which folder.

    Returns:
        The folder; None where nothing was to be kept or could be.
    """
    chosen = environ.get(VARIABLE, "")
    if chosen == "0" or outcome.failure is None or len(settings.slots) < 2:
        return None
    failure, error = outcome.failure, outcome.first_error
    launcher = {
        "job": job,
        "time": time.time(),
        "command": settings.command,
        "rank": failure.rank,
        "host": settings.slots[failure.rank].host,
        "exit_code": failure.exit_code,
        "signal": failure.signal_name,
        "out_of_memory": outcome.out_of_memory.get(failure.rank, ""),
        "first_error": None if error is None else [error.rank, error.error],
    }
    with contextlib.suppress(OSError):
        root = Path(chosen) if chosen else own_folder() / _FOLDER
        folder = root / job
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = folder / "new"
        new.write_text(_text(launcher, answers))
        new.rename(folder / _FILE)
        if not chosen:
            _forget_old(root)
        return folder
    return None


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
    how = f"exit code {launcher['exit_code']}"
    if launcher["signal"]:
        how = f"killed by {launcher['signal']}"
    if launcher["out_of_memory"]:
        how += f": memory ran out in {launcher['out_of_memory']}"
    lines = [
        f"job {launcher['job']}, {when}: {shlex.join(launcher['command'])}",
        f"rank {launcher['rank']} on {launcher['host']} failed first: {how}",
    ]
    if launcher["first_error"]:
        rank, error = launcher["first_error"]
        lines.append(f"the first error is that of rank {rank}: {error}")
    if not ranks:
        return [*lines, "its ranks had told nothing when the job was ended"]
    finding = analyse(job_of(ranks))
    told = report(finding, "").splitlines()
    lines += ["what the ranks did then:", *(told if finding.missed else told[1:])]
    return lines + _last_operations(launcher["rank"], ranks)


def _last_operations(rank: int, ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """The latest operations of the rank that failed, as a rank beside it has read them."""
    for answer in ranks:
        for world in answer.get("work") or ():
            for state in world["ranks"]:
                if world["whole"] and state["rank"] == rank and state.get("records"):
                    records = state["records"][-_MOST_OPERATIONS:]
                    return [f"the last operations of rank {rank}:", *(f"  {r}" for r in records)]
    return []
