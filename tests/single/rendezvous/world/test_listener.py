"""Where ranks of other hosts connect to a rank: who gets in, for what, and for how long."""

from __future__ import annotations

import os
import pathlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from sirtaki.rendezvous.network.dial import never
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.world.listener import DATA, RankListener

SECRET = bytes(range(32))
TIMEOUT = 20.0


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    before = len(list(pathlib.Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(pathlib.Path("/proc/self/fd").iterdir())) == before


def read(descriptor: int, count: int) -> bytes:
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.settimeout(TIMEOUT)
        return sock.recv(count, socket.MSG_WAITALL)


@pytest.fixture
def listener() -> Iterator[RankListener]:
    log: list[str] = []
    listener = RankListener(1, 4, "world/1", ["127.0.0.1"], 2.0, log.append)
    listener.log = log  # type: ignore[attr-defined]
    listener.open(SECRET)
    yield listener
    listener.close()


def caller(
    listener: RankListener, rank: int = 2, secret: bytes = SECRET, prefix: str = "world/1"
) -> RankListener:
    other = RankListener(rank, 4, prefix, ["127.0.0.1"], 5.0)
    other.open(secret)
    other.introduce({1: listener.endpoints}, [f"node-{r}" for r in range(4)])
    return other


def test_a_connection_is_kept_for_the_one_who_asks_for_it(listener: RankListener) -> None:
    other = caller(listener)
    theirs = other.connect(1, 3).descriptor, other.control_link(1).descriptor
    ours = listener.connect(2, 3).descriptor, listener.control_link(2).descriptor
    for number, (here, there) in enumerate(zip(ours, theirs, strict=True)):
        os.write(there, bytes([number]))
        assert read(here, 1) == bytes([number])
        os.close(here)
        os.close(there)
    other.close()


@pytest.mark.parametrize(
    ("rank", "prefix"), [(2, "world/2"), (0, "world/1")], ids=["other world", "lower rank"]
)
def test_a_hello_that_does_not_fit_is_refused(
    listener: RankListener, rank: int, prefix: str
) -> None:
    other = caller(listener, rank, prefix=prefix)
    with pytest.raises(ConnectionError, match=r"rank 1 \(node-1\) refused our connection"):
        other._dial(DATA, 1, 0, time.monotonic() + 5, never)
    assert len(listener.log) == 1  # type: ignore[attr-defined]
    other.close()


def test_the_same_connection_twice_is_refused(listener: RankListener) -> None:
    other = caller(listener)
    first = other.connect(1, 0).descriptor
    with pytest.raises(ConnectionError, match="refused"):
        other.connect(1, 0)
    os.close(first)
    other.close()


@pytest.mark.parametrize("closer", ["dialer", "listener"])
def test_a_connection_that_was_closed_can_be_opened_again(
    listener: RankListener, closer: str
) -> None:
    other = caller(listener)
    for number in range(3):
        there, here = other.connect(1, 0).descriptor, listener.connect(2, 0).descriptor
        os.write(there, bytes([number]))
        assert read(here, 1) == bytes([number])
        os.close(there if closer == "dialer" else here)
        assert read(here if closer == "dialer" else there, 1) == b""
        os.close(here if closer == "dialer" else there)
    other.close()


def test_a_connection_that_is_taken_and_open_is_refused_a_second_time(
    listener: RankListener,
) -> None:
    other = caller(listener)
    there, here = other.connect(1, 0).descriptor, listener.connect(2, 0).descriptor
    with pytest.raises(ConnectionError, match="refused"):
        other.connect(1, 0)
    os.write(there, b"x")  # the first connection has not suffered
    assert read(here, 1) == b"x"
    os.close(there)
    os.close(here)
    other.close()


def test_a_connection_that_an_earlier_engine_left_open_can_be_opened_again(
    listener: RankListener,
) -> None:
    other = caller(listener)
    ends = [other.connect(1, 0).descriptor, listener.connect(2, 0).descriptor]
    for one in (listener, other):
        one.begin(3)
    ends += [other.connect(1, 0).descriptor, listener.connect(2, 0).descriptor]
    os.write(ends[2], b"x")
    assert read(ends[3], 1) == b"x"
    for descriptor in ends:
        os.close(descriptor)
    other.close()


def test_who_is_an_engine_ahead_is_waited_for_until_its_engine_begins(
    listener: RankListener,
) -> None:
    other = caller(listener)
    other.begin(3)
    there = other.connect(1, 0).descriptor
    with pytest.raises(TimeoutError, match="rank 2"):
        listener.connect(2, 0)
    listener.begin(3)
    here = listener.connect(2, 0).descriptor
    os.write(there, b"x")
    assert read(here, 1) == b"x"
    os.close(there)
    os.close(here)
    other.close()


def test_who_connects_for_an_engine_that_has_ended_is_refused(listener: RankListener) -> None:
    other = caller(listener)
    listener.begin(3)
    with pytest.raises(ConnectionError, match="refused our connection"):
        other.connect(1, 0)
    assert "an engine that has ended" in listener.log[0]  # type: ignore[attr-defined]
    other.close()


def test_what_an_engine_has_not_taken_is_closed_when_the_next_begins(
    listener: RankListener,
) -> None:
    other = caller(listener)
    there = other.connect(1, 0).descriptor
    listener.begin(3)
    assert read(there, 1) == b""
    os.close(there)
    other.close()


def test_what_connects_while_the_next_engine_begins_is_closed(
    listener: RankListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_connected = listener._is_connected
    with ThreadPoolExecutor(1) as pool:

        def look_while_the_next_begins(*arguments: Any) -> bool:
            begun = pool.submit(listener.begin, 3)
            wait([begun], 0.2)  # it may have to wait for us
            return is_connected(*arguments)

        monkeypatch.setattr(listener, "_is_connected", look_while_the_next_begins)
        other = caller(listener)
        there = other.connect(1, 0).descriptor
    assert read(there, 1) == b""
    os.close(there)
    other.close()


def test_a_wrong_secret_does_not_get_past_the_listener(listener: RankListener) -> None:
    other = caller(listener, secret=os.urandom(32))
    with pytest.raises(auth.WrongSecretError, match=r"rank 1 \(node-1\) from rank 2"):
        other.connect(1, 0)
    other.close()


def test_a_replayed_hello_is_turned_away(listener: RankListener) -> None:
    other = caller(listener)
    recorded: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as relay, ThreadPoolExecutor(1) as pool:
        other.introduce({1: [relay.getsockname()[:2]]}, ["n"] * 4)
        dialed = pool.submit(other.connect, 1, 0)
        sock, _ = relay.accept()
        with sock, socket.create_connection(listener.endpoints[0]) as onward:
            recorded.append(sock.recv(auth.GREETING_BYTES, socket.MSG_WAITALL))
            onward.sendall(recorded[0])
            sock.sendall(onward.recv(auth.ANSWER_BYTES, socket.MSG_WAITALL))
            recorded.append(sock.recv(auth.PROOF_BYTES, socket.MSG_WAITALL))
            onward.sendall(recorded[1])
            sock.sendall(onward.recv(1 << 10))
            os.close(dialed.result().descriptor)
    with socket.create_connection(listener.endpoints[0]) as again:
        again.settimeout(20)
        again.sendall(b"".join(recorded))
        assert len(again.recv(auth.ANSWER_BYTES, socket.MSG_WAITALL)) == auth.ANSWER_BYTES
        assert again.recv(1) == b""
    other.close()


def test_one_who_does_not_come_is_named_with_what_was_offered(listener: RankListener) -> None:
    listener.introduce({}, ["a", "b", "c", "d"])
    with pytest.raises(TimeoutError) as found:
        listener.connect(3, 0)
    assert "rank 3 (d) did not connect to rank 1" in str(found.value)
    assert f"127.0.0.1:{listener.endpoints[0][1]}" in str(found.value)


def test_a_rank_without_a_way_to_it_is_named_with_what_was_tried(listener: RankListener) -> None:
    listener.introduce({0: [("127.0.0.1", 1), ("127.0.0.2", 1)]}, ["a", "b", "c", "d"])
    with pytest.raises(ConnectionError) as found:
        listener.connect(0, 0)
    for part in ("rank 0 (a) from rank 1", "127.0.0.1:1: ", "127.0.0.2:1: ", "refused"):
        assert part in str(found.value)


@pytest.mark.parametrize("peer", [0, 3], ids=["dials", "waits"])
def test_connecting_ends_with_the_world(listener: RankListener, peer: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        patient = RankListener(1, 4, "world/1", ["127.0.0.1"], 1000.0)
        patient.open(SECRET)
        patient.introduce({0: [silent.getsockname()[:2]]}, ["a", "b", "c", "d"])
        with pytest.raises(ConnectionError, match=rf"rank {peer} .*ended|ended .* rank {peer} "):
            patient.connect(peer, 0, lambda: True)
        patient.close()


def test_a_silent_host_is_not_waited_for_until_the_start_timeout() -> None:
    with socket.socket() as full:
        # With its queue full a listener's host does not answer, as one that is cut off.
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            patient = RankListener(1, 4, "world/1", ["127.0.0.1"], 1000.0)
            patient.open(SECRET)
            patient.introduce({0: [full.getsockname()]}, ["a", "b", "c", "d"])
            with pytest.raises(ConnectionError, match="the host did not answer for 4 s"):
                patient.connect(0, 0)
            patient.close()
