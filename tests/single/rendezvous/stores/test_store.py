"""The rendezvous store: values, waiting, limits, and clients that misbehave."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sirtaki.rendezvous.network import local_socket
from sirtaki.rendezvous.stores.store import Store, open_store
from sirtaki.rendezvous.stores.unix_store import UnixStore, UnixStoreServer
from sirtaki.rendezvous.stores.wire import MAX_KEY_BYTES, MAX_VALUE_BYTES
from tests.single.rendezvous.memory_store import MemoryStore


@pytest.fixture
def server() -> Iterator[UnixStoreServer]:
    with UnixStoreServer() as served:
        yield served


@pytest.fixture(params=["memory", "unix"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    with UnixStoreServer() as served:
        client = open_store(served.address, 10.0)
        yield client
        client.close()


def open_descriptors() -> int:
    return len(list(pathlib.Path("/proc/self/fd").iterdir()))


def abstract(server: UnixStoreServer) -> str:
    return "\0" + server.address.removeprefix("unix:@")


def raw_exchange(server: UnixStoreServer, data: bytes) -> bytes:
    """Send `data` as it is and return what comes back before the server hangs up."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(abstract(server))
        try:
            sock.sendall(data)
            return sock.recv(1 << 16)
        except ConnectionError:
            return b""


def test_a_value_that_is_set_can_be_read_again_and_again(store: Store) -> None:
    store.set("a/b", b"value")
    assert store.get("a/b", 5) == b"value"
    assert store.get("a/b", 5) == b"value"


def test_a_later_value_replaces_an_earlier_one(store: Store) -> None:
    store.set("key", b"one")
    store.set("key", b"two")
    assert store.get("key", 5) == b"two"


def test_an_empty_value_is_a_value(store: Store) -> None:
    store.set("key", b"")
    assert store.get("key", 5) == b""


def test_get_waits_until_somebody_sets_the_key(store: Store) -> None:
    timer = threading.Timer(0.2, store.set, ("late", b"here"))
    timer.start()
    assert store.get("late", 30) == b"here"
    timer.join()


def test_all_who_wait_for_a_key_get_it(store: Store) -> None:
    answers: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: answers.append(store.get("k", 30))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    store.set("k", b"x")
    for thread in threads:
        thread.join()
    assert answers == [b"x"] * 20


def test_a_missing_key_is_named_when_the_time_is_up(store: Store) -> None:
    with pytest.raises(TimeoutError, match="'nobody/sets/me'"):
        store.get("nobody/sets/me", 0.1)


def test_a_key_can_be_set_after_somebody_gave_up_on_it(store: Store) -> None:
    with pytest.raises(TimeoutError):
        store.get("k", 0.05)
    store.set("k", b"v")
    assert store.get("k", 5) == b"v"


@pytest.mark.parametrize("key", ["", "k" * (MAX_KEY_BYTES + 1), "é" * MAX_KEY_BYTES])
def test_keys_of_a_bad_length_are_refused(store: Store, key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        store.set(key, b"")
    with pytest.raises(ValueError, match="key"):
        store.get(key, 1)


def test_a_value_beyond_the_limit_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="'big'"):
        store.set("big", bytes(MAX_VALUE_BYTES + 1))


def test_a_value_of_many_megabytes_arrives_whole(server: UnixStoreServer) -> None:
    client = UnixStore(server.address, 30.0)
    value = os.urandom(1 << 20) * 20
    client.set("big", value)
    assert client.get("big", 30) == value


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(min_size=1, max_size=200), value=st.binary(max_size=5000))
def test_any_key_and_value_survive_the_wire(
    server: UnixStoreServer, key: str, value: bytes
) -> None:
    client = UnixStore(server.address, 10.0)
    client.set(key, value)
    assert client.get(key, 10) == value


def _set_from_child(address: str) -> None:
    open_store(address, 10).set("from", str(os.getpid()).encode())


def test_another_process_shares_the_store(server: UnixStoreServer) -> None:
    child = multiprocessing.get_context("spawn").Process(
        target=_set_from_child, args=(server.address,)
    )
    child.start()
    assert int(UnixStore(server.address, 10).get("from", 60)) == child.pid
    child.join()


@pytest.mark.parametrize("address", ["", "unix:", "unix:name", "tcp://localhost:1", "@name"])
def test_addresses_of_another_form_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"address|name"):
        open_store(address, 1)


