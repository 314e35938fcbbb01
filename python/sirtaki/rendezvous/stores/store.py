"""A key-value store through which ranks exchange addresses before they have links.

On the wire a client sends one request per connection, so that a waiting `get` disturbs nobody and
ends with its connection. Nothing is parsed before both ends have verified that the other belongs to
the same user, or knows the job's secret.
"""

from __future__ import annotations

from typing import Protocol

from sirtaki.rendezvous.stores.unix_store import SCHEME, UnixStore

# A list of each rank's host, which a launcher may set for messages about missing ranks.
LAUNCHED_HOSTS_KEY = "launch/hosts"
# With a rank's number appended: how the rank spent its time, for the launcher at the end.
TIMES_KEY = "launch/times/"


class Store(Protocol):
    """Values that ranks exchange; safe to use from several threads.

    address: of the store, for messages and for routes to it.
    """

    address: str

    def set(self, key: str, value: bytes, timeout: float | None = None) -> None:
        """Store `value` (at most 64 MiB) under `key` (at most 1 KiB), replacing an older value.

        timeout: seconds, if it may take long; default the store's own. Raises TimeoutError.
        """

    def get(self, key: str, timeout: float) -> bytes:
        """Return the value of `key`, waiting up to `timeout` seconds for it to be set.

        Raises TimeoutError naming the key, ConnectionError when the store is gone.
        """

    def peek(self, key: str) -> bytes | None:
        """Return the value of `key`, None if it is not set. Raises as `get`."""

    def close(self) -> None:
        """Release the store's resources; another call has no effect."""


def open_store(
    address: str, timeout: float, secret: bytes | None = None, patient: bool = False
) -> Store:
    """Connect to the store at `address` within `timeout` seconds.

    address: "unix:@name"; "tcp:HOST[,HOST...]:PORT", addresses or names of one server, IPv6 in
    brackets; the same with "tls:" for one that encrypts; or "file:/folder" on a file system that
    all hosts share. secret: the job's 32 bytes, needed for tcp and tls. patient: whether the server
    may not be running yet. Raises ValueError for an address of another form, otherwise as the
    stores do.
    """
    if address.startswith(SCHEME):
        return UnixStore(address, timeout, patient)
    if address.startswith(("tcp:", "tls:")):
        from sirtaki.rendezvous.stores.tcp_store import TcpStore

        if secret is None:
            raise ValueError(
                f"the rendezvous at {address} is reached over the network, which needs the job's "
                "secret: make one with 'head -c 32 /dev/urandom > FILE; chmod 600 FILE', give it "
                "to all ranks and name the file in SIRTAKI_SECRET_FILE"
            )
        return TcpStore(address, timeout, secret, patient)
    if address.startswith("file:"):
        from sirtaki.rendezvous.stores.file_store import FileStore

        return FileStore(address)
    raise ValueError(
        f"unknown rendezvous address {address!r}: expected 'unix:@name', 'tcp:HOST:PORT' or "
        "'file:/folder'"
    )
