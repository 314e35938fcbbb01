"""The connections of this rank to the others of its world, from one engine to the next."""

from __future__ import annotations

import os
import time

from sirtaki import _core
from sirtaki.core.world.affinity import own_cpus
from sirtaki.rendezvous.host.joining import HeapMemory
from sirtaki.rendezvous.trust import digests
from sirtaki.rendezvous.world.join import Joined, JoinSettings, join_world
from sirtaki.rendezvous.world.start import Meeting

# Time left for the start when resuming the kept links has nearly used it up.
_LEAST_SECONDS = 1.0
_ENGINE_LABEL = b"sirtaki key of an engine's objects\0"


class Links:
    """The connections of a world, which outlive the engines that use them in turn.

    Args:
        settings: The settings of their world.
        joined: What `join_world` returned; its descriptors belong to the links.
    """

    def __init__(self, settings: JoinSettings, joined: Joined) -> None:
        self.joined = joined
        self._settings = settings
        self._process = os.getpid()
        self._cores = own_cpus()
        self._heap = own_heap()
        self._generation = 1
        self.core = _core.Links(
            rank=joined.topology.rank,
            host_of=joined.host_of,
            memfd=joined.memfd,
            event_descriptors=joined.event_descriptors,
            local_links=joined.local_links,
            host_links=joined.host_links,
            connect=joined.connect,
            why_broken=joined.why_broken,
            heaps=[(heap.descriptor, heap.bytes) for heap in joined.heaps],
        )

    @property
    def object_key(self) -> bytes | None:
        """The key that authenticates objects between hosts; each engine has its own."""
        if self.joined.object_key is None:
            return None
        label = _ENGINE_LABEL + self._generation.to_bytes(4, "big")
        return digests.keyed(self.joined.object_key, label)

    def renew(self, settings: JoinSettings) -> bool:
        """Serve another engine, if all ranks do; the last engine must have ended well.

        Args:
            settings: The settings of the new engine.

        Returns:
            False where some rank has other settings or has lost its links; all ranks then close
            theirs.

        Raises:
            TimeoutError: A rank did not join in time; the message names it. The links are closed.
        """
        if os.getpid() != self._process:
            return False  # a forked child's links belong to its parent
        if not (
            self._settings == settings._replace(timeout=self._settings.timeout)
            and self._cores == own_cpus()
            and self._heap == own_heap()
        ):
            self.close()
            return False
        try:
            generation, missing = self.core.renew(settings.timeout)
        except BaseException:
            self.close()
            raise
        if missing:
            self.close()
            raise TimeoutError(self._describe(missing, settings.timeout))
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
        """Close the connections to all other ranks; do nothing in a forked child."""
        if os.getpid() != self._process:
            return
        self.core.close()
        self.joined.close()


def own_heap() -> HeapMemory:
    """Return the memory of this process's shared arrays; the core owns its descriptor."""
    return HeapMemory(*_core.heap_memory())


def connect(settings: JoinSettings, kept: Links | None, meeting: Meeting | None) -> Links:
    """Reuse the links that are kept, or meet all ranks anew; every rank calls it.

    Args:
        settings: The settings of the world.
        kept: The links of the last world, if it ended well; closed if they do not fit this one.
        meeting: Where the ranks meet; a world of one rank needs none.

    Raises:
        ValueError: Ranks contradict each other or run different versions.
        TimeoutError: A rank did not join within the start timeout.
        ConnectionError: A rank died while joining, or a host cannot be reached.
    """
    start = time.monotonic()
    if kept is not None and kept.renew(settings):
        return kept
    left = max(_LEAST_SECONDS, settings.timeout - (time.monotonic() - start))
    hurried = settings._replace(timeout=left)
    store = meeting.store if meeting else None

    def join(settings: JoinSettings, prefix: str) -> Joined:
        functions = _core.region_bytes, _core.linked_hosts
        return join_world(settings, store, prefix, *functions, own_heap(), _core.slot_bytes)

    if meeting is None or meeting.attempts is None or settings.wanted.size == 1:
        joined = join(hurried, "world/1")
    else:
        joined = meeting.attempts.meet(hurried, join)
    try:
        return Links(settings, joined)
    except BaseException:
        joined.close()
        raise
