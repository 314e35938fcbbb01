"""Determines where the ranks of a job meet, for all ways to start them.

A launcher serves a store and passes on its address. Without a launcher rank 0 serves one, and the
other ranks find it by a name, a port or a folder that all of them know.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sirtaki.rendezvous.files.private_folder import in_home
from sirtaki.rendezvous.host.presence import stat_of
from sirtaki.rendezvous.network import interfaces as network
from sirtaki.rendezvous.network import local_socket, tcp_socket
from sirtaki.rendezvous.stores import tcp_store, unix_store
from sirtaki.rendezvous.stores.file_store import FileStore
from sirtaki.rendezvous.stores.store import Store, open_store
from sirtaki.rendezvous.stores.store_server import StoreServer
from sirtaki.rendezvous.stores.tcp_store import TcpStore, TcpStoreServer
from sirtaki.rendezvous.stores.unix_store import UnixStoreServer
from sirtaki.rendezvous.trust import digests
from sirtaki.rendezvous.trust.auth import SECRET_BYTES, repr_without
from sirtaki.rendezvous.trust.secret import HOW_TO_MAKE, read_secret
from sirtaki.rendezvous.world.attempts import Attempts
from sirtaki.schedulers.start import JOB, Start

# Rank 0 uses the first free one of this many ports after MASTER_PORT, which is torch's own.
_PORTS = 16
_NOTICE = "rank 0"
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5
_LAST_PORT = (1 << 16) - 1
_CURE = (
    "set SIRTAKI_RENDEZVOUS=file:/folder, a folder of this job alone on a file system that all "
    "hosts share"
)


class Meeting:
    """A store, its secret if it has one, and the resources that rank 0 holds for the others.

    advice: what a user can do if some ranks do not come here, "" for nothing special.
    attempts: those of this process here, None if only one world ever meets. taken_now: false for
    one world of many, which may never use much memory.
    """

    def __init__(
        self,
        store: Store,
        secret: bytes | None = None,
        server: StoreServer | None = None,
        notice: FileStore | None = None,
        advice: str = "",
        taken_now: bool = True,
    ) -> None:
        self.store = store
        self.secret = secret
        self.server = server
        self.notice = notice
        self.discards_folder = False
        self.advice = advice
        self.attempts: Attempts | None = None
        self.taken_now = taken_now

    def close(self) -> None:
        """End the meeting; without effect on ranks that have met."""
        self.store.close()
        if self.notice is not None:
            self.notice.remove(_NOTICE)
            if self.discards_folder:
                with contextlib.suppress(OSError):
                    self.notice.folder.rmdir()
        if self.server is not None:
            self.server.close()


class MeetingPlace(NamedTuple):
    """A rank's information about where to meet.

    start: how it was started. rendezvous: an address, "" to derive one from `start`. secret_file:
    path of the job's secret, "" for none. interfaces: those that rank 0 may use, default all. home:
    the folder in which ranks meet if they share nothing else. tls: whether to encrypt. timeout:
    seconds. secret: the secret itself, if it is known.
    """

    start: Start
    rendezvous: str = ""
    secret_file: str = ""
    interfaces: Sequence[str] = ()
    home: str = "~/.sirtaki/jobs"
    tls: bool = False
    timeout: float = 30.0
    secret: bytes | None = None

    def __repr__(self) -> str:
        return repr_without(self, "secret")


def meet(place: MeetingPlace) -> Meeting:
    """Open the store where all ranks of this start meet; every rank calls it.

    Raises ValueError if the ranks have no way to find each other, PermissionError if this rank
    cannot read the secret, otherwise as stores do.
    """
    start = place.start
    if place.rendezvous.startswith(unix_store.SCHEME):
        # Both sides see the other's user, so no secret is needed.
        return Meeting(open_store(place.rendezvous, place.timeout))
    if not place.rendezvous and start.topology.local_size == start.topology.size:
        return _meet_on_host(place)
    secret = _read_secret(place)
    if place.rendezvous.startswith("file:"):
        return _meet_in_folder(place, place.rendezvous, secret)
    if place.rendezvous:
        return Meeting(open_store(place.rendezvous, place.timeout, secret), secret)
    if start.master:
        return _meet_at_port(place, secret)
    if not start.job:
        raise ValueError(
            f"{start.by} does not give the ranks a name in common under which they can find each "
            f"other: give them one (mpiexec -genv {JOB} NAME), which no other start has, or {_CURE}"
        )
    folder = (
        in_home(place.home, "SIRTAKI_SHARED_DIR") / digests.sha256(start.job.encode()).hex()[:32]
    )
    met = _meet_in_folder(place, f"file:{folder}", secret)
    met.discards_folder = True
    return met


def _read_secret(place: MeetingPlace) -> bytes | None:
    if place.secret is not None or not place.secret_file:
        return place.secret
    try:
        return read_secret(place.secret_file)
    except PermissionError as error:
        rank = place.start.topology.rank
        raise PermissionError(f"rank {rank} ({socket.gethostname()}): {error}") from error


def _meet_on_host(place: MeetingPlace) -> Meeting:
    """Meet at an abstract Unix socket with a name that the ranks of this start know."""
    start = place.start
    job = start.job or ancestor(start)
    digest = digests.sha256(f"{os.geteuid()} {job}".encode()).hex()[:32]
    name = f"@sirtaki-{digest}"
    server = None
    advice = "" if start.job else _advice(start)
    if start.topology.rank == 0:
        try:
            server = UnixStoreServer(name)
        except OSError as error:
            raise ValueError(_taken(name, place)) from error
        server.start()
    try:
        store = open_store(f"unix:{name}", place.timeout, patient=True)
    except PermissionError as error:
        raise ValueError(_taken(name, place)) from error
    except (ConnectionError, TimeoutError) as error:
        raise TimeoutError(
            f"rank {start.topology.rank} ({socket.gethostname()}): rank 0 of this start "
            f"({start.by}) did not come to {name} within {place.timeout:g} s; "
            f"{advice or 'look for its own error'}"
        ) from error
    return Meeting(store, server=server, advice=advice)


def _advice(start: Start) -> str:
    return (
        f"{start.by} gives the ranks no name in common, so they meet under that of the process "
        f"that started them all; where that fails, {_CURE}"
    )


def _taken(name: str, place: MeetingPlace) -> str:
    """Return a message about the process that occupies the meeting place."""
    user = local_socket.listening_user(name)
    start = place.start
    if user == os.geteuid():
        return f"another rank 0 of the same start ({start.by}) is here: it listens on {name}"
    who = "a process that does not answer" if user is None else f"the user with the id {user}"
    return (
        f"rank {start.topology.rank} ({socket.gethostname()}): {who} holds the place where the "
        f"ranks of this start ({start.by}) would meet, {name}; {_CURE}"
    )


def _meet_at_port(place: MeetingPlace, secret: bytes | None) -> Meeting:
    """Meet at one of the ports after MASTER_PORT on rank 0's host."""
    ((host, port),) = tcp_socket.parse_endpoints(place.start.master)
    if secret is None:
        raise ValueError(
            f"the ranks meet over the network, at {place.start.master}, which needs a secret: "
            f"{HOW_TO_MAKE}, give it to all ranks and name the file in SIRTAKI_SECRET_FILE"
        )
    ports = range(port + 1, min(port + _PORTS, _LAST_PORT) + 1)
    if place.start.topology.rank == 0:
        deadline = time.monotonic() + place.timeout
        addresses = network.candidates([(host, port)], place.interfaces, deadline)
        server = _serve_at_one_of(ports, addresses, secret, place.tls)
        server.start()
        return Meeting(open_store(server.address, place.timeout, secret), secret, server)
    where = ";".join(tcp_socket.format_endpoints([host], each) for each in ports)
    scheme = tcp_store.TLS_SCHEME if place.tls else tcp_store.SCHEME
    return Meeting(open_store(scheme + where, place.timeout, secret, patient=True), secret)


