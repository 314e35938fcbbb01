"""The state of all ranks, even of ranks that are stuck, stopped or dead."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sirtaki import _core
from sirtaki.questions.messages import OpenOperation, Question, RankWork, Rates
from sirtaki.rendezvous.words import write_numbers


class Waiting(NamedTuple):
    """The event that an operation under way waits for.

    phase: the peer's missing action: ``write`` or ``read`` (finish with) a chunk in shared memory,
    ``leave`` an earlier operation, ``send`` or ``take`` a message, or send bytes between hosts.
    peer: its rank, -1 for any. chunk: its number in the operation, None without one. seconds: the
    time waited so far.
    """

    phase: str
    peer: int
    chunk: int | None
    seconds: float


class Operation(NamedTuple):
    """An operation of a rank, or a message. Times are in seconds ago, None for stages not reached.

    number: counted from 1 on its rank; 0 for the message on which the rank sleeps. kind, name: as
    in messages, the name cut to 40 bytes. stage: ``submitted``, ``agreed`` by all, ``under way``,
    ``handed over`` to its accelerator, ``done`` or ``failed``. waits: None if it does not wait, or
    no longer than a rank polls; of operations that run as one batch, only the first reports it.
    """

    number: int
    kind: str
    name: str
    process_set: int
    bytes: int
    dtype: str
    stage: str
    submitted: float | None
    agreed: float | None
    begun: float | None
    ended: float | None
    waits: Waiting | None

    def __str__(self) -> str:
        ages = (
            ("submitted", self.submitted),
            ("agreed", self.agreed),
            ("begun", self.begun),
            ("ended", self.ended),
        )
        times = [f"{what} {age:.1f} s ago" for what, age in ages if age is not None]
        text = f"{self.number} {self.kind} {self.name!r} ({self.bytes} bytes): {self.stage}"
        text = ", ".join([text, *times])
        if self.waits is None:
            return text
        waits = self.waits
        chunk = "" if waits.chunk is None else f" chunk {waits.chunk}"
        return f"{text}; waits {waits.seconds:.1f} s for rank {waits.peer} to {waits.phase}{chunk}"


@dataclass(frozen=True)
class Doing:
    """A rank's activity: the most informative open operation, or else the last one that ended.

    operation, tensor: as in messages; for a message ``send`` or ``receive`` and its tag; empty
    before the first operation. stage: as in `Operation`, or ``gone`` from the world. waits: None if
    it waits for no particular rank. seconds: the time in that stage, or since its end. open,
    completed: the numbers of operations. blocked: the seconds for which a thread of its process has
    been blocked in it without progress; 0 for none or under a second. exposed: the seconds since
    ``init()`` that threads were blocked in calls that wait. calls: the number of requests for a
    result, blocked or not.
    """

    stage: str
    operation: str
    tensor: str
    waits: Waiting | None
    seconds: float
    open: int
    completed: int
    blocked: float
    exposed: float
    calls: int
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class RankState:
    """A rank's activity and, for ranks of this host, its operations, oldest first.

    doing: None if its host has not answered. operations: all that are open, and the latest others;
    empty for ranks on other hosts.
    """

    rank: int
    doing: Doing | None = None
    operations: list[Operation] = field(default_factory=list)

    @property
    def open(self) -> list[Operation]:
        """Return the operations that have not ended."""
        return [one for one in self.operations if one.stage not in ("done", "failed")]

    def __str__(self) -> str:
        doing = "its host does not answer" if self.doing is None else self.doing
        return "\n  ".join([f"rank {self.rank}: {doing}", *map(str, self.operations)])


def states(engine: _core.Engine, last: int, patience: float) -> list[RankState]:
    """Return the activity of every rank in an engine's world; arguments as ``sirtaki.snapshot``."""
    now = time.monotonic_ns()
    return [
        RankState(rank, _doing(state), [_operation(one, now) for one in found])
        for rank, state, found in engine.snapshot(last, patience)
    ]


