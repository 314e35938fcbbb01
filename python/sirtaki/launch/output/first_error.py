"""What the ranks of a job say when they fail: each thing once, and what was the first of it."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterable

from sirtaki.launch.cores.processors import format_cpus
from sirtaki.launch.output.tracebacks import Traceback, shortened
from sirtaki.records import dataclass, field

# How long what is printed at once may take; then it is shown as far as it came.
PATIENCE_SECONDS = 0.2
_KEPT_LINES = 3
# A script may go on for ever and say something new each time.
_KEPT_TRACEBACKS = 1000


@dataclass(frozen=True)
class FirstError:
    """The error to which the others lead.

    error: its last line. lines: all of it, none where they stand right above. Without ends.
    """

    rank: int
    error: str
    lines: tuple[str, ...] = ()


@dataclass
class _Known:
    """A traceback that was shown for `owner`; who had the same since the last word of it."""

    owner: int
    rest: tuple[str, ...]
    others: list[int] = field(default_factory=list)


class Errors:
    """The tracebacks of all ranks. verbose: show all of them, with all frames."""

    def __init__(self, verbose: bool = False) -> None:
        self._verbose = verbose
        self._seen: dict[str, _Known] = {}
        self._pending: dict[str, float] = {}
        # By rank, in the order in which they came; of each rank the last.
        self._last: dict[int, Traceback] = {}
        self._last_shown = ""
        self._last_lines: dict[int, collections.deque[str]] = {}
        # Ranks that have printed more than their last traceback.
        self._went_on: set[int] = set()

    def take(self, rank: int, traceback: Traceback) -> list[str]:
        """Take note of a traceback; returns what of it is to be shown, with ends."""
        if not self._verbose:
            traceback = shortened(traceback)
        self._last.pop(rank, None)
        self._last[rank] = traceback
        self._went_on.discard(rank)
        key = traceback.key
        known = self._seen.setdefault(key, _Known(rank, traceback.rest))
        if len(self._seen) > _KEPT_TRACEBACKS:
            oldest = next(iter(self._seen))
            if oldest not in self._pending:
                del self._seen[oldest]
        if known.owner != rank and not self._verbose:
            known.others.append(rank)
            self._pending.setdefault(key, time.monotonic() + PATIENCE_SECONDS)
            return [] if traceback.rest == known.rest else list(traceback.rest)
        self._last_shown = key
        return list(traceback.printed)

    def take_line(self, rank: int, line: str) -> None:
        """Take note of another line."""
        if line.strip():
            self._went_on.add(rank)
            kept = self._last_lines.setdefault(rank, collections.deque(maxlen=_KEPT_LINES))
            kept.append(line.rstrip())

    def due(self) -> float | None:
        """When (time.monotonic()) there is something to say."""
        return min(self._pending.values(), default=None)

    def say(self, now: float) -> list[str]:
        """Return sentences on who had the same as another rank."""
        said = []
        for key in [key for key, due in self._pending.items() if due <= now]:
            del self._pending[key]
            known = self._seen[key]
            ranks = sorted(set(known.others))
            known.others.clear()
            who = f"rank{'s' if len(ranks) > 1 else ''} {format_cpus(ranks)}"
            said.append(f"The same traceback as that of rank {known.owner} came from {who}.")
        return said

    def last_of(self, rank: int, asked: bool) -> Traceback | None:
        """Return the last traceback of a rank that failed, None where that is no reason to.

        asked: whether it was made to end; then only one behind which it printed no more counts.
        """
        return None if asked and rank in self._went_on else self._last.get(rank)

    def first(self, failed: Iterable[int], asked: Iterable[int]) -> FirstError | None:
        """Return what failed first, None where nobody said.

        failed: ranks that ended badly by themselves, in the order of their ends. asked: those that
        were made to end, which may have been about to.
        """
        ends = {**dict.fromkeys(asked, True), **dict.fromkeys(failed, False)}
        spoke = [r for r in self._last if r in ends and self.last_of(r, ends[r]) is not None]
        own = [rank for rank in spoke if not self._last[rank].is_consequence]
        if own:
            return self._of(own[0])
        # All that is said is that another one left, which may have said why.
        blamed = self._last[spoke[0]].blamed if spoke else None
        lines = () if blamed is None else tuple(self._last_lines.get(blamed, ()))
        return FirstError(blamed, lines[-1], lines) if blamed is not None and lines else None

    def stalled(self, failed: Iterable[int]) -> bool:
        """Tell whether the first of these ranks to say why they failed had waited for too long.

        failed: ranks that ended badly by themselves, in the order of their ends.
        """
        error = next((self._last[rank].error for rank in failed if rank in self._last), "")
        return error.partition(":")[0].rpartition(".")[2] == "CollectiveTimeoutError"

    def _of(self, rank: int) -> FirstError:
        traceback = self._last[rank]
        lines = tuple(line.rstrip("\r\n") for line in traceback.printed)
        right_above = traceback.key == self._last_shown
        return FirstError(rank, traceback.error, () if right_above else lines)
