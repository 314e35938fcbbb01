"""The assignment of samples to ranks: pure arithmetic, the same on all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sirtaki.core.world import state

Even: TypeAlias = Literal["drop", "pad", "join"]
Range: TypeAlias = tuple[int, int]
_EVEN = ("drop", "pad", "join")


def require_even(even: str) -> None:
    """Raise ValueError unless `even` is a valid way to make parts equally long."""
    if even not in _EVEN:
        raise ValueError(
            f"even={even!r}: expected 'drop' (leave samples out), 'pad' (repeat samples) or "
            "'join' (parts differ; call hvd.join() after the epoch)"
        )


def place_of(place: tuple[int, int] | None) -> tuple[int, int]:
    """Return a rank and the number of ranks: the given ones or the world's.

    Raises ValueError for an invalid rank.
    """
    if place is None:
        return (state.rank(), state.size()) if state.is_initialized() else (0, 1)
    rank, size = place
    if not 0 <= rank < size:
        raise ValueError(f"place={place}: expected (rank, size) with 0 <= rank < size")
    return place


def order(count: int, shuffle: bool, seed: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the numbers below `count`, in an order determined by the seed alone."""
    numbers = np.arange(count)
    if shuffle:
        # NumPy guarantees this generator's numbers for all its versions.
        np.random.RandomState([number % 2**32 for number in seed]).shuffle(numbers)
    return numbers


def deal(numbers: npt.NDArray[np.int64], number: int, of: int, even: Even) -> npt.NDArray[np.int64]:
    """Return every of-th number from the number-th on, equally many for all unless `join`.

    No part has more numbers than the first.
    """
    if even == "drop":
        numbers = numbers[: len(numbers) // of * of]
    elif even == "pad":
        numbers = np.resize(numbers, -(-len(numbers) // of) * of)
    return numbers[number::of]


def length(ranges: Iterable[Range]) -> int:
    """Return how many numbers the ranges contain."""
    return sum(stop - start for start, stop in ranges)


def part(ranges: Iterable[Range], start: int, stop: int) -> list[Range]:
    """Return the ranges of the start-th to stop-th numbers in ranges."""
    found, passed = [], 0
    for first, end in ranges:
        low, high = max(start - passed, 0), min(stop - passed, end - first)
        if low < high:
            found.append((first + low, first + high))
        passed += end - first
    return found


def cut(ranges: Sequence[Range], number: int, of: int, even: Even) -> list[Range]:
    """Return the number-th of `of` adjacent parts, equally long unless `join`."""
    whole = length(ranges)
    if even == "join":
        return part(ranges, *_between(whole, number, of))
    each = whole // of if even == "drop" else -(-whole // of)
    position, wanted, found = each * number, each, []
    while wanted:
        position %= whole
        piece = part(ranges, position, min(position + wanted, whole))
        found += piece
        position += length(piece)
        wanted -= length(piece)
    return found


def _between(whole: int, number: int, of: int) -> Range:
    """Return the begin and end of a part; no part is longer than the first."""
    return -(-whole * number // of), -(-whole * (number + 1) // of)


def left(ranges: Sequence[Range], of: int, even: Even, used: int) -> list[Range]:
    """Return the unused numbers after all parts were used up to their used-th number.

    Numbers repeated to make parts equal are ignored; numbers dropped for it remain.
    """
    whole, found = length(ranges), []
    each = whole // of if even == "drop" else -(-whole // of)
    for number in range(of):
        if even == "join":
            start, stop = _between(whole, number, of)
        else:
            start, stop = min(each * number, whole), min(each * (number + 1), whole)
        found += part(ranges, min(start + used, stop), stop)
    if even == "drop":
        found += part(ranges, each * of, whole)
    return found


def rounds(items: Iterable[Any], number: int, of: int, even: Even) -> Iterator[Any]:
    """Yield every of-th item of a stream of unknown length, like `deal`.

    With `pad`, items of the first round replace those missing in the last.
    """
    iterator = iter(items)
    first: list[Any] = []
    while whole := list(islice(iterator, of)):
        first = first or whole
        if len(whole) == of or (even == "join" and number < len(whole)):
            yield whole[number]
        elif even == "pad":
            yield whole[number] if number < len(whole) else first[number % len(first)]
