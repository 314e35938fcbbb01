"""What a trace consists of. Times are nanoseconds since 1970, by the clock of the first host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar


class Operation(NamedTuple):
    """An operation of one rank that has ended.

    number: of those that this rank has asked for. world: what all its ranks call the world that it
    is of. set: the process set's number. agreed: when this rank heard that all have asked for it;
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
        """What the same operation has in common on all ranks, and in each step."""
        return self.world, self.set, self.kind, self.name

    @property
    def title(self) -> str:
        """As people read it."""
        return f"{self.kind} {self.name}"


class Message(NamedTuple):
    """A message that one rank has sent or received.

    world: as of an operation; own, peer: the numbers in it of this rank and of the other one.
    sequence: of all messages from there to here; 0: of a rank to itself, or nothing has come.
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
        """What the same message has at both ends: from where to where, and which of these."""
        source, dest = (self.own, self.peer) if self.sends else (self.peer, self.own)
        return self.world, source, dest, self.sequence

    @property
    def title(self) -> str:
        """As people read it."""
        return f"{'send to' if self.sends else 'receive from'} {self.peer}, tag {self.tag}"


class Span(NamedTuple):
    """A named stretch of time of a thread."""

    name: str
    thread: str
    begun: int
    ended: int


@dataclass
class Rank:
    """What one rank has recorded.

    begun, ended: when it recorded. waits: when its threads waited for operations; calls: how often
    they asked for a result, waiting or not. main: the name of its main thread. lost: how often it
    had to forget something.
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

    def shift(self, nanoseconds: int) -> None:
        """Move all its times."""
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


_Timed = TypeVar("_Timed", Span, Message)


def _moved(each: list[_Timed], nanoseconds: int) -> list[_Timed]:
    return [
        one._replace(begun=one.begun + nanoseconds, ended=one.ended + nanoseconds) for one in each
    ]


@dataclass
class Trace:
    """What the ranks of a job have recorded, by rank."""

    job: str
    ranks: list[Rank]

    @property
    def begun(self) -> int:
        """When the first rank began."""
        return min((each.begun for each in self.ranks), default=0)
