"""Asks the ranks of a job on this host, all at a time, and looks at their processes from outside.

It only reads: nothing of a rank's state can be written from here.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from sirtaki.hang.asking import Busy, NoAnswer, ask, dump
from sirtaki.hang.dumped import main_stack
from sirtaki.hang.scheduled import scheduled
from sirtaki.rendezvous.host.presence import Presence, own_namespace, present

_ASKED_AT_ONCE = 32
_FAR_SECONDS = 3.0
# What a poll asks for, what a report does, and what does where nobody else asks the other hosts.
POLL = "lead"
REPORT = "work"
FAR = "far"
# What asks how fast ranks are.
RATES = "rates"
# The same, with lines of code and what the kernel says: for `sirtaki bench scaling`.
FIGURES = "figures"
# What asks for all that can be known, after a failure.
RECORDS = "records"


def collect(job: str, question: str = REPORT, patience: float = 0.4) -> list[dict[str, Any]]:
    """Return what the ranks of a job on this host tell, as JSON has it, by rank.

    Args:
        job: Its name.
        question: `POLL`, `REPORT`, `FAR`, `RATES`, `FIGURES` or `RECORDS`.
        patience: How many seconds a rank has to answer.
    """
    every = [each for each in present() if each.record.job == job]
    own = own_namespace()
    # Of containers that share the folder each looks after its own; their numbers mean nothing here.
    ours = [each for each in every if each.record.namespace == own]
    here = {each.record.rank: each for each in ours or every}
    if not here:
        return []
    ranks = [here[rank] for rank in sorted(here)]
    first = REPORT if question in (FAR, RECORDS) else question
    with ThreadPoolExecutor(min(_ASKED_AT_ONCE, len(ranks))) as pool:
        found = list(pool.map(partial(_look, question=first, patience=patience), ranks))
    some = next((number for number, one in enumerate(found) if "work" in one), None)
    if some is None:
        return found
    if question == FAR:
        _ask_more(ranks[some], found[some], question, _FAR_SECONDS)
    elif question == RECORDS:
        _ask_for_records(ranks, found)
    elif question not in (RATES, FIGURES) and not all("work" in one for one in found):
        # The others know from shared memory what those do that do not answer.
        for rank, one in zip(ranks, found, strict=True):
            if "work" in one:
                _ask_more(rank, one, "every", patience)
    return found


def _ask_more(rank: Presence, answer: dict[str, Any], question: str, patience: float) -> None:
    with contextlib.suppress(NoAnswer):
        answer["work"] = ask(rank, question, patience)


def _ask_for_records(ranks: list[Presence], found: list[dict[str, Any]]) -> None:
    """Ask one rank of each world here, which knows the records of all that are here."""
    known: set[str] = set()
    for rank, one in zip(ranks, found, strict=True):
        keys = {world["key"] for world in one.get("work", ())}
        if not keys <= known:
            _ask_more(rank, one, RECORDS, _FAR_SECONDS)
            known |= keys


def _look(rank: Presence, question: str, patience: float) -> dict[str, Any]:
    record = rank.record
    found: dict[str, Any] = {
        "rank": record.rank,
        "pid": record.pid if record.namespace == own_namespace() else 0,
        "host": record.hostnames[record.rank],
        "hosts": [] if question == POLL else record.hostnames,
        "memory": _memory(record.pid) if question == RATES else None,
        **_process(record.pid),
        "before": _done(record.pid),
    }
    if question == FIGURES:
        found["scheduled"] = scheduled(record.pid)
    try:
        found["work"] = ask(rank, RATES if question == FIGURES else question, patience)
        if question in (REPORT, FIGURES):
            found["place"] = ask(rank, "place", patience)
    except Busy as reason:
        found["busy"] = str(reason)
        if question in (REPORT, FIGURES):
            with contextlib.suppress(NoAnswer):
                found["place"] = {"stack": main_stack(dump(rank))}
    except NoAnswer as reason:
        found["silent"] = str(reason)
    found["after"] = _done(record.pid)
    return found


def _process(pid: int) -> dict[str, Any]:
    """What the kernel tells: the letter of the process's state, and whether a debugger holds it."""
    found: dict[str, Any] = {"state": "", "traced": False}
    root = Path(f"/proc/{pid}")
    with contextlib.suppress(OSError, IndexError):
        found["state"] = (root / "stat").read_text().rpartition(")")[2].split()[0]
        found["traced"] = _fields(root / "status").get("TracerPid", "0") != "0"
    return found


def _done(pid: int) -> tuple[float, int]:
    """Seconds of processor time, and bytes read and written, so far."""
    root = Path(f"/proc/{pid}")
    cpu, moved = 0.0, 0
    with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
        words = (root / "stat").read_text().rpartition(")")[2].split()
        cpu = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        io = _fields(root / "io")
        moved = int(io["rchar"]) + int(io["wchar"])
    return cpu, moved


def _memory(pid: int) -> int | None:
    """Bytes of a process that are in memory."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_fields(Path(f"/proc/{pid}/status"))["VmRSS"].split()[0]) << 10
    return None


def _fields(file: Path) -> dict[str, str]:
    pairs = (line.partition(":") for line in file.read_text().splitlines())
    return {name: value.strip() for name, _, value in pairs}
