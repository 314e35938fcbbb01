"""The store over TCP: who is let in, who is turned away, and that nobody else notices."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sirtaki.rendezvous.network import tcp_socket
from sirtaki.rendezvous.stores import wire
from sirtaki.rendezvous.stores.store import open_store
from sirtaki.rendezvous.stores.tcp_store import TcpStore, TcpStoreServer
from sirtaki.rendezvous.stores.wire import MAX_VALUE_BYTES
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.trust.auth import Seal
from tests import needs

SECRET = bytes(range(32))
SHARED = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Served:
    """A server, what it has logged, and ways to talk to it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.server = TcpStoreServer(["127.0.0.1"], SECRET, log=self.log.append)
        self.client = TcpStore(self.server.address, 20.0, SECRET)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), 20)

    def prove(self) -> tuple[socket.socket, Seal]:
        sock = self.connect()
        dialer = auth.Dialer(SECRET, auth.STORE, auth.own_identity())
        sock.sendall(dialer.greeting)
        answer = b""
        while len(answer) < auth.ANSWER_BYTES:
            answer += sock.recv(auth.ANSWER_BYTES - len(answer))
        sock.sendall(dialer.prove(answer)[0])
        return sock, Seal(dialer.keys())

    def still_works(self) -> bool:
        self.client.set("still", b"alive")
        return self.client.get("still", 20) == b"alive"


@pytest.fixture
def served() -> Iterator[Served]:
    it = Served()
    with it.server:
        yield it


def hung_up(sock: socket.socket) -> bool:
    """Wait for the other side to hang up; True when it says nothing before."""
    with contextlib.suppress(ConnectionResetError):
        return sock.recv(1 << 16) == b""
    return True


def test_values_travel(served: Served) -> None:
    served.client.set("a/b", b"value" * 1_000_000)
    assert served.client.get("a/b", 20) == b"value" * 1_000_000
    assert served.server.peek("a/b") == b"value" * 1_000_000
    assert served.server.peek("other") is None


def test_get_waits_for_a_set(served: Served) -> None:
    timer = threading.Timer(0.2, served.client.set, ("late", b"here"))
    timer.start()
    assert served.client.get("late", 20) == b"here"
    timer.join()


def test_a_missing_key_is_named(served: Served) -> None:
    with pytest.raises(TimeoutError, match="'nobody/sets/me'"):
        served.client.get("nobody/sets/me", 0.1)


def test_an_address_lists_all_that_the_server_listens_on() -> None:
    with TcpStoreServer(["127.0.0.1", "::1"], SECRET) as server:
        assert server.address == f"tcp:127.0.0.1,[::1]:{server.port}"
        for host in ("127.0.0.1", "[::1]", "localhost"):
            store = open_store(f"tcp:{host}:{server.port}", 20, SECRET)
            store.set("k", b"v")
            assert store.get("k", 20) == b"v"


def test_addresses_that_lead_nowhere_do_not_matter_beside_one_that_answers(served: Served) -> None:
    # 127.0.0.2 refuses; 192.0.2.0/24 is for documentation.
    address = f"tcp:127.0.0.2,192.0.2.77,127.0.0.1:{served.server.port}"
    store = open_store(address, 20, SECRET)
    store.set("k", b"v")
    assert store.get("k", 20) == b"v"


def test_a_server_that_is_not_there_is_an_error_that_lists_what_was_tried(served: Served) -> None:
    served.server.close()
    port = served.server.port
    store = open_store(f"tcp:127.0.0.1,[::1]:{port}", 5, SECRET)
    with pytest.raises(ConnectionError) as found:
        store.get("k", 5)
    assert f"127.0.0.1:{port}: [Errno 111] Connection refused" in str(found.value)
    assert f"[::1]:{port}: [Errno 111] Connection refused" in str(found.value)


def test_a_patient_client_waits_for_the_server_to_come() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    store = open_store(f"tcp:127.0.0.1:{port}", 20, SECRET, patient=True)
    servers: list[TcpStoreServer] = []

    def come() -> None:
        servers.append(TcpStoreServer(["127.0.0.1"], SECRET, port))
        servers[0].start()

    timer = threading.Timer(0.3, come)
    timer.start()
    store.set("k", b"v")
    timer.join()
    assert servers[0].peek("k") == b"v"
    servers[0].close()


def test_without_a_secret_the_network_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="SIRTAKI_SECRET_FILE"):
        open_store("tcp:127.0.0.1:1", 1)


@pytest.mark.parametrize("secret", [b"", b"short", bytes(33)])
def test_a_secret_has_32_bytes(secret: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        TcpStore("tcp:127.0.0.1:1", 1, secret)


@pytest.mark.parametrize(
    "address",
    ["tcp:", "tcp:host", "tcp::80", "tcp:h:0", "tcp:h:65536", "tcp:h:x", "tcp:a b:1", "tcp:::1:80",
     "tcp:h,:1", "tcp:[h]:1", "tcp:[::1:1", "tcp://h:1", "tcp:h:-1", "tcp:h:٣"],
)  # fmt: skip
def test_addresses_of_another_form_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"host|port"):
        open_store(address, 1, SECRET)


HOST = st.one_of(
    st.ip_addresses().map(str), st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)
)


@given(st.lists(HOST, min_size=1, max_size=5), st.integers(1, 65535))
def test_addresses_survive_being_written_and_read(hosts: list[str], port: int) -> None:
    text = tcp_socket.format_endpoints(hosts, port)
    assert tcp_socket.parse_endpoints(text) == [(host, port) for host in hosts]


@given(st.text(max_size=50))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert tcp_socket.parse_endpoints(text)


