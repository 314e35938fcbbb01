"""A meeting place of ranks that the user's own program starts."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from horovod.runner.common.util.hosts import SlotInfo
from sirtaki.rendezvous.network.interfaces import candidates
from sirtaki.rendezvous.stores.store import LAUNCHED_HOSTS_KEY
from sirtaki.rendezvous.stores.tcp_store import TcpStoreServer
from sirtaki.rendezvous.trust.secret import HOW_TO_MAKE, read_secret


class RendezvousServer:
    """A store for ranks started with HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT.

    It accepts only clients with the secret in the file named by SIRTAKI_SECRET_FILE, here and where
    they run.
    """

    def __init__(self, verbose: int = 0) -> None:
        self._server: TcpStoreServer | None = None

    def start(self) -> int:
        """Listen on this host's addresses; return the port. Raises ValueError, OSError."""
        path = os.environ.get("SIRTAKI_SECRET_FILE", "")
        if not path:
            raise ValueError(
                "ranks that meet at a RendezvousServer need a secret in common: "
                f"{HOW_TO_MAKE}, give it to all hosts and name the file in SIRTAKI_SECRET_FILE"
            )
        addresses = list(dict.fromkeys(["127.0.0.1", *candidates()]))
        self._server = TcpStoreServer(addresses, read_secret(path))
        self._server.start()
        return self._server.port

    def init(self, host_alloc_plan: Sequence[SlotInfo]) -> int:
        """Set the names of the ranks' hosts, for messages; return the port."""
        if self._server is None:
            raise RuntimeError("start() the server first")
        hosts = [slot.hostname for slot in host_alloc_plan]
        self._server.put(LAUNCHED_HOSTS_KEY, json.dumps(hosts).encode())
        return self._server.port

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None
