"""What all frameworks share of trainings with rare exchanges: steps, fragments, and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sirtaki.core.operations.objects import allgather_object
from sirtaki.core.world.process_sets import ProcessSet

# Before a parameter's name, in what `require_equal` compares.
PARAMETER = "parameter "


class OuterSchedule(NamedTuple):
    """The turns of the fragments, as in Streaming DiLoCo (arXiv 2501.18512).

    Attributes:
        sync_every: The steps from one exchange of a fragment to its next.
        fragments: How many there are; one is exchanged every ``sync_every / fragments`` steps.
        delay: The steps between the start of an exchange and its use.
    """

    sync_every: int
    fragments: int
    delay: int

    @property
    def turn(self) -> int:
        """The steps from one exchange to the next one."""
        return self.sync_every // self.fragments

    def starts(self, step: int) -> int | None:
        """Return the fragment whose exchange starts after a step, counted from 1; None: none."""
        return self._due(step + self.delay)

    def applies(self, step: int) -> int | None:
        """Return the fragment whose exchange is used after a step, counted from 1; None: none."""
        return self._due(step)

    def in_flight(self, step: int) -> int | None:
        """Return the fragment whose exchange runs after a step; None: none."""
        turns, rest = divmod(step, self.turn)
        return turns % self.fragments if rest >= self.turn - self.delay else None

    def _due(self, step: int) -> int | None:
        turns, rest = divmod(step, self.turn)
        return None if rest else (turns - 1) % self.fragments

    def check(self, name: str) -> None:
        """Raise ValueError if the numbers do not fit; `name` is that of the optimizer."""
        if self.fragments < 1:
            raise ValueError(
                f"{name}: fragments={self.fragments} must be at least 1 and at most the number of "
                "trained parameters"
            )
        if self.sync_every < 1 or self.sync_every % self.fragments:
            raise ValueError(
                f"{name}: sync_every={self.sync_every} must be a positive multiple of the "
                f"{self.fragments} fragments, which are exchanged in turn"
            )
        if not 0 <= self.delay < self.turn:
            raise ValueError(
                f"{name}: delay={self.delay} must be at least 0 and less than sync_every / "
                f"fragments = {self.turn}, after which the next exchange is due"
            )


def require_mix(name: str, mix: float) -> None:
    """Raise ValueError for what cannot be a share; `name` is that of the optimizer."""
    if not 0.0 <= mix <= 1.0:
        raise ValueError(f"{name}: mix={mix} must be from 0, the outer parameters, to 1, the local")


def require_equal(
    optimizer: str, own: Mapping[str, Any], name: str, process_set: ProcessSet, remedy: str
) -> None:
    """Raise ValueError, on all ranks, if settings or parameters differ among them.

    Args:
        optimizer: Its name, for the error.
        own: This rank's settings by name; hashes of parameters by `PARAMETER` and their name.
        name: Of the operation.
        process_set: The ranks to compare.
        remedy: What to do about parameters that differ.
    """
    of_all = allgather_object(dict(own), name, process_set)
    ranks = process_set.ranks or range(len(of_all))
    for rank, theirs in zip(ranks, of_all, strict=True):
        for key in {**of_all[0], **theirs}:
            first, other = of_all[0].get(key), theirs.get(key)
            if first == other:
                continue
            if key.startswith(PARAMETER):
                raise ValueError(
                    f"{optimizer}: {key} differs between rank {ranks[0]} and rank {rank} before "
                    f"the first step: {remedy}"
                )
            raise ValueError(
                f"{optimizer}: {key} is {first} on rank {ranks[0]} and {other} on rank {rank}; all "
                "ranks need the same"
            )


def cut_evenly(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Return consecutive positions of about equally large sums of sizes, at least one in each part.

    Args:
        sizes: Of the parameters, in bytes.
        count: The number of parts, at most that of sizes.
    """
    total = sum(sizes)
    parts: list[list[int]] = [[] for _ in range(count)]
    at = before = 0
    for position, size in enumerate(sizes):
        must = len(sizes) - position <= count - 1 - at + (not parts[at])
        middle = before + size / 2
        if parts[at] and at < count - 1 and (must or middle >= total * (at + 1) / count):
            at += 1
        parts[at].append(position)
        before += size
    return parts
