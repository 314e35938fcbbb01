"""TLS between hosts: all works as without it, nothing is readable, nobody gets in between."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sirtaki import _core
from sirtaki.rendezvous.network.tls_relay import Relay
from sirtaki.rendezvous.stores.store import open_store
from sirtaki.rendezvous.stores.tcp_store import TcpStore, TcpStoreServer
from sirtaki.rendezvous.trust import auth, tls
from sirtaki.rendezvous.trust.certificate import make_certificate
from sirtaki.rendezvous.world.join import JoinSettings, join_world
from sirtaki.rendezvous.world.membership import Membership
from tests import needs

SECRET = bytes(range(32))
TIMEOUT = 20.0


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def server(log: list[str]) -> Iterator[TcpStoreServer]:
    with TcpStoreServer(["127.0.0.1"], SECRET, log=log.append, tls=True) as served:
        yield served


class Wiretap:
    """Passes connections on to a port and keeps what goes over them."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = port
        self.port = self._listener.getsockname()[1]
        self.heard = bytearray()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection(("127.0.0.1", self._target))
                for source, target in ((here, there), (there, here)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.heard += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


def test_values_of_any_size_travel_and_cannot_be_read(server: TcpStoreServer) -> None:
    assert server.address == f"tls:127.0.0.1:{server.port}"
    with contextlib.closing(Wiretap(server.port)) as tap:
        store = open_store(f"tls:127.0.0.1:{tap.port}", TIMEOUT, SECRET)
        for size in (0, 1, 1 << 14, (1 << 14) + 1, 5_000_000):
            value = b"secret!!" * (size // 8) + b"s" * (size % 8)
            store.set("the key", value)
            assert store.get("the key", TIMEOUT) == value
        assert len(tap.heard) > 10_000_000
        assert b"the key" not in tap.heard
        assert b"secret!!" not in tap.heard
        assert b"SIRTAKI" not in tap.heard


def test_get_waits_for_a_set(server: TcpStoreServer) -> None:
    store = TcpStore(server.address, TIMEOUT, SECRET)
    timer = threading.Timer(0.2, store.set, ("late", b"here"))
    timer.start()
    assert store.get("late", TIMEOUT) == b"here"
    timer.join()


def test_another_secret_is_refused_and_logged(server: TcpStoreServer, log: list[str]) -> None:
    with pytest.raises(auth.WrongSecretError):
        TcpStore(server.address, TIMEOUT, os.urandom(32)).get("k", 5)
    store = TcpStore(server.address, TIMEOUT, SECRET)
    store.set("k", b"v")
    assert len(log) == 1
    assert "wrong secret" in log[0]


def interception() -> tuple[socket.socket, ssl.SSLContext]:
    """A listener with a certificate of its own, as somebody in between would have."""
    _, pem = make_certificate()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    file = os.memfd_create("pem")
    os.write(file, pem)
    context.load_cert_chain(f"/proc/self/fd/{file}")
    os.close(file)
    return socket.create_server(("127.0.0.1", 0)), context


def test_somebody_in_between_is_found_out_before_we_prove_anything(server: TcpStoreServer) -> None:
    listener, context = interception()
    seen: list[bytes] = []

    def intercept() -> None:
        sock, _ = listener.accept()
        theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        theirs.check_hostname = False
        theirs.verify_mode = ssl.CERT_NONE
        with (
            context.wrap_socket(sock, server_side=True) as client,
            theirs.wrap_socket(socket.create_connection(("127.0.0.1", server.port))) as onward,
        ):
            onward.sendall(client.recv(auth.GREETING_BYTES))
            client.sendall(onward.recv(auth.ANSWER_BYTES))
            with contextlib.suppress(OSError):
                seen.append(client.recv(1 << 16))

    with listener, ThreadPoolExecutor(1) as pool:
        meddler = pool.submit(intercept)
        store = TcpStore(f"tls:127.0.0.1:{listener.getsockname()[1]}", TIMEOUT, SECRET)
        with pytest.raises(auth.WrongSecretError, match="in between"):
            store.get("k", 5)
        meddler.result()
    assert seen in ([b""], [])


@pytest.mark.parametrize("secure", [True, False])
def test_both_sides_must_agree_to_encrypt(log: list[str], secure: bool) -> None:
    with TcpStoreServer(["127.0.0.1"], SECRET, log=log.append, tls=secure) as server:
        other = server.address.replace(*(("tls", "tcp") if secure else ("tcp", "tls")))
        with pytest.raises((ConnectionError, TimeoutError)):
            TcpStore(other, 1, SECRET).set("k", b"v")
        assert server.peek("k") is None


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(min_size=5, max_size=300).filter(lambda data: data[0] != 22))
def test_garbage_is_turned_away(server: TcpStoreServer, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT) as sock:
        sock.sendall(garbage)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1 << 16):
                pass
    TcpStore(server.address, TIMEOUT, SECRET).set("k", b"v")


def test_one_who_never_shakes_hands_is_turned_away(server: TcpStoreServer, log: list[str]) -> None:
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT) as sock:
        TcpStore(server.address, TIMEOUT, SECRET).set("k", b"v")
        assert sock.recv(1) == b""
    assert "proved nothing within 3 s" in log[0]