def _serve_at_one_of(
    ports: range, addresses: Sequence[str], secret: bytes, tls: bool
) -> TcpStoreServer:
    failure = OSError("there is no port after MASTER_PORT")
    for port in ports:
        try:
            return TcpStoreServer(addresses, secret, port, tls=tls)
        except OSError as error:
            failure = error
    raise OSError(f"no free port from {ports[0]} to {ports[-1]}: {failure}") if ports else failure


def _meet_in_folder(place: MeetingPlace, address: str, secret: bytes | None) -> Meeting:
    """Meet at a store whose address and secret rank 0 leaves in a folder."""
    folder = FileStore(address)
    deadline = time.monotonic() + place.timeout
    if place.start.topology.rank == 0:
        secret = secret or os.urandom(SECRET_BYTES)
        server = TcpStoreServer(network.candidates((), place.interfaces), secret, tls=place.tls)
        server.start()
        notice = {"address": server.address, "secret": secret.hex()}
        folder.set(_NOTICE, json.dumps(notice).encode())
        return Meeting(open_store(server.address, place.timeout, secret), secret, server, folder)
    pause = _FIRST_PAUSE_SECONDS
    while True:
        left = max(0.0, deadline - time.monotonic())
        where, secret = _parse_notice(folder.get(_NOTICE, left))
        store = TcpStore(where, place.timeout, secret)
        try:
            store.reach(deadline)
            return Meeting(store, secret)
        except OSError as error:
            # The notice may be an earlier job's, which ours will replace.
            if time.monotonic() + pause >= deadline:
                raise ConnectionError(
                    f"rank 0, or an earlier job, left an address in {folder.folder}: {error}"
                ) from error
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _parse_notice(data: bytes) -> tuple[str, bytes]:
    """Parse the address and secret of rank 0's store from its notice. Raises ValueError."""
    try:
        notice = json.loads(data)
        return str(notice["address"]), bytes.fromhex(notice["secret"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"what rank 0 left in the folder makes no sense: {error!r}") from error


def ancestor(start: Start) -> str:
    """Return a name of the process that the ranks of a host have in common.

    This is the first ancestor without the rank's own variable: a wrapper script that the starter
    started as a rank has it too. Raises ValueError when that process is not visible.
    """
    if not Path("/proc/self/stat").exists():
        raise ValueError(
            f"rank {start.topology.rank}: /proc is not mounted, so what started the ranks "
            f"({start.by}) cannot be seen: mount it (mount -t proc proc /proc), or set "
            "SIRTAKI_RENDEZVOUS=file:/folder, a folder of this job alone"
        )
    pid = os.getppid()
    while _has(pid, start.mark):
        pid = stat_of(pid).parent
    started = stat_of(pid).started
    if not started:
        raise ValueError(
            f"rank {start.topology.rank}: what started the ranks ({start.by}) is in another PID "
            "namespace: set SIRTAKI_RENDEZVOUS=file:/folder, a folder of this job alone"
        )
    return f"started by {pid} at {started}"


def _has(pid: int, mark: str) -> bool:
    """Return whether a process was started with this variable."""
    try:
        return bool(mark) and mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(
            b"\0"
        )
    except OSError:
        # The process is another user's, such as a scheduler's starter, or in another namespace.
        return False