def test_a_store_that_is_not_there_says_that_the_launcher_has_ended() -> None:
    with pytest.raises(ConnectionError, match="launcher has ended"):
        open_store("unix:@sirtaki-no-such-name", 1)


def test_closing_the_server_ends_a_waiting_get(server: UnixStoreServer) -> None:
    client = UnixStore(server.address, 10)
    timer = threading.Timer(0.2, server.close)
    timer.start()
    with pytest.raises(ConnectionError, match="'never'"):
        client.get("never", 60)
    timer.join()


def test_a_peek_does_not_wait(server: UnixStoreServer) -> None:
    client = UnixStore(server.address, 10)
    assert client.peek("key") is None
    client.set("key", b"value")
    assert client.peek("key") == b"value"


def test_who_begins_another_meeting_has_left_those_before_the_last(server: UnixStoreServer) -> None:
    client = UnixStore(server.address, 10)
    for number in (1, 2, 3, 10):
        client.set(f"world/0/2/{number}/leader", b"@name")
    client.set("world/0/3/1/leader", b"@name")
    kept = [number for number in (1, 2, 3, 10) if server.peek(f"world/0/2/{number}/leader")]
    assert kept == [10]
    assert server.peek("world/0/3/1/leader") == b"@name"


def test_closing_twice_is_harmless() -> None:
    server = UnixStoreServer()
    server.start()
    server.close()
    server.close()


def test_a_server_that_was_never_started_closes() -> None:
    UnixStoreServer().close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack("!BHI", 4, 1, 0) + b"k",
        struct.pack("!BHI", 1, 0, 1) + b"v",
        struct.pack("!BHI", 1, MAX_KEY_BYTES + 1, 0),
        struct.pack("!BHI", 1, 1, MAX_VALUE_BYTES + 1),
        struct.pack("!BHI", 2, 1, 5) + b"khello",
        struct.pack("!BHI", 1, 1, 1) + b"kv" + b"more than one request",
        struct.pack("!BHI", 1, 2, 0) + b"\xff\xfe",
    ],
)
def test_a_malformed_request_is_hung_up_on_and_harms_nobody(
    server: UnixStoreServer, request_bytes: bytes
) -> None:
    assert raw_exchange(server, request_bytes) == b""
    client = UnixStore(server.address, 10)
    client.set("still", b"alive")
    assert client.get("still", 10) == b"alive"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(garbage=st.binary(min_size=7, max_size=64).filter(lambda data: data[0] not in (1, 2)))
def test_garbage_is_hung_up_on(server: UnixStoreServer, garbage: bytes) -> None:
    assert raw_exchange(server, garbage) == b""


def test_a_client_that_says_half_a_request_and_goes_is_forgotten(server: UnixStoreServer) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(abstract(server))
        sock.sendall(struct.pack("!BHI", 1, 1, 10) + b"kv")
    client = UnixStore(server.address, 10)
    with pytest.raises(TimeoutError):
        client.get("k", 0.1)


def test_a_client_that_does_not_read_its_answer_blocks_nobody(server: UnixStoreServer) -> None:
    client = UnixStore(server.address, 10)
    client.set("big", bytes(8 << 20))
    with socket.socket(socket.AF_UNIX) as lazy:
        lazy.connect(abstract(server))
        lazy.sendall(struct.pack("!BHI", 2, 3, 0) + b"big")
        client.set("small", b"v")
        assert client.get("small", 10) == b"v"


def test_another_users_process_is_refused_on_both_sides(
    server: UnixStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = UnixStore(server.address, 10)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(PermissionError, match="another user"):
        client.get("k", 5)
    # The server refuses as well, before it reads anything.
    assert raw_exchange(server, struct.pack("!BHI", 1, 1, 1) + b"kv") == b""


def test_a_listener_whose_backlog_stays_full_times_out() -> None:
    listener, name = local_socket.listen(backlog=0)
    with listener, contextlib.closing(local_socket.connect(name, time.monotonic() + 5)):
        deadline = time.monotonic() + 0.1
        with pytest.raises(TimeoutError):
            local_socket.connect(name, deadline)


def test_nothing_stays_open_after_use() -> None:
    before = open_descriptors()
    for _ in range(5):
        with UnixStoreServer() as server:
            client = UnixStore(server.address, 5)
            client.set("k", b"v")
            client.get("k", 5)
            with pytest.raises(TimeoutError):
                client.get("other", 0.01)
    assert open_descriptors() == before
