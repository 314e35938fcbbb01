"""What a trace tells: where each rank's time went, who held up the others, what to change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from sirtaki.observe.trace.matching import match, match_messages
from sirtaki.observe.trace.model import Operation, Rank, Trace

_NS = 1e-9
_BAR = 30
# From which share of the time on something is worth a word.
_NOTABLE = 0.05
_SMALL_BYTES = 64 << 10
_MANY_A_STEP = 20
_Stretches = list[tuple[int, int]]


@dataclass(frozen=True)
class RankTimes:
    """Where a rank's time went, in seconds.

    opened: an operation or message was under way. exposed: the main thread was blocked in a call
    that waits for one, of which `late`: that others had not asked for yet; the rest moved data.
    compute: it was not. hidden: an operation was under way meanwhile. These four are None of a rank
    without such a call, whose framework waits in its own code, as compiled functions of TensorFlow
    and JAX do. held_up: it was the last to ask for an operation, and all others waited; or another
    rank was blocked for a message that it had not sent.
    """

    rank: int
    host: str
    whole: float
    opened: float
    compute: float | None
    exposed: float | None
    late: float | None
    hidden: float | None
    held_up: float
    step: float | None
    operations: int
    messages: int
    bytes: int

    @property
    def moving(self) -> float:
        """For how long it was blocked while data moved."""
        return (self.exposed or 0.0) - (self.late or 0.0)


@dataclass(frozen=True)
class Findings:
    """What the report says."""

    job: str
    seconds: float
    times: list[RankTimes]
    stragglers: list[int]
    advice: list[str] = field(default_factory=list)


def examine(trace: Trace) -> Findings:
    """Find out where the time went, in the time that all ranks recorded."""
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
    slow = [one for one in times if one.held_up > least]
    stragglers = [one.rank for one in sorted(slow, key=lambda one: -one.held_up)]
    found = Findings(trace.job, (ended - begun) * _NS, times, stragglers)
    found.advice.extend(_advice(trace, found))
    return found


def _times(rank: Rank, begun: int, ended: int, unsent: _Stretches, held_up: int) -> RankTimes:
    """unsent: when it received what was not sent yet."""
    inside = [one for one in rank.operations if one.ended > begun and one.submitted < ended]
    messages = [one for one in rank.messages if one.ended > begun and one.begun < ended]
    under_way = [(one.submitted, one.ended) for one in inside]
    under_way += [(one.begun, one.ended) for one in messages]
    opened = joined(under_way, begun, ended)
    unasked = [*((one.submitted, one.agreed) for one in inside), *unsent]
    unagreed = joined(unasked, begun, ended)
    waits = _blocked(rank, begun, ended)
    whole, exposed = ended - begun, _length(waits)
    hidden = _length(opened) - _length(_both(waits, opened))
    # None of them knows of waits in the framework's own code.
    seen = bool(rank.calls or not under_way)
    return RankTimes(
        rank=rank.rank,
        host=rank.host,
        whole=whole * _NS,
        opened=_length(opened) * _NS,
        compute=(whole - exposed) * _NS if seen else None,
        exposed=exposed * _NS if seen else None,
        late=_length(_both(waits, unagreed)) * _NS if seen else None,
        hidden=hidden * _NS if seen else None,
        held_up=held_up * _NS,
        step=_step(inside),
        operations=len(inside),
        messages=len(messages),
        bytes=sum(one.bytes for one in inside) + sum(one.bytes for one in messages),
    )


def _blocked(rank: Rank, begun: int, ended: int) -> _Stretches:
    """When its main thread was in a call that waits; where no such call is known, any thread."""
    own = [each for each in rank.waits if each.thread == rank.main] or rank.waits
    return joined(((each.begun, each.ended) for each in own), begun, ended)


def _unsent(ranks: Sequence[Rank]) -> dict[tuple[int, int], _Stretches]:
    """Of each sender and receiver when the second asked for what the first had not sent."""
    found: dict[tuple[int, int], _Stretches] = defaultdict(list)
    for (sender, sent), (receiver, received) in match_messages(ranks):
        if sent.begun > received.begun:
            found[sender, receiver].append((received.begun, min(sent.begun, received.ended)))
    return found


def _step(operations: Iterable[Operation]) -> float | None:
    """The time from one operation of a name to the next: of the name that is there most often."""
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
    """Of each rank how long it was the only one that had not asked for what the others had.

    Or had not sent what another one was blocked for.
    """
    found: dict[int, _Stretches] = defaultdict(list)
    blocked = {one.rank: _blocked(one, begun, ended) for one in ranks}
    for (sender, receiver), stretches in unsent.items():
        found[sender] += _both(joined(stretches, begun, ended), blocked[receiver])
    for group in groups:
        *_, (before, _), (at, rank) = sorted((one.submitted, rank) for rank, one in group.items())
        found[rank].append((before, at))
    return {rank: _length(joined(each, begun, ended)) for rank, each in found.items()}


def joined(stretches: Iterable[tuple[int, int]], begun: int, ended: int) -> _Stretches:
    """Return the time that is in at least one stretch, from `begun` to `ended`."""
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
    """The time that is in both; each joined."""
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


def _advice(trace: Trace, found: Findings) -> Iterable[str]:
    if not any(one.operations or one.messages for one in found.times):
        yield "no operation ended while the trace ran: record for longer, or see `sirtaki hang`"
        return
    for rank in found.stragglers:
        one = next(each for each in found.times if each.rank == rank)
        share = one.held_up / one.whole
        text = f"rank {rank} ({one.host}) held up the others for {share:.0%} of the time"
        yield f"{text}: {_why_late(trace, rank)}"
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
    late = sum(one.late or 0.0 for one in seen) / whole
    if late > _NOTABLE and not found.stragglers:
        yield (
            f"{late:.0%} of the time ranks wait for one another, each in turn: their steps differ "
            "from one to the next, as with samples of different lengths or a shared file system"
        )
    if seen and moving <= _NOTABLE and late <= _NOTABLE and not found.stragglers:
        yield "communication costs little here: what is left is the computation of each rank"


def _why_late(trace: Trace, rank: int) -> str:
    """Which of its spans takes longer than on the other ranks."""
    means: dict[str, dict[int, float]] = defaultdict(dict)
    for one in trace.ranks:
        of_name: dict[str, list[int]] = defaultdict(list)
        for span in one.spans:
            of_name[span.name].append(span.ended - span.begun)
        for name, lengths in of_name.items():
            means[name][one.rank] = sum(lengths) / len(lengths)
    longest, text = 0.0, ""
    for name, by_rank in means.items():
        others = [mean for other, mean in by_rank.items() if other != rank]
        if rank in by_rank and others and by_rank[rank] - median(others) > longest:
            longest = by_rank[rank] - median(others)
            mean = by_rank[rank]
            text = (
                f"its {name!r} takes {mean / 1e6:.1f} ms, {median(others) / 1e6:.1f} ms elsewhere"
            )
    if text:
        return text
    return "name parts of the step with hvd.trace(...) to see which of them takes longer there"


def text_of(found: Findings) -> str:
    """Return what people read."""
    rows: list[tuple[str, ...]] = [
        ("RANK", "STEP", "COMPUTE", "EXPOSED", "WAIT", "HIDDEN", "OPEN", "HOLDS UP", "BYTES/S", "")
    ]
    for one in found.times:
        whole = one.whole or 1.0
        shares = (one.compute, one.exposed, one.late, one.hidden, one.opened, one.held_up)
        rows.append(
            (
                f"{one.rank}{'*' if one.rank in found.stragglers else ' '}",
                "-" if one.step is None else f"{one.step * 1e3:.1f} ms",
                *("-" if part is None else f"{part / whole:.0%}" for part in shares),
                _amount(one.bytes / whole),
                _bar(one),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"job {found.job}: {len(found.times)} ranks, {found.seconds:.2f} s"]
    lines += [
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.append(f"# computes, = waits while data move, . waits for other ranks; {_legend(found)}")
    return "\n".join([*lines, *(f"- {line}" for line in found.advice)])


def _legend(found: Findings) -> str:
    if all(one.exposed is not None for one in found.times):
        return "* holds up the others"
    return "* holds up the others; - its framework waits in its own code, which is not seen"


def _bar(one: RankTimes) -> str:
    if one.late is None:
        return "-" * _BAR
    whole = one.whole or 1.0
    late = round(_BAR * one.late / whole)
    moving = round(_BAR * one.moving / whole)
    return "#" * max(0, _BAR - late - moving) + "=" * moving + "." * late


def _amount(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
