"""What connects this rank to the others of its world, from one engine to the next."""

from __future__ import annotations

import hmac
import os
import time
from dataclasses import dataclass, replace

from sirtaki import _core
from sirtaki.rendezvous.heaps import HeapMemory
from sirtaki.rendezvous.join import Joined, Settings, join_world
from sirtaki.rendezvous.meeting import Meeting
from sirtaki.rendezvous.started_by import Start
from sirtaki.rendezvous.topology import Topology

# What is left of the start timeout where going on with kept links has taken nearly all of it.
_LEAST_SECONDS = 1.0
_ENGINE_LABEL = b"sirtaki key of an engine's objects\0"


@dataclass(frozen=True)
class Plan:
    """What a rank wants to be connected to, and how: links serve again where this is the same.

    settings, topology: as `join_world` takes them. start, rendezvous: where the ranks meet. group:
    the starter's ranks that form the world, "" for all.
    """

    settings: Settings
    topology: Topology
    start: Start
    rendezvous: str
    group: str

    def serves(self, other: Plan) -> bool:
        """Tell whether links that were made for this serve the other; its time is its own."""
        return self == replace(other, settings=replace(other.settings, timeout=self.timeout))

    @property
    def timeout(self) -> float:
        """The seconds for everything."""
        return self.settings.timeout


class Links:
    """The connections of a world, which outlive the engines that use them, one after the other.

    Args:
        plan: What they were made for.
        joined: What `join_world` returned; its descriptors belong to the links.
    """

    def __init__(self, plan: Plan, joined: Joined) -> None:
        self.joined = joined
        self._plan = plan
        self._process = os.getpid()
        self._cores = os.sched_getaffinity(0)
        self._heap = own_heap()
        self._generation = 1
        self.core = _core.Links(
            rank=joined.topology.rank,
            host_of=joined.host_of,
            memfd=joined.memfd,
            bells=joined.bells,
            local_links=joined.local_links,
            host_links=joined.host_links,
            connect=joined.connect,
            why_broken=joined.why_broken,
            patience=plan.timeout,
            silent=plan.settings.silent_seconds,
            heaps=[(heap.descriptor, heap.bytes) for heap in joined.heaps],
        )

    @property
    def object_key(self) -> bytes | None:
        """The key that vouches for objects between hosts: another one for every engine."""
        if self.joined.object_key is None:
            return None
        label = _ENGINE_LABEL + self._generation.to_bytes(4, "big")
        return hmac.digest(self.joined.object_key, label, "sha256")

    def renew(self, plan: Plan) -> bool:
        """Go on with another engine, if all ranks do; the last one must have ended well.

        Args:
            plan: What is wanted now.

        Returns:
            False where some rank wants something else, or has lost its links: then these are
            closed, on all ranks.

        Raises:
            TimeoutError: A rank did not come in time; the message names it, and they are closed.
        """
        if os.getpid() != self._process:
            return False  # what a forked child has of them is its parent's
        if not (
            self._plan.serves(plan)
            and self._cores == os.sched_getaffinity(0)
            and self._heap == own_heap()
        ):
            self.close()
            return False
        try:
            generation, missing = self.core.renew(plan.timeout)
        except BaseException:
            self.close()
            raise
        if missing:
            self.close()
            raise TimeoutError(self._describe(missing, plan.timeout))
        if generation == 0:
            self.close()
            return False
        self._generation = generation
        self.joined.begin(generation)
        return True

    def _describe(self, missing: list[int], timeout: float) -> str:
        joined = self.joined
        own = joined.topology.rank
        late = ", ".join(f"rank {rank} ({joined.hostnames[rank]})" for rank in missing)
        return (
            f"rank {own} ({joined.hostnames[own]}): {late} did not call init() again within "
            f"{timeout:g} s"
        )

    def close(self) -> None:
        """Hang up on all other ranks; in a forked child without effect."""
        if os.getpid() != self._process:
            return
        self.core.close()
        self.joined.close()


def own_heap() -> HeapMemory:
    """Return this process's shared heap; its descriptor stays the heap's."""
    return HeapMemory(*_core.heap_memory())


def connect(plan: Plan, kept: Links | None, meeting: Meeting | None, prefix: str) -> Links:
    """Go on with the links that are kept, or meet all ranks anew; every rank calls it.

    Args:
        plan: What is wanted.
        kept: Of the last world, if it ended well; closed where they do not serve.
        meeting: Where the ranks meet, needed unless it is one rank alone.
        prefix: Of the keys there, different for every world.

    Raises:
        ValueError: Ranks contradict each other or run different versions.
        TimeoutError: A rank did not come within the start timeout.
        ConnectionError: A rank died while joining, or a host cannot be reached.
    """
    start = time.monotonic()
    if kept is not None and kept.renew(plan):
        return kept
    left = max(_LEAST_SECONDS, plan.timeout - (time.monotonic() - start))
    settings = replace(plan.settings, timeout=left)
    store = meeting.store if meeting else None
    try:
        joined = join_world(
            settings,
            plan.topology,
            store,
            prefix,
            _core.region_bytes,
            _core.linked_hosts,
            own_heap(),
        )
    except TimeoutError as error:
        if meeting and meeting.advice:
            raise TimeoutError(f"{error}; {meeting.advice}") from error
        raise
    try:
        return Links(plan, joined)
    except BaseException:
        joined.close()
        raise