def shown(
    worlds: Sequence[tuple[str, Sequence[int], _core.Engine]], last: int, patience: float
) -> list[str]:
    """Return the activity of every rank in words, below the name of its world if there are several.

    Args:
        worlds: The label of each, the numbers of its ranks in the job, and its engine.
        last: As for `states`.
        patience: Seconds for all of them.
    """
    found = []
    until = time.monotonic() + patience
    for label, members, engine in worlds:
        if len(worlds) > 1:
            differ = list(members) != list(range(len(members)))
            which = f", whose ranks are {write_numbers(members)} of the job" if differ else ""
            found.append(f"{label or 'a world'}{which}:")
        for state in states(engine, last, max(0.0, until - time.monotonic())):
            doing = state.doing
            # A rank that is blocked in one world reports that in all of its worlds.
            elsewhere = doing is not None and not doing.open and doing.stage in _OPEN_STAGES
            found.append(f"rank {state.rank}: in no operation" if elsewhere else str(state))
    return found


def _doing(state: _core.RankState) -> Doing | None:
    if not state.known:
        return None
    return Doing(
        stage="gone" if state.gone else state.stage,
        operation=state.operation,
        tensor=state.tensor,
        waits=_waiting(state.phase, state.peer, state.chunk, state.seconds),
        seconds=state.seconds,
        open=state.open,
        completed=state.completed,
        blocked=state.blocked_seconds,
        exposed=state.exposed_seconds,
        calls=state.calls,
        text=str(state),
    )


def _waiting(phase: str, peer: int, chunk: int, seconds: float) -> Waiting | None:
    if not phase:
        return None
    return Waiting(phase, peer, None if chunk < 0 else chunk, seconds)


def _operation(one: _core.Recorded, now: int) -> Operation:
    return Operation(
        number=one.number,
        kind=one.operation,
        name=one.tensor,
        process_set=one.set,
        bytes=one.bytes,
        dtype=one.dtype,
        stage=one.stage,
        submitted=_age(one.submitted_ns, now),
        agreed=_age(one.agreed_ns, now),
        begun=_age(one.begun_ns, now),
        ended=_age(one.ended_ns, now),
        waits=_waiting(one.phase, one.peer, one.chunk, (now - one.waits_since_ns) * 1e-9),
    )


def _age(then: int, now: int) -> float | None:
    return (now - then) * 1e-9 if then else None


# Most open operations of a rank in the report of a hang.
_MOST_OPEN = 32
_MOST_ENDED = 64
_MOST_TIMED = 128
_FAR_SECONDS = 1.0


def work(engine: _core.Engine, own: int, question: Question, leads: bool) -> list[RankWork]:
    """Return the activity of ranks in a world.

    Args:
        engine: The world's engine.
        own: This rank's number there.
        question: One of `WORK`.
        leads: Whether this is the lowest rank of its host.
    """
    alone = question is Question.REPORT and not leads
    patience = _FAR_SECONDS if question is Question.FAR else 0.0
    rates = question is Question.RATES
    found: list[RankWork] = []
    for one in states(engine, _MOST_TIMED if rates else _MOST_ENDED, patience):
        if one.doing is None or (alone and one.rank != own):
            continue
        more: Rates = {}
        if rates:
            more = {**rates_of(one.operations), **exposed_of(one.doing)}
            more["totals"] = engine.totals(one.rank)
        elif question is Question.RECORDS:
            more = _records(one)
        found.append({**_work_of(one, one.doing), **more})
    return found


def _work_of(state: RankState, doing: Doing) -> RankWork:
    ended = [one for one in state.operations if one.ended is not None and one.number]
    names = [f"{one.kind} '{one.name}'" for one in ended]
    idle = min((one.ended for one in ended if one.ended is not None), default=None)
    far: list[OpenOperation] = []
    if not state.operations and doing.open:  # without any, it may be blocked in another world
        far = [_told(doing)] if doing.stage in _OPEN_STAGES else []
    elif not state.operations and doing.stage in ("done", "failed"):
        names, idle = [f"{doing.operation} '{doing.tensor}'"], doing.seconds
    return {
        "rank": state.rank,
        "gone": doing.stage == "gone",
        "completed": doing.completed,
        "idle": idle,
        "ended": list(dict.fromkeys(reversed(names)))[::-1],
        "open": [_open_of(one) for one in state.open[:_MOST_OPEN]] + far,
    }