def test_worlds_are_joined_and_their_links_carry_bytes() -> None:
    before = len(list(pathlib.Path("/proc/self/fd").iterdir()))
    hosts = [0, 0, 1, 2]
    wanted = Membership.of(0, range(4))
    with TcpStoreServer(["127.0.0.1"], SECRET, tls=True) as server, ThreadPoolExecutor(32) as pool:
        joining = [
            pool.submit(
                join_world,
                JoinSettings(wanted, wanted.topology(rank), "node", TIMEOUT, SECRET, (), str(host)),
                TcpStore(server.address, TIMEOUT, SECRET),
                "world/1",
                lambda ranks: 4096 * ranks,
                _core.linked_hosts,
            )
            for rank, host in enumerate(hosts)
        ]
        worlds = [future.result() for future in joining]
        pairs = [(a, b) for a in range(4) for b in range(4) if hosts[a] != hosts[b]]
        opening = [pool.submit(worlds[a].connect, b, 0) for a, b in pairs]  # type: ignore[misc]
        opened = (future.result().descriptor for future in opening)
        links = dict(zip(pairs, opened, strict=True))
        for rank, world in enumerate(worlds):
            links |= {(rank, link.rank, "control"): link.descriptor for link in world.host_links}
        # More than all buffers hold, both ways at once.
        blocks = {key: os.urandom(8) * 400_000 for key in links}
        sending = [pool.submit(send, fd, blocks[key]) for key, fd in links.items()]
        for (here, there, *rest), fd in links.items():
            assert receive(fd, 3_200_000) == blocks[(there, here, *rest)]
        for future in sending:
            future.result()
        (link,) = (fd for key, fd in links.items() if key == (0, 3))
        os.close(link)
        assert receive(links[3, 0], 1) == b""  # the end of the stream arrives too
        for key, fd in links.items():
            if key != (0, 3):
                os.close(fd)
        for world in worlds:
            for fd in [world.memfd, *world.event_descriptors, *(fd for _, fd in world.local_links)]:
                os.close(fd)
            world.close()
    wait_for_threads()
    assert len(list(pathlib.Path("/proc/self/fd").iterdir())) == before


def test_what_was_sent_arrives_although_the_sender_leaves() -> None:
    near, far = secure_pair()
    relay = Relay(near)
    sent = os.urandom(1 << 22)
    with relay.socket, far, ThreadPoolExecutor(1) as pool:
        # More than the buffers hold: the last of it waits in the relay when its sender leaves.
        sending = pool.submit(relay.socket.sendall, sent)
        received = far.read(1 << 16)
        while not sending.done():
            received += far.read(1 << 16)
        leaving = pool.submit(relay.finish, time.monotonic() + TIMEOUT)
        while part := far.recv(1 << 16):
            received += part
        leaving.result()
    assert received == sent


def test_leaving_does_not_wait_for_bytes_that_nobody_takes() -> None:
    near, far = secure_pair()
    relay = Relay(near)
    with relay.socket, far, contextlib.suppress(OSError):
        far.settimeout(1)
        far.sendall(bytes(1 << 24))  # until all buffers are full
    start = time.monotonic()
    relay.finish(start + TIMEOUT)
    assert time.monotonic() - start < TIMEOUT / 2


def test_what_broke_an_encrypted_connection_is_known_when_its_end_is_seen() -> None:
    near, far = secure_pair()
    relay = Relay(near)
    with relay.socket, far:
        with socket.socket(fileno=os.dup(far.fileno())) as raw:
            raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))  # a record that nobody has encrypted
        relay.socket.settimeout(TIMEOUT)
        assert relay.socket.recv(1) == b""
        assert relay.reason.startswith("TLS reports ")
        assert "MAC" in relay.reason


def test_a_host_found_silent_is_not_given_time_to_take_what_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sirtaki.rendezvous.network.tcp_socket.is_silent", lambda *_: True)
    monkeypatch.setattr("sirtaki.rendezvous.network.tls_relay._FLUSH_SECONDS", 600.0)
    near, far = secure_pair()
    relay = Relay(near)
    with relay.socket, far:
        relay.socket.settimeout(TIMEOUT)
        with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
            relay.socket.sendall(bytes(1 << 26))  # more than all buffers hold
        assert relay.reason == "no answer from the other host"


def test_an_encrypted_connection_that_was_closed_has_no_reason() -> None:
    near, far = secure_pair()
    relay = Relay(near)
    with relay.socket:
        far.close()
        relay.socket.settimeout(TIMEOUT)
        assert relay.socket.recv(1) == b""
        assert relay.reason == ""


def secure_pair() -> tuple[tls.TlsSocket, tls.TlsSocket]:
    """Two ends of one connection that have shaken hands; the second one blocks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()
    near, far = tls.wrap_dialed(here), tls.wrap_accepted(there)
    for end in (near, far):
        end.settimeout(TIMEOUT)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(far.do_handshake)
        near.do_handshake()
    return near, far


def send(descriptor: int, data: bytes) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.settimeout(TIMEOUT)
        sock.sendall(data)


def receive(descriptor: int, count: int) -> bytes:
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.settimeout(TIMEOUT)
        data = b""
        while len(data) < count and (part := sock.recv(1 << 20)):
            data += part
        return data


def wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "sirtaki-tls":
            thread.join(TIMEOUT)


@needs.program("openssl")
def test_openssl_accepts_the_certificate_and_its_signature(tmp_path: pathlib.Path) -> None:
    certificate, pem = make_certificate()
    file = tmp_path / "certificate.pem"
    file.write_bytes(pem)
    command = ["openssl", "verify", "-check_ss_sig", "-x509_strict", "-CAfile", file, file]
    assert subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    assert ssl.PEM_cert_to_DER_cert(pem.decode().partition("-----BEGIN EC")[0]) == certificate


def test_every_certificate_has_a_key_of_its_own() -> None:
    certificates = {make_certificate()[0] for _ in range(5)}
    assert len({hashlib.sha256(certificate).digest() for certificate in certificates}) == 5
    assert tls.listener_tls() is tls.listener_tls()
