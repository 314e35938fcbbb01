"""The questions to ranks and the launcher of a running job, and their answers.

A question and its answer are one JSON object each, over one connection of a Unix socket.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, NamedTuple, TypedDict

from sirtaki.rendezvous.words import parse_json

QUESTION_BYTES = 128


class Question(Enum):
    """A question to a rank; the later ones go to all ranks of a host, or of the job."""

    STATE = "state"  # what all ranks are doing, in words
    STACKS = "stacks"
    VERSIONS = "versions"
    MEMORY = "memory"
    PLACE = "place"  # where the main thread is
    HERE = "here"  # what all ranks of its host are doing
    # For worlds in which it is the host's lowest rank: what all ranks of the host are doing.
    POLL = "poll"
    REPORT = "report"  # the same, and for other worlds what it is doing itself
    FAR = "far"  # what the ranks of all hosts are doing, as far as its engine knows
    RATES = "rates"  # as POLL, and how fast the ranks are
    FIGURES = "figures"  # as RATES, with places and kernel data; for hosts only
    RECORDS = "records"  # as HERE, and the latest operations
    TRACE_START = "trace start"
    TRACE_STOP = "trace stop"
    TRACE_TAKE = "trace take"


# The questions answered with a list of `WorldWork`.
WORK = (
    Question.HERE,
    Question.POLL,
    Question.REPORT,
    Question.FAR,
    Question.RATES,
    Question.RECORDS,
)
TRACES = (Question.TRACE_START, Question.TRACE_STOP, Question.TRACE_TAKE)


class Asked(NamedTuple):
    """A question as sent. host: if given, the launcher asks only its ranks."""

    question: Question
    host: int | None = None

    def write(self) -> bytes:
        """Encode it."""
        return json.dumps({"question": self.question.value, "host": self.host}).encode()


def read_question(data: bytes) -> Asked:
    """Decode a question.

    Raises:
        ValueError: This version does not know it.
    """
    fields = parse_json(data)
    name, host = map(fields.get, Asked._fields) if isinstance(fields, dict) else (None, None)
    is_known = name in [each.value for each in Question]
    if not is_known or not (host is None or (type(host) is int and host >= 0)):
        text = data.decode(errors="replace")
        raise ValueError(f"unknown question {text}: another version of sirtaki?")
    return Asked(Question(name), host)


class Refusal(Exception):
    """The answer to a question is an error."""


def write_answer(answer: bytes) -> bytes:
    """Encode an answer. answer: as JSON."""
    return b'{"answer": ' + answer + b"}"


def write_refusal(why: str) -> bytes:
    """Encode an error in place of an answer."""
    return json.dumps({"error": why}).encode()


def read_answer(data: bytes) -> Any:
    """Decode an answer.

    Raises:
        Refusal: It is an error; the message explains why.
        ValueError: These bytes are not an answer.
    """
    reply = parse_json(data)
    if not isinstance(reply, dict) or not reply.keys() & {"error", "answer"}:
        raise Refusal("its answer cannot be read: another version of sirtaki?")
    if "error" in reply:
        raise Refusal(str(reply["error"]))
    return reply["answer"]


class OpenOperation(TypedDict):
    """An operation that a rank has not completed; see `hang.answers.Open`."""

    kind: str
    name: str
    set: int | None
    stage: str
    seconds: float
    peer: int | None
    waits: float | None
    chunk: int | None


class Totals(TypedDict):
    """What a rank has counted in a world.

    began: when its engine began, on the rank's clock. operations, bytes, errors: of the operations
    that it has called, by kind. seconds: ``waiting`` for ranks that had not called an operation,
    ``steps``, the sum of their times, and ``exposed`` in calls that wait, unless the framework
    waits in its own code. steps: how many took so long, by the upper bound in seconds.
    """

    began: int
    operations: dict[str, int]
    bytes: dict[str, int]
    errors: dict[str, int]
    seconds: dict[str, float]
    steps: dict[str, int]


class Rates(TypedDict, total=False):
    """The fields that RATES and RECORDS add.

    at, exposed, calls: as `exposed_share` compares them. step, operations, bytes, communicating,
    waiting: see `snapshot.rates_of`. totals: None for ranks on other hosts. records, recorded:
    operations in words, and as fields.
    """

    at: float
    exposed: float
    calls: int
    step: float | None
    operations: float | None
    bytes: float | None
    communicating: float | None
    waiting: float | None
    totals: Totals | None
    records: list[str]
    recorded: list[dict[str, Any]]


class RankWork(Rates):
    """What a rank is doing in a world.

    idle: seconds since an operation completed. ended: the names of the latest.
    """

    rank: int
    gone: bool
    completed: int
    idle: float | None
    ended: list[str]
    open: list[OpenOperation]


class EndedWorld(TypedDict):
    """What a process had counted in an earlier world, by its key and rank there."""

    key: str
    rank: int
    totals: Totals


class WorldWork(TypedDict):
    """What ranks of a world are doing, as known by the one with the number `rank` there.

    label, key: its name for people and for programs. members: numbers of its ranks in the job, if
    they differ. whole: whether it contains all ranks. sets: members of each process set. ended: the
    latest earlier worlds of this process; RATES asks for them. parts: how many parts of a
    step each of its ranks computes, if they share out parts.
    """

    label: str
    key: str
    members: list[int]
    whole: bool
    rank: int
    sets: dict[str, list[int]]
    ranks: list[RankWork]
    ended: list[EndedWorld]
    parts: list[int] | None


class ThreadPlace(TypedDict, total=False):
    """Where a main thread is; see `questions.place.place`.

    device: by the key of each world, operations in which the rank's accelerator waits for others.
    """

    stack: list[list[Any]]
    handles: str
    debugger: str
    call: str
    device: dict[str, list[OpenOperation]]


class HostRank(TypedDict):
    """A rank of the asked host. hosts: of all ranks of the job."""

    rank: int
    pid: int
    host: str
    hosts: list[str]


class Told(TypedDict, total=False):
    """A rank's own answer; see `collect`. busy, silent: why it has none."""

    work: list[WorldWork]
    place: ThreadPlace
    scheduled: dict[str, Any]
    busy: str
    silent: str


class RankAnswer(HostRank, Told):
    """A rank's own answer, and the kernel's data about its process.

    state: its letter in /proc, "" if unreadable. traced: whether a debugger holds it. before,
    after: seconds of processor time and bytes read and written, before and after it was asked.
    memory: bytes, None if that was not asked.
    """

    state: str
    traced: bool
    before: tuple[float, int]
    after: tuple[float, int]
    memory: int | None
