"""How often a membership has tried to meet, and what its processes say when some do not come.

Each process counts its own attempts. All members take part in every attempt, whether it succeeds
or not, so they arrive at the same number, and the store's keys under it are fresh. Their numbers
differ only if some gave up before others came. So a process that waits long, or gives up, publishes
which world it wants and at which attempt it is. A process that fails continues from the highest
number that it reads, and tries again at once if the others had given up before it came.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeVar

from sirtaki.records import asdict, dataclass, replace
from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.words import write_numbers
from sirtaki.rendezvous.world.join import JoinSettings

T = TypeVar("T")

# Who has waited for this share of its time says what for.
_PATIENCE = 0.25
_SAY_SECONDS = 1.0
_PROBE_SECONDS = 0.2
_PROBES_SECONDS = 1.0
_CURE = "give all processes of a world the same members (init(comm=...)) and the same SIRTAKI_EPOCH"


@dataclass(frozen=True)
class _Wish:
    """What a process wants: a world, at which attempt, and since when (time.time())."""

    who: str
    epoch: int
    members: str
    attempt: int
    since: float

    def contradicts(self, other: _Wish) -> bool:
        return (self.epoch, self.members) != (other.epoch, other.members)

    def __str__(self) -> str:
        return f"launched ranks {self.members} in epoch {self.epoch}"


class Attempts:
    """The attempts of this process to meet others at a store.

    advice: what a user can do if some do not come, "" for nothing special.
    """

    def __init__(self, store: Store, advice: str = "") -> None:
        self._store = store
        self._advice = advice
        self._made: Counter[str] = Counter()
        self._has_spoken = False

    def meet(self, settings: JoinSettings, join: Callable[[JoinSettings, str], T]) -> T:
        """Bring the members together; each of them calls it.

        join: meets the others within the time that is left, under a prefix of the store's keys that
        no other attempt uses. Raises what `join` raises, and adds what the others want instead;
        ValueError if they and this process contradict each other.
        """
        deadline = time.monotonic() + settings.timeout
        wanted, name = settings.wanted, settings.wanted.name
        own = wanted.ids[settings.topology.rank]
        who = f"launched rank {own} ({settings.hostname})"
        while True:
            self._made[name] += 1
            number = self._made[name]
            wish = _Wish(who, wanted.epoch, write_numbers(wanted.ids), number, time.time())
            try:
                with self._speaking(own, wish, _PATIENCE * settings.timeout):
                    return join(settings, f"world/{name}/{number}")
            except (TimeoutError, ConnectionError) as error:
                reached = self._say(own, replace(wish, attempt=number + 1, since=time.time()))
                others = self._heard(wanted.ids, own) if reached else []
                same = [other for other in others if not other.contradicts(wish)]
                self._made[name] = max([number, *(other.attempt - 1 for other in same)])
                is_late = any(o.attempt > number and o.since < wish.since for o in same)
                left = deadline - time.monotonic()
                if not is_late or left <= 0:
                    self._raise(error, wish, own, others, is_late)
                settings = replace(settings, timeout=left)

    @contextlib.contextmanager
    def _speaking(self, own: int, wish: _Wish, patience: float) -> Iterator[None]:
        """Publish what this process wants if that takes long; withdraw it after success."""
        timer = threading.Timer(patience, self._say, (own, wish))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
        if self._has_spoken:
            self._say(own, None)

    def _say(self, own: int, wish: _Wish | None) -> bool:
        """Publish a wish, or withdraw it; return whether the store took it."""
        self._has_spoken = wish is not None
        text = json.dumps(asdict(wish) if wish else {})
        try:
            self._store.set(f"wish/{own}", text.encode(), _SAY_SECONDS)
        except OSError:
            return False
        return True

    def _heard(self, ids: Sequence[int], own: int) -> list[_Wish]:
        """Return the wishes of other members, of as many as time permits."""
        ends = time.monotonic() + _PROBES_SECONDS
        heard = []
        for other in ids:
            if other != own and time.monotonic() < ends:
                with contextlib.suppress(OSError, ValueError, TypeError):
                    said = json.loads(self._store.get(f"wish/{other}", _PROBE_SECONDS))
                    heard.append(_Wish(**said))
        return heard

    def _raise(
        self, error: Exception, wish: _Wish, own: int, others: list[_Wish], is_late: bool
    ) -> NoReturn:
        """Raise a failure, with what the others want."""
        differing = [other for other in others if other.contradicts(wish)]
        why = [f"{o.who} wants a world of {o}, this process wants one of {wish}" for o in differing]
        if is_late:
            why.append("others had given up before this process came: call init() again")
        if self._advice and isinstance(error, TimeoutError):
            why.append(self._advice)
        kind = TimeoutError if isinstance(error, TimeoutError) else ConnectionError
        if any(_includes(other.members, own) for other in differing):
            why.append(_CURE)
            raise ValueError("; ".join([str(error), *why])) from error
        if why:
            raise kind("; ".join([str(error), *why])) from error
        raise error


def _includes(runs: str, number: int) -> bool:
    ends = (run.partition("-") for run in runs.split(","))
    return any(int(first) <= number <= int(last or first) for first, _, last in ends)
