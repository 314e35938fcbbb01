"""The data of a trace. Times are nanoseconds since 1970, by the clock of the first host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

# The name, instead of a thread's, for lines of code in which the main thread was seen.
LINES = "lines of code"


class Operation(NamedTuple):
    """A completed operation of one rank.

    number: among those that this rank has submitted. world: the name of its world, the same on all
    ranks. set: the process set's number. agreed: when this rank learned that all have submitted it;
    begun: when its data began to move.
    """

    number: int
    world: str
    set: int
    kind: str
    name: str
    dtype: str
    bytes: int
    failed: bool
    submitted: int
    agreed: int
    begun: int
    ended: int

    @property
    def key(self) -> tuple[str, int, str, str]:
        """A key that is equal for the same operation on all ranks, and in each step."""
        return self.world, self.set, self.kind, self.name

    @property
    def title(self) -> str:
        """The text for people."""
        return f"{self.kind} {self.name}"


class Message(NamedTuple):
    """A message that one rank has sent or received.

    world: as in an operation; own, peer: the numbers in it of this rank and of the other one.
    sequence: among all messages in this direction; 0: to the rank itself, or nothing has arrived.
    """

    world: str
    set: int
    sequence: int
    sends: bool
    own: int
    peer: int
    tag: int
    bytes: int
    failed: bool
    begun: int
    ended: int

    @property
    def key(self) -> tuple[str, int, int, int]:
        """A key that is equal at both ends of a message: source, destination and number."""
        source, dest = (self.own, self.peer) if self.sends else (self.peer, self.own)
        return self.world, source, dest, self.sequence

    @property
    def title(self) -> str:
        """The text for people."""
        return f"{'send to' if self.sends else 'receive from'} {self.peer}, tag {self.tag}"


class Span(NamedTuple):
    """A named span of time of a thread."""

    name: str
    thread: str
    begun: int
    ended: int


@dataclass
class Rank:
    """The records of one rank.

    begun, ended: of the recording. waits: when its threads waited for operations; calls: how often
    they asked for a result, waiting or not. lines: the times at which its main thread was seen in
    a line of the user's code. main: the name of its main thread. lost: how many records it dropped.
    cpu: seconds of processor time meanwhile. cores: that it may use.
    """

    rank: int
    host: str
    pid: int
    begun: int
    ended: int
    main: str = "MainThread"
    operations: list[Operation] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    waits: list[Span] = field(default_factory=list)
    lost: int = 0
    messages: list[Message] = field(default_factory=list)
    calls: int = 0
    lines: list[Span] = field(default_factory=list)
    cpu: float = 0.0
    cores: int = 0

    def shift(self, nanoseconds: int) -> None:
        """Shift all its times."""
        self.begun += nanoseconds
        self.ended += nanoseconds
        self.operations = [
            one._replace(
                submitted=one.submitted + nanoseconds,
                agreed=one.agreed + nanoseconds,
                begun=one.begun + nanoseconds,
                ended=one.ended + nanoseconds,
            )
            for one in self.operations
        ]
        self.spans, self.waits = _moved(self.spans, nanoseconds), _moved(self.waits, nanoseconds)
        self.messages = _moved(self.messages, nanoseconds)
        self.lines = _moved(self.lines, nanoseconds)


_Timed = TypeVar("_Timed", Span, Message)


def _moved(each: list[_Timed], nanoseconds: int) -> list[_Timed]:
    return [
        one._replace(begun=one.begun + nanoseconds, ended=one.ended + nanoseconds) for one in each
    ]


@dataclass
class Trace:
    """The records of a job's ranks, by rank."""

    job: str
    ranks: list[Rank]

    @property
    def begun(self) -> int:
        """The time at which the first rank began to record."""
        return min((each.begun for each in self.ranks), default=0)