def test_another_secret_is_refused_and_logged_once(served: Served) -> None:
    stranger = TcpStore(served.server.address, 5, os.urandom(32))
    for _ in range(3):
        with pytest.raises(auth.WrongSecretError, match="wrong secret"):
            stranger.get("k", 5)
    assert served.still_works()
    (line,) = served.log
    assert "turned away a connection from 127.0.0.1: wrong secret" in line


def test_a_client_refuses_a_server_that_does_not_know_the_secret() -> None:
    with TcpStoreServer(["127.0.0.1"], os.urandom(32), log=lambda line: None) as impostor:
        with pytest.raises(auth.WrongSecretError):
            TcpStore(impostor.address, 5, SECRET).set("key", b"value")
        assert impostor.peek("key") is None


def test_a_server_of_another_program_is_not_waited_for() -> None:
    def greet(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            sock.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet, args=(listener,))
        thread.start()
        store = TcpStore(f"tcp:127.0.0.1:{listener.getsockname()[1]}", 30, SECRET)
        with pytest.raises(auth.NotAPeerError, match="not a Sirtaki peer"):
            store.get("k", 30)
        thread.join()


def test_a_replayed_conversation_is_turned_away(served: Served) -> None:
    recorded = bytearray()
    with served.connect() as sock:
        dialer = auth.Dialer(SECRET, auth.STORE, auth.own_identity())
        sock.sendall(dialer.greeting)
        proof, _ = dialer.prove(sock.recv(auth.ANSWER_BYTES, socket.MSG_WAITALL))
        seal = Seal(dialer.keys())
        recorded += dialer.greeting + proof + wire.pack_request(wire.SET, b"k", b"old", seal)
        sock.sendall(recorded[auth.GREETING_BYTES :])
        assert wire.answer_content_bytes(sock.recv(wire.answer_header_bytes(seal)), seal) > 0
    served.client.set("k", b"new")
    with served.connect() as sock:
        sock.sendall(recorded)
        assert len(sock.recv(auth.ANSWER_BYTES, socket.MSG_WAITALL)) == auth.ANSWER_BYTES
        assert hung_up(sock)
    assert served.client.get("k", 5) == b"new"
    assert "wrong secret" in served.log[0]


@SHARED
@given(st.binary(min_size=1, max_size=400).filter(lambda data: not data.startswith(b"S")))
def test_garbage_is_turned_away_unanswered(served: Served, garbage: bytes) -> None:
    with served.connect() as sock:
        sock.sendall(garbage)
        assert hung_up(sock)


@SHARED
@given(st.binary(max_size=64))
def test_garbage_after_the_proof_harms_nobody(served: Served, garbage: bytes) -> None:
    with served.prove()[0] as sock:
        sock.sendall(garbage)
        sock.shutdown(socket.SHUT_WR)
        hung_up(sock)
    assert served.still_works()


@pytest.mark.parametrize(
    "header", [(1, 1, MAX_VALUE_BYTES + 1), (1, 2000, 0), (2, 1, 1), (7, 1, 0), (2, 0, 0)]
)
def test_frames_over_the_limits_are_turned_away(
    served: Served, header: tuple[int, int, int]
) -> None:
    sock, seal = served.prove()
    with sock:
        sock.sendall(seal.sealed(0, struct.pack("!BHI", *header)))
        assert hung_up(sock)
    assert "is not allowed" in served.log[0] or "does not exist" in served.log[0]
    assert served.still_works()


@pytest.mark.parametrize("count", [0, 1, 7, auth.GREETING_BYTES - 1])
def test_one_who_stops_in_the_middle_is_turned_away_in_time(served: Served, count: int) -> None:
    greeting = auth.Dialer(SECRET, auth.STORE, auth.own_identity()).greeting
    start = time.monotonic()
    with served.connect() as sock:
        sock.sendall(greeting[:count])
        assert served.still_works()
        assert hung_up(sock)
    assert time.monotonic() - start >= auth.SECONDS - 0.1
    assert served.log == [
        "sirtaki: the rendezvous store turned away a connection from 127.0.0.1: it proved nothing "
        "within 3 s"
    ]


@needs.open_files(4096)
def test_a_thousand_idle_connections_disturb_nobody(served: Served) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    try:
        with contextlib.ExitStack() as stack:
            idle = [stack.enter_context(served.connect()) for _ in range(1000)]
            assert served.still_works()
            assert all(hung_up(sock) for sock in idle)
        assert served.still_works()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(served.log) == 1


def test_running_out_of_descriptors_passes(served: Served) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        held = len(list(pathlib.Path("/proc/self/fd").iterdir()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (held + 20, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.suppress(OSError):
            while True:
                stack.enter_context(served.connect())
    assert served.still_works()


def test_a_client_that_does_not_read_blocks_nobody(served: Served) -> None:
    served.client.set("big", bytes(32 << 20))
    lazy, seal = served.prove()
    with lazy:
        lazy.sendall(wire.pack_request(wire.GET, b"big", b"", seal))
        assert served.still_works()


def test_closing_the_server_ends_a_waiting_get(served: Served) -> None:
    timer = threading.Timer(0.2, served.server.close)
    timer.start()
    with pytest.raises(ConnectionError, match="'never'"):
        served.client.get("never", 60)
    timer.join()


def test_nothing_stays_open_after_use() -> None:
    before = len(list(pathlib.Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with TcpStoreServer(["127.0.0.1", "::1"], SECRET) as server:
            client = TcpStore(server.address, 5, SECRET)
            client.set("k", b"v")
            with pytest.raises(TimeoutError):
                client.get("other", 0.01)
    assert len(list(pathlib.Path("/proc/self/fd").iterdir())) == before
