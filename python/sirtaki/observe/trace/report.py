"""The report on a trace: where each rank's time went, which rank was late, what to change."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

from sirtaki.inspect.live.view import SHARES, amount
from sirtaki.observe.blame import slow_line
from sirtaki.observe.trace.matching import match, match_messages
from sirtaki.observe.trace.model import Operation, Rank, Trace
from sirtaki.rendezvous.words import aligned

_NS = 1e-9
_BAR = 30
# The least share of the time that the report mentions.
_NOTABLE = 0.05
_SMALL_BYTES = 64 << 10
_MANY_A_STEP = 20
_Stretches = list[tuple[int, int]]


@dataclass(frozen=True)
class RankTimes:
    """A rank's times in seconds, with the names of `sirtaki top --json`.

    communicating: an operation or message was open. waiting: one that another rank had not called
    yet. exposed: the main thread was blocked in a call that waits for one; exposed_waiting: for one
    that another rank had not called yet; the rest moved data. computing: it was not blocked.
    overlapped: an operation was open meanwhile. The last four are None for a rank without such a
    call, whose framework waits in its own code, as compiled functions of TensorFlow and JAX do.
    straggling: it was the last to call an operation, and all others waited; or another rank was
    blocked for a message that it had not sent.
    """

    rank: int
    host: str
    whole: float
    communicating: float
    waiting: float
    computing: float | None
    exposed: float | None
    exposed_waiting: float | None
    overlapped: float | None
    straggling: float
    step: float | None
    operations: int
    messages: int
    bytes: int

    @property
    def moving(self) -> float:
        """The time for which it was blocked while data moved."""
        return (self.exposed or 0.0) - (self.exposed_waiting or 0.0)


@dataclass(frozen=True)
class Findings:
    """The content of the report."""

    job: str
    seconds: float
    times: list[RankTimes]
    stragglers: list[int]
    advice: list[str] = field(default_factory=list)


def examine(trace: Trace) -> Findings:
    """Determine where the time went, in the period that all ranks recorded."""
    begun = max((one.begun for one in trace.ranks), default=0)
    ended = max(begun, min((one.ended for one in trace.ranks), default=0))
    groups = match(trace.ranks)
    unsent = _unsent(trace.ranks)
    held_up = _held_up(groups, trace.ranks, unsent, begun, ended)
    times = []
    for one in trace.ranks:
        late = [each for (_, to), of in unsent.items() if to == one.rank for each in of]
        times.append(_times(one, begun, ended, late, held_up.get(one.rank, 0)))
    least = _NOTABLE * (ended - begun) * _NS
    slow = [one for one in times if one.straggling > least]
    stragglers = [one.rank for one in sorted(slow, key=lambda one: -one.straggling)]
    found = Findings(trace.job, (ended - begun) * _NS, times, stragglers)
    found.advice.extend(_advice(trace, found, (begun, ended)))
    return found


def _times(rank: Rank, begun: int, ended: int, unsent: _Stretches, held_up: int) -> RankTimes:
    """Return a rank's times. unsent: when it was receiving messages that were not sent yet."""
    inside = [one for one in rank.operations if one.ended > begun and one.submitted < ended]
    messages = [one for one in rank.messages if one.ended > begun and one.begun < ended]
    under_way = [(one.submitted, one.ended) for one in inside]
    under_way += [(one.begun, one.ended) for one in messages]
    opened = joined(under_way, begun, ended)
    unasked = [*((one.submitted, one.agreed) for one in inside), *unsent]
    unagreed = joined(unasked, begun, ended)
    waits = blocked(rank, begun, ended)
    whole, exposed = ended - begun, _length(waits)
    overlapped = _length(opened) - _length(_both(waits, opened))
    # Waits in the framework's own code are not recorded.
    seen = bool(rank.calls or not under_way)
    return RankTimes(
        rank=rank.rank,
        host=rank.host,
        whole=whole * _NS,
        communicating=_length(opened) * _NS,
        waiting=_length(unagreed) * _NS,
        computing=(whole - exposed) * _NS if seen else None,
        exposed=exposed * _NS if seen else None,
        exposed_waiting=_length(_both(waits, unagreed)) * _NS if seen else None,
        overlapped=overlapped * _NS if seen else None,
        straggling=held_up * _NS,
        step=_step(inside),
        operations=len(inside),
        messages=len(messages),
        bytes=sum(one.bytes for one in inside) + sum(one.bytes for one in messages),
    )


