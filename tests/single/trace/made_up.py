"""A trace with round numbers: five steps of 10 ms on three ranks, of which rank 1 comes late."""

from __future__ import annotations

from sirtaki.observe.trace.model import LINES, Message, Operation, Rank, Span, Trace

MS = 1_000_000
BEGUN = 1_700_000_000_000_000_000
STEPS = 5


def operation(
    name: str, submitted: int, agreed: int, ended: int, size: int = 4000, number: int = 1
) -> Operation:
    """An allreduce with times in milliseconds since the trace began."""
    times = (BEGUN + each * MS for each in (submitted, agreed, agreed, ended))
    return Operation(number, "job", 0, "allreduce", name, "float32", size, False, *times)


def span(name: str, begun: int, ended: int, thread: str = "MainThread") -> Span:
    """A stretch of milliseconds since the trace began."""
    return Span(name, thread, BEGUN + begun * MS, BEGUN + ended * MS)


def messages(begun: int, came: int, ended: int, sequence: int = 1) -> tuple[Message, Message]:
    """One from rank 0 to rank 1, at both ends: sent at `begun`, received from `came` to `ended`."""
    times = [BEGUN + each * MS for each in (begun, came, ended)]
    sent = Message("job", 0, sequence, True, 0, 1, 7, 4000, False, times[0], times[2])
    received = sent._replace(sends=False, own=1, peer=0, begun=times[1])
    return sent, received


def pipeline() -> Trace:
    """Rank 0 sends to rank 1, which waits for it from before it is sent."""
    made = [
        Rank(number, "here", 100 + number, BEGUN, BEGUN + 50 * MS, calls=4) for number in (0, 1)
    ]
    for step in range(STEPS):
        at = 10 * step
        for one, message in zip(made, messages(at + 4, at, at + 5, step + 1), strict=True):
            one.messages.append(message)
        made[1].waits.append(span("wait", at, at + 5))
    return Trace("cafe", made)


def rank(number: int, host: str = "here") -> Rank:
    """All ranks load first: rank 1 for 7 ms, the others for 1 ms; the data move for 1 ms."""
    loads = 7 if number == 1 else 1
    made = Rank(number, host, 100 + number, BEGUN, BEGUN + 10 * STEPS * MS, calls=STEPS)
    for step in range(STEPS):
        at = 10 * step
        made.spans.append(span("load", at, at + loads))
        made.operations.append(operation("grad", at + loads, at + 7, at + 8, number=10 + step))
        made.waits.append(span("wait", at + loads, at + 8))
        made.lines.append(span("train.py:3 in load: read()", at, at, LINES))
    return made


def trace() -> Trace:
    """All three."""
    return Trace("cafe", [rank(0), rank(1), rank(2)])
