"""Matches operations of different ranks, and determines the offsets of hosts' clocks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from sirtaki.observe.trace.model import Message, Operation, Rank, Trace

_LOOKED_AT = 64
_Group = dict[int, Operation]


def match(
    ranks: Iterable[Rank], place: Callable[[Operation], int] = lambda one: one.agreed
) -> list[_Group]:
    """Return the operations in which at least two ranks took part, with each rank's own record.

    Ranks call the operations of one name in the same order, but may have begun to record at
    different ones. The shift is the most frequent one among operations with the nearest places.

    Args:
        ranks: Their records.
        place: A value that grows from operation to operation and is similar on all ranks.
    """
    named: dict[tuple[str, int, str, str], dict[int, list[Operation]]] = defaultdict(dict)
    for one in ranks:
        for operation in sorted(one.operations, key=lambda each: each.submitted):
            if not operation.failed:
                named[operation.key].setdefault(one.rank, []).append(operation)
    found: list[_Group] = []
    for of_ranks in named.values():
        (first, reference), *others = sorted(of_ranks.items())
        groups: list[_Group] = [{first: each} for each in reference]
        for rank, operations in others:
            shift = _shift(
                [place(each) for each in reference], [place(each) for each in operations]
            )
            for number, group in enumerate(groups):
                if 0 <= number + shift < len(operations):
                    group[rank] = operations[number + shift]
        found += [group for group in groups if len(group) > 1]
    return found


def match_messages(ranks: Iterable[Rank]) -> list[tuple[tuple[int, Message], tuple[int, Message]]]:
    """Return the messages with both ends recorded: sender and receiver, each with its rank."""
    sends: dict[tuple[str, int, int, int], tuple[int, Message]] = {}
    receives: dict[tuple[str, int, int, int], tuple[int, Message]] = {}
    for rank in ranks:
        for one in rank.messages:
            if one.sequence and not one.failed:
                (sends if one.sends else receives)[one.key] = rank.rank, one
    return [(sends[key], receives[key]) for key in sends.keys() & receives.keys()]


def _shift(reference: Sequence[int], others: Sequence[int]) -> int:
    """Return the index in `others` of the operation that is number 0 of `reference`."""
    votes: Counter[int] = Counter()
    gaps: dict[int, int] = {}
    for number in range(0, len(reference), -(-len(reference) // _LOOKED_AT)):
        wanted = reference[number]
        after = bisect_left(others, wanted)
        near = range(max(0, after - 1), min(len(others), after + 1))
        nearest = min(near, key=lambda other: abs(others[other] - wanted))
        shift = nearest - number
        votes[shift] += 1
        gaps[shift] = min(gaps.get(shift, 1 << 63), abs(others[nearest] - wanted))
    return max(votes, key=lambda shift: (votes[shift], -gaps[shift]))


def align(trace: Trace) -> dict[str, tuple[int, int]]:
    """Align the clocks of all hosts with that of the first rank's host.

    No rank learns that all have submitted an operation before each of them has, so every operation
    bounds the offset of two clocks from both sides. The middle is taken, unless the clocks may
    agree: where one rank is always late the bounds are wide. Operations are matched by the number
    of earlier ones on each rank, independent of its clock.

    Returns:
        For each other host the nanoseconds by which its clock was late, and the possible error.
    """
    if not trace.ranks:
        return {}
    own = trace.ranks[0].host
    here = {one.rank for one in trace.ranks if one.host == own}
    hosts: dict[str, list[Rank]] = defaultdict(list)
    for one in trace.ranks:
        hosts[one.host].append(one)
    found: dict[str, tuple[int, int]] = {}
    for host, members in hosts.items():
        if host == own:
            continue
        known = [one for one in trace.ranks if one.rank in here]
        bounds = _bounds(match([*known, *members], lambda one: one.number), here)
        if bounds is None:
            continue
        least, most = bounds
        late = 0 if least <= 0 <= most else (least + most) // 2
        for one in members:
            one.shift(late)
        found[host] = late, max(abs(most - late), abs(late - least))
    return found


def _bounds(groups: Iterable[_Group], here: set[int]) -> tuple[int, int] | None:
    """Return the bounds between which the others' clocks are late."""
    least: list[int] = []
    most: list[int] = []
    for group in groups:
        ours = [each for rank, each in group.items() if rank in here]
        theirs = [each for rank, each in group.items() if rank not in here]
        if ours and theirs:
            most.append(min(e.agreed for e in ours) - max(e.submitted for e in theirs))
            least.append(max(e.submitted for e in ours) - min(e.agreed for e in theirs))
    return (max(least), min(most)) if least else None
