"""Nobody waits longer than the start timeout for who does not answer."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sirtaki.rendezvous.network import interfaces as network
from sirtaki.rendezvous.network import lookup, tcp_socket
from sirtaki.rendezvous.stores.tcp_store import TcpStore, TcpStoreServer
from sirtaki.rendezvous.world import gather
from sirtaki.rendezvous.world.records import RankRecord

SECRET = bytes(range(32))
NAME = "trainer.example"


class NameServer:
    """Answers nothing but what is an address. asked: for which names."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ends = threading.Event()

    def getaddrinfo(self, host: str, port: int, **rest: Any) -> Any:
        if rest.get("flags") == socket.AI_NUMERICHOST:
            return socket.getaddrinfo(host, port, **rest)
        self.asked.append(host)
        self.ends.wait()
        raise socket.gaierror("no answer")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    library = {name: getattr(socket, name) for name in ("AI_NUMERICHOST", "SOCK_STREAM")}
    stand_in = SimpleNamespace(getaddrinfo=server.getaddrinfo, **library)
    monkeypatch.setattr(lookup, "socket", stand_in)
    yield server
    server.ends.set()


def test_a_store_whose_name_nobody_answers_is_given_up_in_time(names: NameServer) -> None:
    ports = ";".join(f"{NAME}:{port}" for port in range(29401, 29417))
    store = TcpStore(f"tcp:{ports}", 0.3, SECRET, patient=True)
    with pytest.raises(TimeoutError, match=f"no name server has answered where {NAME} is"):
        store.set("key", b"")
    assert names.asked == [NAME]  # once for all of its ports


def test_an_address_that_is_known_does_not_wait_for_a_name_that_is_not(names: NameServer) -> None:
    with TcpStoreServer(["127.0.0.1"], SECRET) as server:
        store = TcpStore(f"tcp:{NAME},127.0.0.1:{server.port}", 20.0, SECRET)
        store.set("key", b"value")
    assert names.asked == [NAME]


def test_own_addresses_are_not_chosen_without_an_end_to_that(names: NameServer) -> None:
    with pytest.raises(TimeoutError, match=f"no name server has answered where {NAME} is"):
        network.candidates([(NAME, 80)], deadline=time.monotonic() + 0.3)


class MuteStore:
    """A store that answers nothing; time passes only while somebody waits for it."""

    address = "mute"

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def set(self, key: str, value: bytes, timeout: float | None = None) -> None:
        assert timeout is not None, "the store's own timeout begins anew with every value"
        self.get(key, timeout)

    def get(self, key: str, timeout: float) -> bytes:
        self.now += timeout
        raise TimeoutError(key)

    def peek(self, key: str) -> bytes | None:
        return None

    def close(self) -> None:
        pass


@pytest.mark.parametrize("local_size", [0, 1])
def test_who_cannot_reach_the_store_tells_it_so_for_no_longer_than_a_second(
    monkeypatch: pytest.MonkeyPatch, local_size: int
) -> None:
    store = MuteStore()
    monkeypatch.setattr(gather, "time", store)
    own = RankRecord(
        rank=1,
        size=2,
        local_rank=0,
        local_size=local_size,
        host="here",
        machine="",
        boot="",
        name="here",
        version="",
        endpoints=[],
        direct_hosts=8,
    )
    with pytest.raises(TimeoutError):
        gather.Exchange(store, "p", "p", own, SECRET, 10.0, store.now + 10.0).run()
    assert store.now <= 1011.0


# ---- How long a host may be silent ----


def keepalive_seconds(sock: socket.socket) -> float:
    """After how long the kernel gives up a connection on which nothing is heard; 0: never."""
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        return 0
    idle, interval, count = (
        sock.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    return idle + interval * count


@pytest.mark.parametrize(
    ("host_timeout", "silent"), [(5, 4), (60, 48), (0, 0), (0.5, 2), (1e9, 8e8)]
)
def test_a_host_may_be_silent_as_long_as_its_timeout_says(
    host_timeout: float, silent: float
) -> None:
    assert tcp_socket.silent_seconds(host_timeout) == pytest.approx(silent)
    with socket.socket() as sock:
        tcp_socket.tune(sock, silent, silent)
        if 2 < silent < 1000:
            assert keepalive_seconds(sock) == silent
        unsent = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert unsent == min(silent * 1000, 2**31 - 1)
        assert (keepalive_seconds(sock) == 0) == (silent == 0)


def test_who_may_be_silent_for_ever_is_never_found_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quiet = itertools.repeat((2, 1, 10**7))
    monkeypatch.setattr(tcp_socket, "_tcp_info", lambda sock: next(quiet))
    with socket.socket() as sock:
        assert [tcp_socket.is_silent(sock, limit) for limit in (0, 4, 9999, 10001)] == [
            False,
            True,
            True,
            False,
        ]
