"""Asks the ranks of a job on this host, many at a time, and inspects their processes from outside.

It cannot change a rank's state, but it can take a rank's trace records away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sirtaki.questions import kernel
from sirtaki.questions.asking import Busy, NoAnswer, ask
from sirtaki.questions.dumped import dump, main_stack
from sirtaki.questions.messages import HostRank, Question, RankAnswer
from sirtaki.rendezvous.host.presence import Presence, own_namespace, present, stat_of
from sirtaki.rendezvous.threads import in_threads

_ASKED_AT_ONCE = 32
_FAR_SECONDS = 3.0
# Trace records are taken from a few ranks at a time, up to a limit of bytes.
_TRACE_SECONDS = 4.0
_TAKEN_AT_ONCE = 4
_MOST_BYTES = 8 << 20
_SPANS, _SPAN_BYTES = ("spans", "waits", "lines"), 80


def collect(
    job: str, question: Question = Question.REPORT, patience: float = 0.4
) -> list[RankAnswer]:
    """Return the answers of a job's ranks on this host, by rank.

    Args:
        job: Its name.
        question: One of `WORK`, or `FIGURES`.
        patience: Seconds for a rank's answer.
    """
    every, ours = _ranks_of(job)
    here = {each.record.rank: each for each in ours or every}
    if not here:
        return []
    ranks = [here[rank] for rank in sorted(here)]
    whole = question in (Question.FAR, Question.RECORDS)
    look = partial(_look, question=Question.REPORT if whole else question, patience=patience)
    found = in_threads(look, ranks, _ASKED_AT_ONCE)
    some = next((number for number, one in enumerate(found) if "work" in one), None)
    if some is None:
        return found
    if question is Question.FAR:
        _ask_more(ranks[some], found[some], question, _FAR_SECONDS)
    elif question is Question.RECORDS:
        _ask_for_records(ranks, found)
    elif question in (Question.POLL, Question.REPORT) and not all("work" in one for one in found):
        # From shared memory the others know what the ranks without an answer are doing.
        for rank, one in zip(ranks, found, strict=True):
            if "work" in one:
                _ask_more(rank, one, Question.HERE, patience)
    return found


def _ranks_of(job: str) -> tuple[list[Presence], list[Presence]]:
    """Return the records of a job's ranks, and those that this container has to ask.

    Containers that share the folder ask only their own ranks: other process ids are invalid here.
    """
    every = [each for each in present() if each.record.job == job]
    own = own_namespace()
    return every, [each for each in every if each.record.namespace == own]


def _ask_more(rank: Presence, answer: RankAnswer, question: Question, patience: float) -> None:
    with contextlib.suppress(NoAnswer):
        answer["work"] = ask(rank, question, patience)


def _ask_for_records(ranks: Sequence[Presence], found: Sequence[RankAnswer]) -> None:
    """Ask one local rank of each world, which knows the records of all local ranks."""
    known: set[str] = set()
    for rank, one in zip(ranks, found, strict=True):
        keys = {world["key"] for world in one.get("work", ())}
        if not keys <= known:
            _ask_more(rank, one, Question.RECORDS, _FAR_SECONDS)
            known |= keys


def _look(rank: Presence, question: Question, patience: float) -> RankAnswer:
    record = rank.record
    # The id of a process in another container is meaningless here.
    pid = record.pid if record.namespace == own_namespace() else 0
    before = kernel.done(pid)
    found: RankAnswer = {
        "rank": record.rank,
        "pid": pid,
        "host": record.hostnames[record.rank],
        "hosts": [] if question is Question.POLL else record.hostnames,
        "memory": kernel.resident(pid) if question is Question.RATES else None,
        "state": stat_of(pid).state,
        "traced": kernel.traced(pid),
        "before": before,
        "after": before,
    }
    figures = question is Question.FIGURES
    if figures:
        found["scheduled"] = kernel.scheduled(pid)
    with_place = figures or question is Question.REPORT
    try:
        found["work"] = ask(rank, Question.RATES if figures else question, patience)
        if with_place:
            found["place"] = ask(rank, Question.PLACE, patience)
    except Busy as reason:
        found["busy"] = str(reason)
        if with_place:
            with contextlib.suppress(NoAnswer):
                found["place"] = {"stack": main_stack(dump(rank))}
    except NoAnswer as reason:
        found["silent"] = str(reason)
    found["after"] = kernel.done(pid)
    return found


def ask_to_trace(
    job: str, question: Question, patience: float = _TRACE_SECONDS, *, anywhere: bool = False
) -> list[dict[str, Any]]:
    """Return the answers of a job's ranks on this host about a trace, by rank.

    Args:
        job: Its name.
        question: One of `TRACES`.
        patience: Seconds for a rank's answer.
        anywhere: If none runs here, ask the ranks of containers that share the folder.

    Returns:
        For each rank a `HostRank` with ``answer``, or with ``failed``, the reason. `TRACE_TAKE`
        returns neither for ranks that have to be asked again.
    """
    every, ours = _ranks_of(job)
    ranks = every if anywhere and not ours else ours
    # A process may be listed twice, once for each world that it has entered.
    processes = {(one.record.namespace, one.record.pid): one for one in reversed(ranks)}
    asked = sorted(processes.values(), key=lambda one: one.record.rank)
    found: list[dict[str, Any]] = []
    at_once = _TAKEN_AT_ONCE if question is Question.TRACE_TAKE else _ASKED_AT_ONCE
    size = 0
    for at in range(0, len(asked), at_once):
        some = asked[at : at + at_once]
        if size >= _MOST_BYTES:
            found += [{**_of(one)} for one in some]
            continue
        answers = in_threads(partial(_ask_one, question=question, patience=patience), some, at_once)
        size += sum(map(_size, answers))
        found += answers
    return found


def _of(rank: Presence) -> HostRank:
    record = rank.record
    hosts = record.hostnames
    return {"rank": record.rank, "pid": record.pid, "host": hosts[record.rank], "hosts": hosts}


def _ask_one(one: Presence, question: Question, patience: float) -> dict[str, Any]:
    try:
        reply = {"answer": ask(one, question, patience)}
    except NoAnswer as error:
        reply = {"failed": str(error)}
    return {**_of(one), **reply}


def _size(told: Mapping[str, Any]) -> int:
    answer = told.get("answer", {})
    spans: list[object] = [each for name in _SPANS for each in answer.get(name, ())]
    records = sum(len(each["records"]) for each in answer.get("operations", ()))
    return records + _SPAN_BYTES * len(spans)
