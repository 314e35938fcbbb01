"""How long a host that failed takes no new process."""

from __future__ import annotations


class Cooldowns:
    """Hosts that failed: each waits, twice as long after each failure. times: first, most."""

    def __init__(self, times: tuple[float, float]) -> None:
        self._first, self._most = times
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def failed(self, host: str, now: float) -> float:
        """Note a failure; returns for how many seconds the host takes no new process."""
        count = self._failures[host] = self._failures.get(host, 0) + 1
        seconds = min(self._most, self._first * 2.0 ** min(count - 1, 32))
        self._until[host] = max(self._until.get(host, 0.0), now + seconds)
        return seconds

    def rest(self, host: str, now: float) -> None:
        """Let a host that is about to go take no new process for the longest time; no failure."""
        self._until[host] = now + self._most

    def cools(self, host: str, now: float) -> bool:
        """Whether a host takes no new process now."""
        return now < self._until.get(host, 0.0)

    @property
    def next_end(self) -> float | None:
        """When the next host takes processes again, None where none waits.

        That may be in the past: until `look`, somebody still has to act on it.
        """
        return min(self._until.values(), default=None)

    def look(self, now: float) -> None:
        """Forget the hosts that have waited long enough: they can be given processes now."""
        self._until = {host: until for host, until in self._until.items() if until > now}
