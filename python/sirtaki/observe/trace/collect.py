"""Has the ranks of a job record a trace, and collects their records.

A launcher on this host passes requests to the ranks of all hosts; else only local ranks are asked.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from sirtaki import _core
from sirtaki.observe.trace.model import LINES, Message, Operation, Rank, Span
from sirtaki.questions.asking import ask_launcher
from sirtaki.questions.collect import ask_to_trace
from sirtaki.questions.messages import Question
from sirtaki.rendezvous.host.presence import job_name

_Answers = list[dict[str, Any]]


class Refused(Exception):
    """A rank refuses a request; the message explains why."""


class Recorder:
    """Records a trace of a job's ranks.

    failures: why ranks failed the last request. hosts: of all ranks of the job. everywhere: whether
    the ranks of all hosts are asked.

    Args:
        job: Its name.
        patience: Seconds for a local rank's answer.
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
        """Start the recording.

        Raises:
            Refused: A trace of the job runs already, or no rank records.
        """
        answers = self._order(Question.TRACE_START)
        if answers and not any("answer" in one for one in answers):
            raise Refused("no rank records")

    def poll(self) -> bool:
        """Collect the records so far, in case ranks end; False if no rank is left."""
        return self._take(False)

    def take(self) -> list[Rank]:
        """End the recording; return the records of each rank, including ended ones.

        Raises:
            Refused: No trace of the job runs.
        """
        known = set(self._gathered)
        try:
            known -= {one["rank"] for one in self._order(Question.TRACE_STOP)}
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
        """The ranks of the job without any answer."""
        return [rank for rank in range(len(self.hosts)) if rank not in self._heard]

    def _order(self, question: Question) -> _Answers:
        """Ask all ranks; a refusal counts only if no rank has obeyed."""
        of_all = ask_launcher(self._job, question)
        self.everywhere = bool(of_all)
        answers = of_all or self._of_this(question)
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
        """Collect from one host after another; `whole`: until it has no more records."""
        every: _Answers = []
        number = 0
        while (answers := self._of_host(number)) is not None:
            every += [{**one, "answer": None} for one in answers]
            more = [self._add(one) for one in answers]
            if not (whole and any(more)):
                number += 1
        self._note(every)
        return any("failed" not in one for one in every)

    def _of_this(self, question: Question) -> _Answers:
        return ask_to_trace(self._job, question, self._patience, anywhere=True)

    def _of_host(self, number: int) -> _Answers | None:
        if not self.everywhere:
            return self._of_this(Question.TRACE_TAKE) if number == 0 else None
        # None also if the launcher is gone.
        return ask_launcher(self._job, Question.TRACE_TAKE, number)

    def _add(self, told: Mapping[str, Any]) -> bool:
        """Add a rank's answer; return whether it has more records."""
        piece = told.get("answer")
        if piece is None or "refused" in piece:
            return piece is None and "failed" not in told
        number = told["rank"]
        if number not in self._gathered:
            self._gathered[number] = Rank(number, told["host"], told["pid"], 0, 0)
        add(self._gathered[number], piece)
        return bool(piece["more"])


def add(rank: Rank, piece: Mapping[str, Any]) -> None:
    """Add a piece of a rank's records; see `Recording.take`."""
    now, since_1970 = piece["ended"]
    later = Rank(rank.rank, rank.host, rank.pid, piece["begun"][0], now)
    _fill(later, piece)
    later.shift(since_1970 - now)  # equal for ranks of one host to a few microseconds
    rank.begun = rank.begun or later.begun
    rank.ended, rank.main, rank.lost = later.ended, later.main, later.lost
    rank.operations += later.operations
    rank.spans += later.spans
    rank.waits += later.waits
    rank.lines += later.lines
    rank.messages += later.messages
    rank.calls = max(rank.calls, later.calls)
    rank.cpu, rank.cores = later.cpu, later.cores


def _fill(rank: Rank, piece: Mapping[str, Any]) -> None:
    threads = {int(number): name for number, name in piece["threads"].items()}

    def name_of(thread: int) -> str:
        return threads.get(thread) or f"thread {thread}"

    rank.main = name_of(piece["main"]) if piece["main"] in threads else rank.main
    rank.lost, rank.calls = piece["dropped"], piece["calls"]
    rank.cpu, rank.cores = piece["cpu"], piece["cores"]
    for each in piece["operations"]:
        drained = base64.b64decode(each["records"])
        # The world's key contains the private address of its store.
        world = f"{each['label']} {job_name(each['world'])}" if each["label"] else "job"
        recorded = _core.decode_records(drained, each["size"])
        rank.operations += _operations(recorded, world)
        rank.messages += _messages(recorded, world, each["rank"])
    rank.lines += [Span(line, LINES, at, at) for line, at in piece.get("lines", ())]
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
        # An operation that failed, or of one rank, may not have reached all stages.
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
