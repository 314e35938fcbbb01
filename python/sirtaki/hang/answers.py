"""The answers of a job's ranks, combined from all hosts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sirtaki.questions.messages import OpenOperation, RankAnswer, ThreadPlace, WorldWork


class Frame(NamedTuple):
    """A frame of a rank's main thread. own: whether it is the user's own code."""

    file: str
    line: int
    function: str
    text: str
    own: bool

    def __str__(self) -> str:
        shown = f"{self.file}:{self.line} in {self.function}"
        return f"{shown}: {self.text}" if self.text else shown


class AskedOperation(NamedTuple):
    """An operation as all ranks identify it, with its world."""

    world: str
    kind: str
    name: str

    @property
    def patient(self) -> bool:
        """Whether it may wait long for ranks that go on with other operations."""
        return self.kind == "join" or (self.kind, self.name) == ("barrier", "farewell")

    def __str__(self) -> str:
        if self.kind in ("send", "receive"):
            return f"{self.kind} with {self.name}"
        return f"{self.kind} '{self.name}'"


@dataclass(frozen=True)
class Open:
    """An operation that a rank has not completed.

    set: None for a rank on another host of which little is known. seconds: at this stage. peer: the
    rank of the job that it waits for, -1: any. waits: for how long.
    """

    asked: AskedOperation
    set: int | None
    stage: str
    seconds: float
    peer: int | None = None
    waits: float | None = None
    chunk: int | None = None

    @property
    def stuck(self) -> float:
        """For how long it may have been stuck: 0 if data may be moving."""
        if self.stage == "under way":
            return self.waits or 0.0
        return self.seconds


@dataclass
class Rank:
    """A rank of the job, as far as it is known.

    state: the letter of /proc, "" if unreadable. idle: seconds since one of its operations
    completed. ended: names of the latest, oldest first. busy: a thread in C code keeps Python from
    running. silent: why it does not answer. call: see `questions.place`. before, after: seconds of
    processor time and bytes read and written so far, before and after it was asked. share: of a
    core, between two samples; moved: whether it was active between them, None with one sample.
    """

    rank: int
    host: str
    pid: int = 0
    state: str = ""
    before: tuple[float, int] = (0.0, 0)
    after: tuple[float, int] = (0.0, 0)
    traced: bool = False
    busy: bool = False
    silent: str = ""
    gone: bool = False
    known: bool = False
    completed: int = 0
    idle: float = math.inf
    ended: list[str] = field(default_factory=list)
    open: list[Open] = field(default_factory=list)
    stack: list[Frame] = field(default_factory=list)
    handles: str = ""
    debugger: str = ""
    call: str = ""
    share: float | None = None
    moved: bool | None = None

    @property
    def own(self) -> list[Frame]:
        """The innermost frames of the user's own code."""
        return [frame for frame in self.stack if frame.own]

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return self.state in ("T", "t") and not self.traced

    @property
    def waits(self) -> bool:
        """Whether it is in an operation, and waits there for others."""
        return any(one.stage != "under way" or one.waits for one in self.open)


@dataclass
class Job:
    """All ranks by number; the members of each world's process sets, by world and set."""

    ranks: dict[int, Rank] = field(default_factory=dict)
    members: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """A value that changes whenever an operation completes, begins, or moves data."""
        return tuple(
            (rank, one.completed, tuple((o.asked, o.stage, o.peer, o.chunk) for o in one.open))
            for rank, one in sorted(self.ranks.items())
        )

    @property
    def stuck(self) -> float:
        """Seconds without completion or movement while an operation is open; 0: none is open."""
        idle = min((one.idle for one in self.ranks.values()), default=math.inf)
        oldest = max((o.stuck for one in self.ranks.values() for o in one.open), default=0.0)
        return min(idle, oldest)

    @property
    def oldest(self) -> float:
        """Seconds that some rank has waited for others to submit an operation."""
        every = (o for one in self.ranks.values() for o in one.open if o.stage == "submitted")
        return max((o.seconds for o in every if not o.asked.patient), default=0.0)

    def label(self, asked: AskedOperation) -> str:
        """Return an operation's name for people."""
        label = self.labels.get(asked.world, "")
        return f"{asked} of {label}" if label else str(asked)


def job_of(answers: Iterable[RankAnswer]) -> Job:
    """Combine the results of `collect` on each host."""
    found = Job()
    answers = list(answers)
    hosts: list[str] = max((answer["hosts"] for answer in answers), key=len, default=[])
    found.ranks = {rank: Rank(rank, host) for rank, host in enumerate(hosts)}
    for answer in answers:
        found.ranks[answer["rank"]] = _rank_of(answer)
    seen: set[tuple[str, int]] = set()
    for world, of_job in numbered_worlds(answers, len(found.ranks)):
        _add_world(found, world, of_job, seen)
    for answer in answers:
        for key, unfinished in (answer.get("place") or ThreadPlace()).get("device", {}).items():
            one = found.ranks[answer["rank"]]
            given = {each.asked for each in one.open}
            more = [_open_of(key, each, None) for each in unfinished]
            one.open += [each for each in more if each.asked not in given]
    return found


