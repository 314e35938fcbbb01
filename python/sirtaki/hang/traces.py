"""Asks the ranks of a job on this host to record a trace, and for what they have recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from sirtaki.hang.asking import NoAnswer, ask
from sirtaki.rendezvous.host.presence import Presence, own_namespace, present

START = "trace start"
STOP = "trace stop"
TAKE = "trace take"
PATIENCE_SECONDS = 4.0
_ASKED_AT_ONCE = 32
# What ranks have recorded is taken from a few at a time, until there is so much of it.
_TAKEN_AT_ONCE = 4
_MOST_BYTES = 8 << 20
_SPAN_BYTES = 80


def ask_to_trace(
    job: str, question: str, patience: float = PATIENCE_SECONDS, *, anywhere: bool = False
) -> list[dict[str, Any]]:
    """Return what the ranks of a job on this host answer, as JSON has it, by rank.

    Args:
        job: Its name.
        question: `START`, `STOP` or `TAKE`.
        patience: How many seconds a rank has to answer.
        anywhere: Where none runs here, those of containers that share the folder.

    Returns:
        Of each ``rank``, ``host``, ``pid``, ``hosts`` (of all ranks), and either ``answer`` or
        ``failed``, which says why not. `TAKE` has neither of those that are to be asked again.
    """
    every = [one for one in present() if one.record.job == job]
    ranks = [one for one in every if one.record.namespace == own_namespace()]
    ranks = every if anywhere and not ranks else ranks
    # A process may be there twice, once for each world that it has entered.
    processes = {(one.record.namespace, one.record.pid): one for one in reversed(ranks)}
    asked = sorted(processes.values(), key=lambda one: one.record.rank)
    found: list[dict[str, Any]] = []
    at_once = _TAKEN_AT_ONCE if question == TAKE else _ASKED_AT_ONCE
    size = 0
    with ThreadPoolExecutor(at_once) as pool:
        for at in range(0, len(asked), at_once):
            some = asked[at : at + at_once]
            if size >= _MOST_BYTES:
                found += [_of(one) for one in some]
                continue
            answers = list(pool.map(partial(_ask, question=question, patience=patience), some))
            size += sum(map(_size, answers))
            found += answers
    return found


def _of(one: Presence) -> dict[str, Any]:
    record = one.record
    host = record.hostnames[record.rank]
    return {"rank": record.rank, "host": host, "pid": record.pid, "hosts": record.hostnames}


def _ask(one: Presence, question: str, patience: float) -> dict[str, Any]:
    try:
        return {**_of(one), "answer": ask(one, question, patience)}
    except NoAnswer as error:
        return {**_of(one), "failed": str(error)}


def _size(told: Mapping[str, Any]) -> int:
    answer = told.get("answer", {})
    spans: Sequence[object] = (*answer.get("spans", ()), *answer.get("waits", ()))
    records = sum(len(each["records"]) for each in answer.get("operations", ()))
    return records + _SPAN_BYTES * len(spans)
