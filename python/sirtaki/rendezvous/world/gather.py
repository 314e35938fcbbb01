"""Gathers every rank's record on rank 0's host, and distributes the resulting world to all ranks.

On a host the rank with local rank 0 acts for all, under the number of the lowest rank there. Rank
0, which gathers the world, stops waiting before the others, and the leaders of hosts stop before
rank 0. So the process that knows which rank is missing fails first, and all get its message.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from sirtaki.rendezvous.host import meeting as local_meeting
from sirtaki.rendezvous.host.meeting import Gathering, HostMeeting
from sirtaki.rendezvous.stores.store import LAUNCHED_HOSTS_KEY, Store
from sirtaki.rendezvous.world import records
from sirtaki.rendezvous.world.records import RankRecord, WorldRecord

_LEADERS_SHARE = 0.8
_RANK_0_SHARE = 0.9
_LAST_WORDS_SECONDS = 1.0
_PROBE_SECONDS = 0.05
_PROBES_SECONDS = 1.0
_NUMBER_BYTES = 16


class Exchange:
    """Exchanges this rank's record for those of all ranks; every rank makes one.

    prefix: of the store's keys. place: the name of the meeting of a host's ranks. own: this rank's
    record. secret: the job's, if it has one. timeout: seconds for everything, up to `deadline`
    (time.monotonic()).
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        place: str,
        own: RankRecord,
        secret: bytes | None,
        timeout: float,
        deadline: float,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._own = own
        self._meeting = HostMeeting(store, f"{place}/host/{own.host}", secret)
        self._timeout = timeout
        self._start = deadline - timeout
        self._lowest = own.rank

    def run(self) -> WorldRecord:
        """Return all ranks, in order.

        Raises ValueError, TimeoutError, ConnectionError; all present ranks raise the same.
        """
        return records.parse(self._follow() if self._own.local_rank > 0 else self._lead())

    def _lead(self) -> bytes:
        """Exchange as the leader of a host, or alone if it is unknown which ranks share a host."""
        try:
            gathering = Gathering(self._meeting, self._own.local_size > 1)
        except ValueError as error:
            self._publish_failure(error)
            raise
        with contextlib.closing(gathering):
            try:
                world = self._exchange_for(self._gather_host(gathering))
            except (OSError, ValueError) as error:
                self._publish_failure(error)
                gathering.tell(records.pack_failure(error), self._last_moment())
                raise
            gathering.tell(world, self._last_moment())
        return world

    def _exchange_for(self, here: list[RankRecord]) -> bytes:
        """Publish the records of this host's ranks and return the world."""
        # Local ranks may have another order than ranks: some mpiruns number them so.
        if self._lowest == 0:
            return self._make_world(here)
        self._tell(f"host/{self._lowest}", records.pack_ranks(here))
        return self._world_bytes()

    def _follow(self) -> bytes:
        """Exchange through this host's leader."""
        own = self._own
        who = f"rank {own.rank} (local rank {own.local_rank} on {own.name})"
        deadline = self._deadline(1.0)
        try:
            while True:
                try:
                    with self._meeting.connect(deadline) as sock:
                        local_meeting.send(sock, records.pack_ranks([own]), deadline)
                        return local_meeting.receive(sock, deadline)
                except (ConnectionResetError, BrokenPipeError):
                    # This was the leader of an earlier world: wait for the next one.
                    time.sleep(local_meeting.RETRY_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(
                f"{who}: the rank with local rank 0 on this host did not answer within "
                f"{self._timeout:g} s ({error}). The launcher says that {own.local_size} ranks "
                "share this host; do they share its user and its network namespace?"
            ) from error
        except ConnectionError as error:
            raise ConnectionError(
                f"{who}: the rank with local rank 0 on this host gave up ({error})"
            ) from error

    def _gather_host(self, gathering: Gathering) -> list[RankRecord]:
        """Return the records of this host's ranks, in order."""
        own = self._own
        found = {0: own}
        while len(found) < own.local_size:
            try:
                _, message = gathering.next(self._deadline(_LEADERS_SHARE))
            except TimeoutError:
                missing = sorted(set(range(own.local_size)) - set(found))
                raise TimeoutError(
                    f"rank {own.rank}: local ranks {missing} of the {own.local_size} that the "
                    f"launcher started on {own.name} did not come in time"
                ) from None
            for record in records.parse(message).ranks:
                _require_neighbour(own, record, found)
                found[record.local_rank] = record
                self._lowest = min(self._lowest, record.rank)
        return sorted(found.values(), key=lambda record: record.rank)

    def _make_world(self, here: list[RankRecord]) -> bytes:
        """Gather the records of the other hosts, on the host of rank 0, and publish the world."""
        try:
            found = {record.rank: record for record in here}
            while len(found) < self._own.size:
                # The lowest missing rank leads its host, because all ranks below it are known.
                leader = min(set(range(self._own.size)) - set(found))
                for record in records.parse(self._host_bytes(leader, set(found))).ranks:
                    _require_agreement(self._own, record, found)
                    found[record.rank] = record
            world = WorldRecord(
                [found[rank] for rank in sorted(found)],
                os.urandom(_NUMBER_BYTES),
            )
            message = records.pack_world(world)
            self._tell("world", message)
        except (OSError, ValueError) as error:
            self._publish_world_failure(error)
            raise
        return message

    def _host_bytes(self, leader: int, known: set[int]) -> bytes:
        deadline = self._deadline(_RANK_0_SHARE)
        try:
            left = max(0.0, deadline - time.monotonic())
            return self._store.get(f"{self._prefix}/host/{leader}", left)
        except TimeoutError:
            missing = self._missing(leader, known)
        raise TimeoutError(
            f"rank 0 ({self._own.name}): {self._describe(missing)} did not come within "
            f"{self._timeout:g} s"
        )

    def _missing(self, leader: int, known: set[int]) -> list[int]:
        """Return the missing ranks: `leader`, and those that a short probe does not find."""
        missing = set(range(self._own.size)) - known
        ends = time.monotonic() + _PROBES_SECONDS
        for rank in sorted(missing - {leader}):
            if rank in missing and time.monotonic() < ends:
                with contextlib.suppress(OSError, ValueError):
                    message = self._store.get(f"{self._prefix}/host/{rank}", _PROBE_SECONDS)
                    missing -= {record.rank for record in records.parse(message).ranks}
        return sorted(missing)

    def _describe(self, ranks: list[int]) -> str:
        """Format ranks, with their hosts if the launcher has published them."""
        names: list[str] = []
        with contextlib.suppress(OSError, ValueError):
            names = json.loads(self._store.get(LAUNCHED_HOSTS_KEY, _PROBE_SECONDS))
        if len(names) < self._own.size:
            return f"ranks {ranks} of {self._own.size}"
        hosts = dict.fromkeys(names[rank] for rank in ranks)
        told = [f"{host} (ranks {[r for r in ranks if names[r] == host]})" for host in hosts]
        return f"host{'s' * (len(told) > 1)} {', '.join(told)}"

    def _world_bytes(self) -> bytes:
        try:
            left = max(0.0, self._deadline(1.0) - time.monotonic())
            return self._store.get(f"{self._prefix}/world", left)
        except TimeoutError as error:
            raise TimeoutError(
                f"rank {self._own.rank} ({self._own.name}): rank 0 did not bring the world "
                f"together within {self._timeout:g} s ({error})"
            ) from error

    def _publish_failure(self, error: Exception) -> None:
        """Publish why there will be no world: to rank 0, or from rank 0's host to all."""
        if self._lowest == 0:
            self._publish_world_failure(error)
            return
        with contextlib.suppress(OSError):
            self._tell(f"host/{self._lowest}", records.pack_failure(error))

    def _publish_world_failure(self, error: Exception) -> None:
        with contextlib.suppress(OSError):
            self._tell("world", records.pack_failure(error))

    def _tell(self, key: str, value: bytes) -> None:
        left = self._last_moment() - time.monotonic()
        self._store.set(f"{self._prefix}/{key}", value, left)

    def _last_moment(self) -> float:
        return max(self._deadline(1.0), time.monotonic() + _LAST_WORDS_SECONDS)

    def _deadline(self, share: float) -> float:
        return self._start + share * self._timeout


def _require_neighbour(own: RankRecord, record: RankRecord, found: dict[int, RankRecord]) -> None:
    """Raise ValueError unless a rank that came to us matches the launcher's data of this host."""
    them = f"rank {record.rank} (local rank {record.local_rank} of {record.local_size})"
    us = f"rank {own.rank} (local rank 0 of {own.local_size})"
    if record.local_size != own.local_size or not 0 < record.local_rank < own.local_size:
        raise ValueError(f"host {own.name}: {them} contradicts {us}")
    if record.local_rank in found:
        raise ValueError(
            f"host {own.name}: ranks {found[record.local_rank].rank} and {record.rank} both have "
            f"local rank {record.local_rank}"
        )
    if record.host != own.host:
        raise ValueError(
            f"host {own.name}: the launcher says that {them} and {us} share a host, but they do "
            "not share its memory"
        )


def _require_agreement(own: RankRecord, record: RankRecord, found: dict[int, RankRecord]) -> None:
    """Raise ValueError unless a rank's record is consistent with those received."""
    if record.version != own.version:
        raise ValueError(
            f"version mismatch: host {own.name} runs Sirtaki {own.version}, host {record.name} "
            f"runs {record.version}; install the same version on all hosts"
        )
    if record.size != own.size:
        raise ValueError(
            f"rank {record.rank} ({record.name}) counts {record.size} ranks, rank 0 ({own.name}) "
            f"counts {own.size}"
        )
    if record.rank in found:
        other = found[record.rank]
        raise ValueError(f"two processes are rank {record.rank}: on {other.name}, {record.name}")
    if (record.local_size == 0) != (own.local_size == 0):
        raise ValueError(
            f"rank {record.rank} ({record.name}) and rank 0 ({own.name}) were started differently: "
            "only one of them was told how many ranks share its host"
        )
