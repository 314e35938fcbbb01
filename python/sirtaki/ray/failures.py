"""What went wrong first among workers that fail one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from sirtaki.core.errors import HorovodInternalError

# How long the others may take to notice that a rank has failed; after two seconds all have ended.
GRACE_SECONDS = 1.5
_TURN_SECONDS = 0.2


@dataclass(frozen=True)
class Failure:
    """A rank that failed, and how."""

    rank: int
    error: Exception

    @property
    def is_consequence(self) -> bool:
        """Whether it only says that another rank has failed."""
        return isinstance(getattr(self.error, "cause", None), HorovodInternalError)


def results(refs: Sequence[Any], each_turn: Callable[[], None]) -> tuple[list[Any], list[Failure]]:
    """Wait for all ranks, or for the first that fails and a little longer for the others.

    Args:
        refs: Of each rank, what it will return.
        each_turn: Called again and again meanwhile.

    Returns:
        What the ranks return, and the failures in the order in which they came; with any, nothing
        is returned.
    """
    ranks = {ref: rank for rank, ref in enumerate(refs)}
    pending, failures = list(refs), list[Failure]()
    while pending and not failures:
        done, pending = ray.wait(pending, num_returns=1, timeout=_TURN_SECONDS)
        failures += _failed(done, ranks)
        each_turn()
    if not failures:
        return list(ray.get(list(refs))), []
    if pending:
        done, _ = ray.wait(pending, num_returns=len(pending), timeout=GRACE_SECONDS)
        failures += _failed(done, ranks)
    return [], failures


def _failed(refs: Sequence[Any], ranks: dict[Any, int]) -> list[Failure]:
    found = []
    for ref in refs:
        try:
            ray.get(ref)
        except Exception as error:
            found.append(Failure(ranks[ref], error))
    return found


def first_of(failures: Sequence[Failure]) -> Failure:
    """Return the failure that the others follow from."""
    return next((f for f in failures if not f.is_consequence), failures[0])