def _rank_of(answer: RankAnswer) -> Rank:
    place = answer.get("place") or ThreadPlace()
    return Rank(
        rank=answer["rank"],
        host=answer["host"],
        pid=answer["pid"],
        state=answer["state"],
        before=(answer["before"][0], answer["before"][1]),
        after=(answer["after"][0], answer["after"][1]),
        traced=answer["traced"],
        busy="busy" in answer,
        silent=answer.get("silent", ""),
        stack=[Frame(*frame) for frame in place.get("stack", ())],
        handles=place.get("handles", ""),
        debugger=place.get("debugger", ""),
        call=place.get("call", ""),
    )


def numbered_worlds(
    answers: Sequence[RankAnswer], ranks: int
) -> Iterator[tuple[WorldWork, Callable[[int], int | None]]]:
    """Give what each answer knows of each world, with its `numbering`. ranks: of the job."""
    numbers: dict[str, dict[int, int]] = {}
    for answer in answers:
        for world in answer.get("work") or ():
            numbers.setdefault(world["key"], {})[world["rank"]] = answer["rank"]
    for answer in answers:
        for world in answer.get("work") or ():
            yield world, numbering(world, ranks, numbers[world["key"]])


def _add_world(
    job: Job,
    world: WorldWork,
    of_job: Callable[[int], int | None],
    seen: set[tuple[str, int]],
) -> None:
    """Add what one rank knows of a world. of_job: its `numbering`."""
    key = world["key"]
    job.labels[key] = world["label"]
    for number, members in world["sets"].items():
        if (key, int(number)) in job.members:
            continue
        named = [rank for member in members if (rank := of_job(member)) is not None]
        job.members[key, int(number)] = named
    for state in world["ranks"]:
        rank = of_job(state["rank"])
        one = None if rank is None else job.ranks.get(rank)
        if one is None or (key, state["rank"]) in seen:
            continue
        seen.add((key, state["rank"]))
        one.known = True
        one.gone |= state["gone"]
        one.completed += state["completed"]
        one.idle = min(one.idle, math.inf if state["idle"] is None else state["idle"])
        one.ended += state["ended"]
        one.open += [_open_of(key, each, of_job) for each in state["open"]]


def numbering(
    world: WorldWork, ranks: int, numbers: Mapping[int, int]
) -> Callable[[int], int | None]:
    """Return a function from a world's rank to its number in the job, None if unknown.

    Args:
        world: The world, as one of its ranks knows it.
        ranks: How many the job has.
        numbers: Of ranks of the world that have answered.
    """
    members = world.get("members") or ()
    if members:
        return lambda number: members[number] if number < len(members) else None
    if world["whole"] or len(world["sets"].get("0", ())) == ranks:
        return lambda number: number
    return numbers.get


def _open_of(key: str, one: OpenOperation, of_job: Any) -> Open:
    peer = one["peer"]
    return Open(
        AskedOperation(key, one["kind"], one["name"]),
        one["set"],
        one["stage"],
        one["seconds"],
        None if peer is None else -1 if peer < 0 else of_job(peer),
        one["waits"],
        one["chunk"],
    )


def compare(earlier: Job, later: Job, seconds: float) -> None:
    """Record in `later` what each rank did between the two samples, `seconds` apart."""
    for number, one in later.ranks.items():
        before = earlier.ranks.get(number)
        if before is None or before.pid != one.pid or not one.state or not before.state:
            continue
        cpu, io = (now - then for now, then in zip(one.before, before.after, strict=True))
        one.share = max(0.0, cpu) / max(seconds, 0.01)
        here = [frame[:3] for frame in one.stack]
        there = [frame[:3] for frame in before.stack]
        # On a busy machine a runnable process may get no core.
        runs = "R" in (before.state, one.state)
        one.moved = runs or one.share > _BUSY_SHARE or io > _BUSY_BYTES or here != there


# Share of a core: a thread that only polls uses less.
_BUSY_SHARE = 0.2
_BUSY_BYTES = 1 << 16


def exposed_share(before: Mapping[str, Any], now: Mapping[str, Any]) -> float | None:
    """Return the share of the time between two samples in which threads were blocked in our calls.

    Args:
        before: ``at``, ``exposed``, ``calls``, and ``completed`` of the rank, in the first sample.
        now: The same in the second one.

    Returns:
        None if most operations completed without a call that waited: then the framework waits in
        its own code, as compiled functions of TensorFlow and JAX do, and DDP. None also for another
        process.
    """
    if "calls" not in before or "calls" not in now:
        return None  # the question did not ask for them
    calls, ended = now["calls"] - before["calls"], now["completed"] - before["completed"]
    seconds = now["at"] - before["at"]
    if calls < 0 or seconds <= 0 or 2 * calls < ended:
        return None
    return float(min(1.0, max(0.0, (now["exposed"] - before["exposed"]) / seconds)))
