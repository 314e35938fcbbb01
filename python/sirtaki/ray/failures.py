"""The first cause among successive failures of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError

from sirtaki.core.errors import HorovodInternalError

# How long the others may take to detect a failed rank; after two seconds all have ended.
GRACE_SECONDS = 1.5
_TURN_SECONDS = 0.2


@dataclass(frozen=True)
class Failure:
    """A failed rank, and its error."""

    rank: int
    error: Exception

    @property
    def is_consequence(self) -> bool:
        """Return whether it only results from another rank's failure."""
        return isinstance(getattr(self.error, "cause", None), HorovodInternalError)

    @property
    def is_death(self) -> bool:
        """Return whether its actor is gone."""
        return isinstance(self.error, RayActorError)


@dataclass(frozen=True)
class Results:
    """The outcomes of all ranks.

    Attributes:
        values: The return values; empty after any failure.
        failures: The failures, in order.
        all_idle: Whether all actors live and are idle.
    """

    values: list[Any]
    failures: list[Failure]
    all_idle: bool = True


def results(refs: Sequence[Any], each_turn: Callable[[], None]) -> Results:
    """Wait for all ranks, or for the first failure and a little longer for the others.

    Args:
        refs: A reference to each rank's result.
        each_turn: Called repeatedly meanwhile.
    """
    ranks = {ref: rank for rank, ref in enumerate(refs)}
    pending, failures = list(refs), list[Failure]()
    while pending and not failures:
        done, pending = ray.wait(pending, num_returns=1, timeout=_TURN_SECONDS)
        failures += _failed(done, ranks)
        each_turn()
    if not failures:
        return Results(list(ray.get(list(refs))), [])
    if pending:
        done, pending = ray.wait(pending, num_returns=len(pending), timeout=GRACE_SECONDS)
        failures += _failed(done, ranks)
    idle = not pending and not any(failure.is_death for failure in failures)
    return Results([], failures, idle)


def named(error: Exception, text: str) -> Exception:
    """Return a RuntimeError that is also of the classes of Ray's error and of its cause.

    So programs for Horovod can catch the class that a function raised.
    """
    kind = type(error)
    bases = (kind,) if issubclass(kind, RuntimeError) else (kind, RuntimeError)
    methods: dict[str, Any] = {
        "__str__": lambda _: text,
        "__reduce__": lambda _: (named, (error, text)),
    }
    try:
        made = type(kind.__name__, bases, methods)
        same: Any = made.__new__(made)  # type: ignore[call-overload]
        same.__dict__.update(error.__dict__)
    except Exception:
        # A class that cannot be derived from, or that has a custom constructor.
        return RuntimeError(text)
    return same  # type: ignore[no-any-return]


def _failed(refs: Sequence[Any], ranks: dict[Any, int]) -> list[Failure]:
    found = []
    for ref in refs:
        try:
            ray.get(ref)
        except Exception as error:
            found.append(Failure(ranks[ref], error))
    return found


def first_of(failures: Sequence[Failure]) -> Failure:
    """Return the failure that caused the others."""
    return next((f for f in failures if not f.is_consequence), failures[0])