def blocked(rank: Rank, begun: int, ended: int) -> _Stretches:
    """Return when its main thread was in a call that waits, or any thread if it never was."""
    own = [each for each in rank.waits if each.thread == rank.main] or rank.waits
    return joined(((each.begun, each.ended) for each in own), begun, ended)


def _unsent(ranks: Sequence[Rank]) -> dict[tuple[int, int], _Stretches]:
    """Return, by sender and receiver, when the receiver waited for an unsent message."""
    found: dict[tuple[int, int], _Stretches] = defaultdict(list)
    for (sender, sent), (receiver, received) in match_messages(ranks):
        if sent.begun > received.begun:
            found[sender, receiver].append((received.begun, min(sent.begun, received.ended)))
    return found


def _step(operations: Iterable[Operation]) -> float | None:
    """Return the time from one operation to the next of the most frequent name."""
    times: dict[object, list[int]] = defaultdict(list, {None: []})
    for one in operations:
        times[one.key].append(one.ended)
    longest = max(times.values(), key=len)
    same = sorted(longest)
    gaps = [after - before for before, after in pairwise(same)]
    return median(gaps) * _NS if gaps else None


def _held_up(
    groups: Iterable[Mapping[int, Operation]],
    ranks: Sequence[Rank],
    unsent: Mapping[tuple[int, int], _Stretches],
    begun: int,
    ended: int,
) -> dict[int, int]:
    """Return for how long each rank was the only one that had not submitted an operation.

    This includes time in which another rank was blocked for a message that it had not sent.
    """
    found: dict[int, _Stretches] = defaultdict(list)
    waits = {one.rank: blocked(one, begun, ended) for one in ranks}
    for (sender, receiver), stretches in unsent.items():
        found[sender] += _both(joined(stretches, begun, ended), waits[receiver])
    for group in groups:
        *_, (before, _), (at, rank) = sorted((one.submitted, rank) for rank, one in group.items())
        found[rank].append((before, at))
    return {rank: _length(joined(each, begun, ended)) for rank, each in found.items()}


