"""Shows each error of a job's ranks once, and determines which was the first."""

from __future__ import annotations

import collections
import time
from collections.abc import Collection, Container, Iterable
from typing import NamedTuple

from sirtaki.launch.cores.processors import format_cpus
from sirtaki.launch.output.tracebacks import Traceback, lost_rank, shortened

# Lines of one error arrive within this time; then what has arrived is shown.
PATIENCE_SECONDS = 0.2
_KEPT_LINES = 3
_ENDED_WELL = "it ended with exit code 0 while other ranks still needed it"
# Lines in which `lost_rank` matches contain one of these; a plain search is faster.
_LOSS = ("the world has been shut down: rank ", "lost peer rank ")
# A limit, as a script may print new tracebacks for ever.
_KEPT_TRACEBACKS = 1000


class FirstError(NamedTuple):
    """The error that caused the others.

    error: its last line. lines: all of it, empty if they were printed right above. Without ends.
    """

    rank: int
    error: str
    lines: tuple[str, ...] = ()


class _Known(NamedTuple):
    """A traceback shown for `owner`, and the ranks with the same one not reported yet."""

    owner: int
    rest: tuple[str, ...]
    kind: str
    others: list[int]


class Errors:
    """The tracebacks of all ranks. verbose: show all of them, with all frames."""

    def __init__(self, verbose: bool = False) -> None:
        self._verbose = verbose
        self._seen: dict[str, _Known] = {}
        self._pending: dict[str, float] = {}
        # The last traceback of each rank, in the order of their arrival.
        self._last: dict[int, Traceback] = {}
        self._last_shown = ""
        self._last_lines: dict[int, collections.deque[str]] = {}
        # The lost rank that each rank named in a line, after its script caught the exception.
        self._lost: dict[int, int] = {}
        # Ranks that printed more after their last traceback.
        self._went_on: set[int] = set()

    def take(self, rank: int, traceback: Traceback) -> list[str]:
        """Record a traceback; returns the lines to show, with ends."""
        if not self._verbose:
            traceback = shortened(traceback)
        self._last.pop(rank, None)
        self._last[rank] = traceback
        self._went_on.discard(rank)
        key = traceback.key
        known = self._seen.setdefault(key, _Known(rank, traceback.rest, traceback.kind, []))
        if len(self._seen) > _KEPT_TRACEBACKS:
            oldest = next(iter(self._seen))
            if oldest != key and oldest not in self._pending:
                del self._seen[oldest]
        if known.owner != rank and not self._verbose:
            known.others.append(rank)
            self._pending.setdefault(key, time.monotonic() + PATIENCE_SECONDS)
            return [] if traceback.rest == known.rest else list(traceback.rest)
        self._last_shown = key
        return list(traceback.printed)

    def take_line(self, rank: int, line: str) -> None:
        """Record another line."""
        if line.strip():
            self._went_on.add(rank)
            kept = self._last_lines.setdefault(rank, collections.deque(maxlen=_KEPT_LINES))
            kept.append(line.rstrip())
            self.take_loss(rank, line)

    def take_loss(self, rank: int, line: str) -> None:
        """Record which rank a rank has lost, if a line names it."""
        if (_LOSS[0] in line or _LOSS[1] in line) and (lost := lost_rank(line)) is not None:
            self._lost[rank] = lost

    def due(self) -> float | None:
        """Return when (time.monotonic()) `say` has to be called, None for never."""
        return min(self._pending.values(), default=None)

    def say(self, now: float) -> list[str]:
        """Return messages about ranks that had the same error as another."""
        said = []
        for key in [key for key, due in self._pending.items() if due <= now]:
            del self._pending[key]
            known = self._seen[key]
            ranks = sorted(set(known.others))
            known.others.clear()
            who = f"rank{'s' if len(ranks) > 1 else ''} {format_cpus(ranks)}"
            said.append(f"The same {known.kind} as that of rank {known.owner} came from {who}.")
        return said

    def last_of(self, rank: int, asked: bool) -> Traceback | None:
        """Return the last traceback of a failed rank, None if it does not explain the failure.

        asked: whether the rank was asked to end; then it must not have printed more afterwards.
        """
        return None if asked and rank in self._went_on else self._last.get(rank)

    def first(self, failed: Iterable[int], asked: Iterable[int]) -> FirstError | None:
        """Return the first error, None if no rank printed one.

        failed: ranks that failed by themselves, in the order of their ends. asked: ranks that were
        asked to end, which may have been failing too.
        """
        ends = {**dict.fromkeys(asked, True), **dict.fromkeys(failed, False)}
        spoke = [r for r in self._last if r in ends and self.last_of(r, ends[r]) is not None]
        own = [rank for rank in spoke if not self._last[rank].is_consequence]
        if own:
            return self._of(own[0])
        # All errors only report that another rank left, which may have printed why.
        blamed = self._last[spoke[0]].blamed if spoke else None
        lines = () if blamed is None else tuple(self._last_lines.get(blamed, ()))
        if blamed is not None and blamed not in ends:
            return FirstError(blamed, _ENDED_WELL)
        return FirstError(blamed, lines[-1], lines) if blamed is not None and lines else None

    def last(self, failed: Container[int]) -> FirstError | None:
        """Return the last error of these ranks that does not only report the loss of another."""
        ranks = [rank for rank, last in self._last.items() if not last.is_consequence]
        own = [rank for rank in ranks if rank in failed]
        return self._of(own[-1]) if own else None

    def culprit(self, failed: Iterable[int]) -> int:
        """Return the first of these ranks, in the order of their ends, that is not a victim.

        If all are victims, return a rank that the others have lost, else the first.
        """
        ranks = list(failed)
        own = [rank for rank in ranks if not self._is_victim(rank)]
        return next(iter(own or [rank for rank in ranks if rank in self.blamed(ranks)] or ranks))

    def blamed(self, failed: Iterable[int]) -> set[int]:
        """Return the ranks that the victims among these have lost."""
        lost = (self._lost_by(rank) for rank in failed if self._is_victim(rank))
        return {rank for rank in lost if rank is not None}

    def _lost_by(self, rank: int) -> int | None:
        return self._last[rank].lost if rank in self._last else self._lost.get(rank)

    def awaits(self, failed: Collection[int], running: Container[int]) -> bool:
        """Return whether all of these are victims of a rank that still runs."""
        victims = all(self._is_victim(rank) for rank in failed)
        return victims and any(rank in running for rank in self.blamed(failed))

    def _is_victim(self, rank: int) -> bool:
        return self._last[rank].is_consequence if rank in self._last else rank in self._lost

    def stalled(self, failed: Iterable[int]) -> bool:
        """Return whether the first of these ranks with a traceback had waited too long.

        failed: ranks that failed by themselves, in the order of their ends.
        """
        error = next((self._last[rank].error for rank in failed if rank in self._last), "")
        return error.partition(":")[0].rpartition(".")[2] == "CollectiveTimeoutError"

    def _of(self, rank: int) -> FirstError:
        traceback = self._last[rank]
        lines = tuple(line.rstrip("\r\n") for line in traceback.printed)
        right_above = traceback.key == self._last_shown
        return FirstError(rank, traceback.error, () if right_above else lines)
