"""Asks the ranks of a job to record, and takes what they have recorded.

Those of all hosts by way of the launcher, where that is on this host; else those that are here.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sirtaki import _core
from sirtaki.hang.traces import START, STOP, TAKE, ask_to_trace
from sirtaki.launch.questions.asked import ask_launcher
from sirtaki.observe.trace.model import Message, Operation, Rank, Span
from sirtaki.rendezvous.host.presence import job_name

_Answers = list[dict[str, Any]]
# Asks all ranks, or those of the host with a number: None where there are not so many hosts.
_Ask = Callable[[str, int | None], _Answers | None]


class Refused(Exception):
    """A rank does not do what it is asked to; the message says why."""


class Recorder:
    """Has the ranks of a job record.

    failures: why ranks have not done what they were asked to at last. hosts: of all ranks of the
    job. everywhere: whether the ranks of all hosts are asked.

    Args:
        job: Its name.
        patience: How many seconds a rank here has to answer.
    """

    def __init__(self, job: str, patience: float) -> None:
        self.failures: dict[int, str] = {}
        self.hosts: list[str] = []
        self.everywhere = False
        self._job = job
        self._patience = patience
        self._gathered: dict[int, Rank] = {}
        self._heard: set[int] = set()

    def start(self) -> None:
        """Have them record from now on.

        Raises:
            Refused: A trace of the job runs already, or no rank records.
        """
        answers = self._order(START)
        if answers and not any("answer" in one for one in answers):
            raise Refused("no rank records")

    def poll(self) -> bool:
        """Take what they have recorded by now, in case that they end; False: none is left."""
        return self._take(False)

    def take(self) -> list[Rank]:
        """End the recording, and return what each rank has recorded, also of those that have ended.

        Raises:
            Refused: No trace of the job runs.
        """
        known = set(self._gathered)
        try:
            known -= {one["rank"] for one in self._order(STOP)}
        except Refused:
            if not self._gathered:
                raise
            known = set()
        failures = self.failures
        for rank in known:
            pid = self._gathered[rank].pid
            failures[rank] = f"process {pid} has ended; what it had told is kept"
        self._take(True)
        self.failures = {**self.failures, **failures}
        return [self._gathered[rank] for rank in sorted(self._gathered)]

    @property
    def missing(self) -> list[int]:
        """The ranks of the job that nothing was heard of."""
        return [rank for rank in range(len(self.hosts)) if rank not in self._heard]

    def _order(self, question: str) -> _Answers:
        """Ask all ranks; a refusal of one counts when no other has obeyed."""
        answers = ask_launcher(self._job, question)
        self.everywhere = bool(answers)
        answers = answers or self._of_this(question)
        refused = [one for one in answers if "refused" in one.get("answer", ())]
        self._note(answers)
        if refused and len(refused) + sum("failed" in one for one in answers) == len(answers):
            raise Refused(refused[0]["answer"]["refused"])
        self.failures |= {one["rank"]: one["answer"]["refused"] for one in refused}
        return answers

    def _note(self, answers: _Answers) -> None:
        self.failures = {one["rank"]: one["failed"] for one in answers if "failed" in one}
        self._heard |= {one["rank"] for one in answers}
        self.hosts = max([self.hosts, *(one["hosts"] for one in answers)], key=len)

    def _take(self, whole: bool) -> bool:
        """Take from one host after the other; `whole`: until it has no more."""
        every: _Answers = []
        number = 0
        while (answers := self._of_host(number)) is not None:
            every += [{**one, "answer": None} for one in answers]
            more = [self._add(one) for one in answers]
            if not (whole and any(more)):
                number += 1
        self._note(every)
        return any("failed" not in one for one in every)

    def _of_this(self, question: str) -> _Answers:
        return ask_to_trace(self._job, question, self._patience, anywhere=True)

    def _of_host(self, number: int) -> _Answers | None:
        if not self.everywhere:
            return self._of_this(TAKE) if number == 0 else None
        answers = ask_launcher(self._job, f"{TAKE} {number}")
        if not answers or answers[0].get("over"):
            return None  # where it is nothing at all, the launcher has gone
        return [one for one in answers if "rank" in one]

    def _add(self, told: Mapping[str, Any]) -> bool:
        """Add what a rank has told; return whether there is more."""
        piece = told.get("answer")
        if piece is None or "refused" in piece:
            return piece is None and "failed" not in told
        number = told["rank"]
        if number not in self._gathered:
            self._gathered[number] = Rank(number, told["host"], told["pid"], 0, 0)
        add(self._gathered[number], piece)
        return bool(piece["more"])


def add(rank: Rank, piece: Mapping[str, Any]) -> None:
    """Add a piece of what a rank has recorded; see `Recording.take`."""
    now, since_1970 = piece["ended"]
    later = Rank(rank.rank, rank.host, rank.pid, piece["begun"][0], now)
    _fill(later, piece)
    later.shift(since_1970 - now)  # of one host's ranks the same to a few microseconds
    rank.begun = rank.begun or later.begun
    rank.ended, rank.main, rank.lost = later.ended, later.main, later.lost
    rank.operations += later.operations
    rank.spans += later.spans
    rank.waits += later.waits
    rank.messages += later.messages
    rank.calls = max(rank.calls, later.calls)


def _fill(rank: Rank, piece: Mapping[str, Any]) -> None:
    threads = {int(number): name for number, name in piece["threads"].items()}

    def name_of(thread: int) -> str:
        return threads.get(thread) or f"thread {thread}"

    rank.main = name_of(piece["main"]) if piece["main"] in threads else rank.main
    rank.lost, rank.calls = piece["dropped"], piece["calls"]
    for each in piece["operations"]:
        drained = base64.b64decode(each["records"])
        # Their key has the address where its ranks have met, which is nobody else's business.
        world = f"{each['label']} {job_name(each['world'])}" if each["label"] else "job"
        recorded = _core.decode_records(drained, each["size"])
        rank.operations += _operations(recorded, world)
        rank.messages += _messages(recorded, world, each["rank"])
    for spans, found in ((rank.spans, piece["spans"]), (rank.waits, piece["waits"])):
        spans += [Span(name, name_of(thread), begun, end) for name, thread, begun, end in found]


def _messages(recorded: Iterable[_core.Recorded], world: str, own: int) -> Iterable[Message]:
    for one in recorded:
        if one.number:
            continue
        yield Message(
            world=world,
            set=one.set,
            sequence=one.sequence,
            sends=one.operation == "send",
            own=own,
            peer=one.peer,
            tag=int(one.tensor.removeprefix("tag ")),
            bytes=one.bytes,
            failed=one.stage == "failed",
            begun=one.submitted_ns,
            ended=max(one.ended_ns, one.submitted_ns),
        )


def _operations(recorded: Iterable[_core.Recorded], world: str) -> Iterable[Operation]:
    for one in recorded:
        if not one.number:
            continue
        # What failed or was alone may not have come to all stages.
        begun = one.begun_ns or one.ended_ns
        agreed = min(one.agreed_ns or begun, begun)
        yield Operation(
            number=one.number,
            world=world,
            set=one.set,
            kind=one.operation,
            name=one.tensor,
            dtype=one.dtype,
            bytes=one.bytes,
            failed=one.stage == "failed",
            submitted=min(one.submitted_ns, agreed),
            agreed=agreed,
            begun=begun,
            ended=max(one.ended_ns, begun),
        )