def exposed_of(doing: Doing) -> Rates:
    """Return the values that `exposed_share` compares between two samples, with the local time."""
    return {"at": time.monotonic(), "exposed": doing.exposed, "calls": doing.calls}


def _records(state: RankState) -> Rates:
    """Return the operations of a rank in words, and as fields for other programs."""
    return {
        "records": [str(each) for each in state.operations],
        "recorded": [
            {
                "number": each.number,
                "kind": each.kind,
                "name": each.name,
                "bytes": each.bytes,
                "dtype": each.dtype,
                "stage": each.stage,
                "submitted": each.submitted,
                "begun": each.begun,
                "ended": each.ended,
            }
            for each in state.operations
        ],
    }


_OPEN_STAGES = ("submitted", "agreed", "under way", "handed over")


def _open_of(one: Operation) -> OpenOperation:
    age = {"agreed": one.agreed, "under way": one.begun, "handed over": one.begun}
    waits = one.waits
    return {
        "kind": one.kind,
        "name": one.name,
        "set": one.process_set,
        "stage": one.stage,
        "seconds": age.get(one.stage) or one.submitted or 0.0,
        "peer": None if waits is None else waits.peer,
        "waits": None if waits is None else waits.seconds,
        "chunk": None if waits is None else waits.chunk,
    }


def _told(doing: Doing) -> OpenOperation:
    """For a rank on another host, only the most informative operation is known."""
    waits = doing.waits
    return {
        "kind": doing.operation,
        "name": doing.tensor,
        "set": None,
        "stage": doing.stage,
        "seconds": doing.seconds,
        "peer": None if waits is None else waits.peer,
        "waits": None if waits is None else waits.seconds,
        "chunk": None if waits is None else waits.chunk,
    }


def rates_of(operations: list[Operation]) -> Rates:
    """Return the speed of a rank, from its latest operations until now.

    Args:
        operations: The operations of one rank, oldest first; messages are ignored.

    Returns:
        ``step``: seconds from one operation of a name to the next of that name, the name being the
        most frequent; ``operations``, ``bytes``: a second, of those that have ended;
        ``communicating``: the share of the time with an operation open; ``waiting``: with one that
        other ranks have not submitted. None where there are too few operations to tell.
    """
    timed = [one for one in operations if one.number and one.submitted is not None]
    ended = [one for one in timed if one.ended is not None]
    if len(ended) < 2:
        return {
            "step": None,
            "operations": None,
            "bytes": None,
            "communicating": None,
            "waiting": None,
        }
    times: dict[tuple[str, str], list[float]] = {}
    for one in ended:
        times.setdefault((one.kind, one.name), []).append(one.ended or 0.0)
    same = max(times.values(), key=len)
    span = max(timed[0].submitted or 0.0, 1e-6)
    opened = [(one.submitted or 0.0, one.ended or 0.0) for one in timed]
    waited = [(one.submitted or 0.0, one.agreed or one.ended or 0.0) for one in timed]
    return {
        "step": (same[0] - same[-1]) / (len(same) - 1) if len(same) > 1 else None,
        "operations": len(ended) / span,
        "bytes": sum(one.bytes for one in ended) / span,
        "communicating": covered(opened) / span,
        "waiting": covered(waited) / span,
    }


def covered(ages: list[tuple[float, float]]) -> float:
    """Return the seconds covered by these intervals, each from an older to a younger age."""
    total, at = 0.0, float("inf")
    for begun, ended in sorted(ages, reverse=True):
        total += max(0.0, min(begun, at) - ended)
        at = min(at, ended)
    return total