def joined(stretches: Iterable[tuple[int, int]], begun: int, ended: int) -> _Stretches:
    """Return the union of the stretches, from `begun` to `ended`."""
    found: _Stretches = []
    for first, last in sorted(stretches):
        first, last = max(first, begun), min(last, ended)
        if first >= last:
            continue
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _both(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> _Stretches:
    """Return the intersection of two joined lists of stretches."""
    found: _Stretches = []
    a = b = 0
    while a < len(some) and b < len(others):
        first, last = max(some[a][0], others[b][0]), min(some[a][1], others[b][1])
        if first < last:
            found.append((first, last))
        if some[a][1] < others[b][1]:
            a += 1
        else:
            b += 1
    return found


def _length(stretches: Iterable[tuple[int, int]]) -> int:
    return sum(last - first for first, last in stretches)


def _advice(trace: Trace, found: Findings, window: tuple[int, int]) -> Iterable[str]:
    if not any(one.operations or one.messages for one in found.times):
        yield "no operation ended while the trace ran: record for longer, or see `sirtaki hang`"
        return
    for rank in found.stragglers:
        one = next(each for each in found.times if each.rank == rank)
        share = one.straggling / one.whole
        text = f"rank {rank} ({one.host}) held up the others for {share:.0%} of the time"
        yield f"{text}: {_why_late(trace, one, window)}"
    seen = [one for one in found.times if one.exposed is not None]
    whole = sum(one.whole for one in seen) or 1.0
    moving = sum(one.moving for one in seen) / whole
    if moving > _NOTABLE:
        yield (
            f"{moving:.0%} of the time ranks wait for data that move: send fewer bytes "
            "(compression=hvd.Compression.bf16) or less often (backward_passes_per_step), or let "
            "them move while gradients are computed (DistributedOptimizer)"
        )
    small = [o.bytes for one in trace.ranks for o in one.operations] or [0]
    steps = [one.whole / one.step for one in found.times if one.step]
    a_step = median(one.operations for one in found.times) / max(median(steps or [1.0]), 1.0)
    if moving > _NOTABLE and a_step > _MANY_A_STEP and median(small) < _SMALL_BYTES:
        yield (
            f"{a_step:.0f} operations a step, half of them under 64 KiB: give them to "
            "DistributedOptimizer or hvd.grouped_allreduce together"
        )
    late = sum(one.exposed_waiting or 0.0 for one in seen) / whole
    if late > _NOTABLE and not found.stragglers:
        yield (
            f"{late:.0%} of the time ranks wait for one another, each in turn: their steps differ "
            "from one to the next, as with samples of different lengths or a shared file system"
        )
    if seen and moving <= _NOTABLE and late <= _NOTABLE and not found.stragglers:
        yield "communication costs little here: what is left is the computation of each rank"


def _why_late(trace: Trace, slow: RankTimes, window: tuple[int, int]) -> str:
    """Return a sentence about what takes longer on a slow rank, if it explains the delay."""
    late = slow.straggling / slow.whole
    text = _slow_span(trace, slow.rank, window, late)
    shares = {one.rank: _shares_of_lines(one, *window) for one in trace.ranks}
    line, more = slow_line(shares, slow.rank, late)
    if line and text:
        return f"{text}; line: {line}"
    if line:
        time = f"{more * slow.step * 1e3:.1f} ms of each step" if slow.step else f"{more:.0%}"
        return f"it spends {time} more than the others at {line}"
    return text or "name parts of the step with hvd.trace(...) to see which of them takes longer"


def _slow_span(trace: Trace, rank: int, window: tuple[int, int], late: float) -> str:
    """Return the span that takes longer than elsewhere, "" if none explains half of the delay."""
    lengths: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for one in trace.ranks:
        for span in one.spans:
            if window[0] <= span.begun < window[1]:
                lengths[span.name][one.rank].append(span.ended - span.begun)
    least, text = late / 2 * (window[1] - window[0]), ""
    for name, by_rank in lengths.items():
        others = [each for other, each in by_rank.items() if other != rank]
        own = by_rank.get(rank, [])
        more = sum(own) - median(map(sum, others)) if own and others else 0
        if more >= max(least, 1):
            least = more
            mean, usual = fmean(own) / 1e6, median(map(fmean, others)) / 1e6
            text = f"its {name!r} takes {mean:.1f} ms, {usual:.1f} ms elsewhere"
    return text


def _shares_of_lines(rank: Rank, begun: int, ended: int) -> dict[str, float]:
    """Return by line the share of samples with the main thread there, not blocked in our calls."""
    seen = [one for one in rank.lines if begun <= one.begun < ended]
    waits = blocked(rank, begun, ended)
    starts = [first for first, _ in waits]
    counts: Counter[str] = Counter()
    for one in seen:
        before = bisect_right(starts, one.begun) - 1
        if before < 0 or one.begun >= waits[before][1]:
            counts[one.name] += 1
    return {line: count / len(seen) for line, count in counts.items()}


def text_of(found: Findings) -> str:
    """Return the report as text."""
    rows: list[tuple[str, ...]] = [("RANK", "STEP", *SHARES, "OVERLAP", "STRAGGLER", "BYTES/S", "")]
    for one in found.times:
        whole = one.whole or 1.0
        shares = (one.computing, one.exposed, one.communicating, one.waiting)
        more = (one.overlapped, one.straggling)
        rows.append(
            (
                f"{one.rank}{'*' if one.rank in found.stragglers else ' '}",
                "-" if one.step is None else f"{one.step * 1e3:.1f} ms",
                *("-" if part is None else f"{part / whole:.0%}" for part in (*shares, *more)),
                amount(one.bytes / whole),
                _bar(one),
            )
        )
    lines = [f"job {found.job}: {len(found.times)} ranks, {found.seconds:.2f} s"]
    lines += aligned(rows)
    lines.append(f"# computes; exposed: = data move, . waits for other ranks; {_legend(found)}")
    return "\n".join([*lines, *(f"- {line}" for line in found.advice)])


def _legend(found: Findings) -> str:
    if all(one.exposed is not None for one in found.times):
        return "* straggler"
    return "* straggler; - its framework waits in its own code, which is not seen"


def _bar(one: RankTimes) -> str:
    if one.exposed_waiting is None:
        return "-" * _BAR
    whole = one.whole or 1.0
    late = round(_BAR * one.exposed_waiting / whole)
    moving = round(_BAR * one.moving / whole)
    return "#" * max(0, _BAR - late - moving) + "=" * moving + "." * late
