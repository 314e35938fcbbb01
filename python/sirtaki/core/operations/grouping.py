"""How the tensors of a group are divided by key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def parts(keys: Sequence[Hashable]) -> list[tuple[list[int], str]]:
    """Return the items of each key, and a suffix for names: "" if all items have one key.

    Args:
        keys: The items' keys, such as their data types.
    """
    places: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return [(where, f".{key}" if len(places) > 1 else "") for key, where in places.items()]


def part_name(name: str | None, suffix: str) -> str | None:
    """Return the name of one part of a group; a name that is no string is refused later."""
    return name + suffix if suffix and isinstance(name, str) else name


def by_key(
    items: Sequence[T],
    key: Callable[[T], Hashable],
    act: Callable[[list[T], str], Sequence[R]],
) -> list[R]:
    """Apply a function to the items of each key; return its results in the items' order.

    Args:
        items: Items with any keys, in any order.
        key: Returns the key of an item, such as its data type.
        act: Called with the items of a key, in the order of the first of each, and with a suffix
            for names, "" if all items have one key; returns one result for each.
    """
    results: dict[int, R] = {}
    for where, suffix in parts([key(item) for item in items]):
        done = act([items[place] for place in where], suffix)
        results.update(zip(where, done, strict=True))
    return [results[place] for place in range(len(items))]
