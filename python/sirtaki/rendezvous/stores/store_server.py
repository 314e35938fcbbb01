"""The server side of a store, for any kind of socket."""

from __future__ import annotations

import collections
import contextlib
import re
import socket
from collections.abc import Callable, Sequence

from sirtaki.rendezvous.network.serving import Peer, RejectionLog, Server
from sirtaki.rendezvous.stores import wire
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.world.membership import Membership

_WORLD = re.compile(r"(world/([0-9]+/[0-9a-f]+)/([0-9]+))/.*")


class StoreServer(Server):
    """A store served from a thread, with one request per connection: a waiting `get` blocks nobody.

    address: the one for clients. The other arguments are those of `Server`. It answers once it is
    started.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        address: str,
        guard: Callable[[], auth.Listener] | None = None,
        rejections: RejectionLog | None = None,
        tls: bool = False,
    ) -> None:
        super().__init__(listeners, "the rendezvous store", guard, rejections, tls)
        self.address = address
        self._values: dict[str, bytes] = {}
        self._waiting: dict[str, list[Peer]] = {}
        self._asked: collections.Counter[str] = collections.Counter()
        self._latest: dict[str, str] = {}
        # Called, in the thread, with each value that a client sets.
        self.on_set: Callable[[str, bytes], None] | None = None
        self._abandoned: set[str] = set()

    def forms_world(self, wanted: Membership) -> bool:
        """Return whether some members have come to form a world, and others not yet.

        On one host each member asks for the leader's address here. On several hosts the leaders
        ask here, and the last one sets the world.
        """
        world = self._latest.get(wanted.name, "")
        leader = f"{world}/leader"
        here = leader in self._values and self._asked[leader] >= wanted.size - 1
        return bool(world) and not here and f"{world}/world" not in self._values

    def joined(self, wanted: Membership) -> int:
        """Count the members that have come to form a world; on several hosts, the complete hosts.

        On one host the leader sets its address here, and the others ask for it. On several hosts
        the leaders set their host's ranks, and rank 0 asks for them when its own are complete.
        """
        world = self._latest.get(wanted.name, "")
        leader, hosts = f"{world}/leader", f"{world}/host/"
        here = (leader in self._values) + self._asked[leader]
        come = sum(key.startswith(hosts) for key in list(self._values))
        return here or come + any(key.startswith(hosts) for key in list(self._asked))

    def peek(self, key: str) -> bytes | None:
        """Return the value of `key`, None if it is not set."""
        return self._values.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Set a value for the clients; only before the server is started."""
        self._values[key] = value

    def discard(self, key: str) -> None:
        """Remove a value; only in `on_set`."""
        self._values.pop(key, None)

    def abandon(self, prefix: str) -> None:
        """Remove keys with a prefix, and hang up on clients that wait for them, now and later.

        Only in `on_set`.
        """
        self._abandoned.add(prefix)
        self._values = {k: value for k, value in self._values.items() if not k.startswith(prefix)}
        for key in [key for key in self._waiting if key.startswith(prefix)]:
            for peer in list(self._waiting.get(key, ())):
                self._drop(peer)

    def handle(self, peer: Peer) -> bool:
        """See `Server.handle`."""
        if peer.context is not None:
            # A client sends a single request, so more data is an error.
            raise ValueError("more than one request arrived")
        request = wire.parse_request(peer.incoming, peer.seal)
        if request is None:
            return True
        peer.incoming = bytearray()
        self._note(request)
        if request.kind == wire.SET:
            self._set(request.key, request.value)
            if self.on_set is not None:
                with self._lasting:
                    self.on_set(request.key, request.value)
            self.answer(peer, wire.pack_answer(b"", peer.seal))
        elif request.kind == wire.PEEK:
            self.answer(peer, wire.pack_answer(self._values.get(request.key, b""), peer.seal))
        elif request.key in self._values:
            self.answer(peer, wire.pack_answer(self._values[request.key], peer.seal))
        elif request.key.startswith(tuple(self._abandoned)):
            return False
        else:
            peer.context = request.key
            self._waiting.setdefault(request.key, []).append(peer)
        return True

    def forget(self, peer: Peer) -> None:
        """See `Server.forget`."""
        if not isinstance(peer.context, str):
            return
        waiting = self._waiting[peer.context]
        waiting.remove(peer)
        if not waiting:
            del self._waiting[peer.context]

    def _note(self, request: wire.StoreRequest) -> None:
        found = _WORLD.fullmatch(request.key)
        if found is None:
            return
        world, name, number = found.groups()
        if self._latest.setdefault(name, world) != world:
            # A member that starts a meeting has left earlier worlds; some may still be in the last.
            self._keep(name, int(number) - 1)
        self._latest[name] = world
        if request.kind == wire.GET:
            self._asked[request.key] += 1

    def _keep(self, name: str, first: int) -> None:
        """Remove the values of a world's members from meetings before number `first`."""
        for kept in (self._values, self._asked):
            for key in list(kept):
                found = _WORLD.fullmatch(key)
                if found is not None and found[2] == name and int(found[3]) < first:
                    del kept[key]

    def _set(self, key: str, value: bytes) -> None:
        self._values[key] = value
        for peer in self._waiting.pop(key, []):
            peer.context = None
            # The selector notices a client that has gone.
            with contextlib.suppress(OSError):
                self.answer(peer, wire.pack_answer(value, peer.seal))
