"""Counts the attempts of a membership to meet, and explains why some members did not come.

The store counts the attempts of each member, which may be several processes, one after another.
All members take part in every attempt, successful or not, so they arrive at the same number, and
the store's keys under it are new. The numbers differ only if some gave up before others came. So a
process that waits long, or gives up, publishes which world it wants and its attempt. A process that
fails continues from the highest number that it reads, and retries at once if the others had given
up before it came. Ranks with a secret find the leader of their host without a number while it waits
for them; then only leaders count attempts in the store. The others count them in memory, because
each may lead a host in the next world.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn, TypeVar

from sirtaki.rendezvous.host import presence
from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.threads import begin
from sirtaki.rendezvous.words import write_numbers
from sirtaki.rendezvous.world.join import JoinSettings

T = TypeVar("T")

# A process that has waited for this share of its time publishes its wish.
_PATIENCE = 0.25
_SAY_SECONDS = 1.0
_PROBE_SECONDS = 0.2
_PROBES_SECONDS = 1.0
_SHOWN = 100  # characters of a command
_CURE = "give all processes of a world the same members (init(comm=...)) and the same SIRTAKI_EPOCH"


class _Wish(NamedTuple):
    """A process's wish: the world, the attempt, and since when (time.time())."""

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

    advice: what a user can do if some do not come, "" for nothing special. job: the name of its
    ranks' records. directed: whether the members are told which world to form, as by the driver of
    an elastic job. Then all want the same world, an earlier process of a rank may still live, and a
    published wish would mislead members of later worlds. `follows`: whether another process had
    this one's place at this store before.
    """

    def __init__(
        self, store: Store, advice: str = "", job: str = "", directed: bool = False
    ) -> None:
        self._store = store
        self._advice = advice
        self._job = job
        self._directed = directed
        self._is_alone = False
        self.follows = False
        self._made: Counter[str] = Counter()
        self._has_spoken = False

    def meet(self, settings: JoinSettings, join: Callable[[JoinSettings, str], T]) -> T:
        """Meet the other members; each of them calls it.

        join: meets the others within the remaining time, under a prefix of the store's keys that no
        other attempt uses. Raises the errors of `join`, with the others' wishes added; ValueError
        if these contradict this process's, or another living process is this member.
        """
        wanted, name = settings.wanted, settings.wanted.name
        if self._directed:
            self._made[name] += 1
            return join(settings, f"world/{name}/{self._made[name]}")
        deadline = time.monotonic() + settings.timeout
        own = wanted.ids[settings.topology.rank]
        who = f"launched rank {own} ({settings.hostname})"
        if not self._is_alone:
            self._require_alone(own, settings.hostname)
            self._is_alone = True
        topology = settings.topology
        leads = topology.local_rank == 0 and topology.local_size != topology.size
        counts = leads or not settings.secret
        if settings.secret:
            settings = settings._replace(place=f"world/{name}")
        while True:
            if counts:
                number = self._next(name, own)
            else:
                number = 0
                self._made[name] += 1
            wish = _Wish(who, wanted.epoch, write_numbers(wanted.ids), number, time.time())
            try:
                with self._speaking(own, wish, _PATIENCE * settings.timeout):
                    return join(settings, f"world/{name}/{number}")
            except (TimeoutError, ConnectionError) as error:
                reached = self._say(own, wish._replace(attempt=number + 1, since=time.time()))
                others = self._heard(wanted.ids, own) if reached else []
                same = [other for other in others if not other.contradicts(wish)]
                self._made[name] = max([self._made[name], *(other.attempt - 1 for other in same)])
                is_late = any(o.attempt > number and o.since < wish.since for o in same)
                left = deadline - time.monotonic()
                if not is_late or left <= 0:
                    self._raise(error, wish, own, others, is_late)
                settings = settings._replace(timeout=left)

    def _require_alone(self, own: int, hostname: str) -> None:
        """Raise ValueError if another living process is this member."""
        other = presence.other_process(self._job, own) if self._job else None
        if other is not None:
            raise ValueError(
                f"launched rank {own} ({hostname}): another process is rank {other.rank} of this "
                f"job, and lives: process {other.pid}, {' '.join(other.command)[:_SHOWN]!r}. What "
                "a rank starts inherits its environment: a program that is to be no rank must not "
                "call init(), or gets its environment without HOROVOD_* and SIRTAKI_*; guard a "
                "script whose workers are spawned with `if __name__ == '__main__':`"
            )

    def _next(self, name: str, own: int) -> int:
        """Count one more attempt of this member."""
        key = f"made/{name}/{own}"
        made = int(self._store.peek(key) or 0)
        self.follows |= made > self._made[name]
        self._made[name] = max(made, self._made[name]) + 1
        self._store.set(key, str(self._made[name]).encode())
        return self._made[name]

    @contextlib.contextmanager
    def _speaking(self, own: int, wish: _Wish, patience: float) -> Iterator[None]:
        """Publish the wish if the attempt takes long; withdraw it after success."""
        timer = threading.Timer(patience, self._say, (own, wish))
        # Without a thread the wish is published only when this process gives up.
        with contextlib.suppress(OSError):
            begin(timer)
        try:
            yield
        finally:
            timer.cancel()
            if timer.ident is not None:
                timer.join()
        if self._has_spoken:
            self._say(own, None)

    def _say(self, own: int, wish: _Wish | None) -> bool:
        """Publish a wish, or withdraw it; return whether the store took it."""
        self._has_spoken = wish is not None
        text = json.dumps(wish._asdict() if wish else {})
        try:
            self._store.set(f"wish/{own}", text.encode(), _SAY_SECONDS)
        except OSError:
            return False
        return True

    def _heard(self, ids: Sequence[int], own: int) -> list[_Wish]:
        """Return the wishes of other members, as many as time permits."""
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
        """Raise a failure, with the others' wishes."""
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
