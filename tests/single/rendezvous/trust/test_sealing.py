"""What somebody between two processes of a job can do to what they say to each other."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirtaki.rendezvous.stores import wire
from sirtaki.rendezvous.stores.tcp_store import TcpStore, TcpStoreServer
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.trust.auth import AlteredError, Seal
from sirtaki.rendezvous.world.listener import RankListener

SECRET = bytes(range(32))
HERE = auth.Identity("node-a", "1.0")
Alter = Callable[[bytes], bytes]


def seals() -> tuple[Seal, Seal]:
    """The seals of the two ends of a connection."""
    dialer = auth.Dialer(SECRET, auth.STORE, HERE)
    listener = auth.Listener(SECRET, auth.STORE, HERE)
    listener.accept(dialer.prove(listener.answer(dialer.greeting))[0])
    return Seal(dialer.keys()), Seal(listener.keys())


def test_both_ends_have_the_same_two_keys_crosswise() -> None:
    dialer = auth.Dialer(SECRET, auth.STORE, HERE)
    listener = auth.Listener(SECRET, auth.STORE, HERE)
    listener.accept(dialer.prove(listener.answer(dialer.greeting))[0])
    ours, theirs = dialer.keys(), listener.keys()
    assert (ours.sending, ours.receiving) == (theirs.receiving, theirs.sending)
    assert ours.sending != ours.receiving


def test_keys_are_not_shown() -> None:
    assert repr(auth.Keys(b"sending", b"receiving")) == "Keys()"


@given(st.binary(max_size=100), st.integers(0, 3))
def test_what_is_sealed_opens_at_the_other_end(piece: bytes, number: int) -> None:
    here, there = seals()
    assert there.opened(number, here.sealed(number, piece)) == piece


@given(st.data())
def test_any_altered_byte_is_found(data: st.DataObject) -> None:
    here, there = seals()
    sealed = bytearray(here.sealed(0, data.draw(st.binary(max_size=50))))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(AlteredError):
        there.opened(0, sealed)


@given(st.binary(max_size=80))
def test_what_nobody_has_sealed_is_refused(garbage: bytes) -> None:
    with pytest.raises(AlteredError):
        seals()[1].opened(0, garbage)


def test_a_piece_in_anothers_place_is_refused() -> None:
    here, there = seals()
    with pytest.raises(AlteredError):
        there.opened(1, here.sealed(0, b"piece"))


def test_a_piece_sent_back_to_its_sender_is_refused() -> None:
    here, _ = seals()
    with pytest.raises(AlteredError):
        here.opened(0, here.sealed(0, b"piece"))


def test_a_piece_of_another_connection_is_refused() -> None:
    with pytest.raises(AlteredError):
        seals()[1].opened(0, seals()[0].sealed(0, b"piece"))


@given(st.data())
def test_a_request_is_whole_and_unaltered_or_refused(data: st.DataObject) -> None:
    here, there = seals()
    request = wire.pack_request(wire.SET, b"key", b"value", here)
    cut = data.draw(st.integers(0, len(request) - 1))
    assert wire.parse_request(request[:cut], there) is None
    altered = bytearray(request)
    altered[cut] ^= data.draw(st.integers(1, 255))
    with pytest.raises(AlteredError):
        wire.parse_request(altered, there)


def test_an_altered_size_is_refused_before_it_is_waited_for() -> None:
    here, there = seals()
    header = bytearray(wire.pack_answer(b"value", here)[: wire.answer_header_bytes(there)])
    header[0] ^= 1
    with pytest.raises(AlteredError):
        wire.answer_content_bytes(bytes(header), there)


# ---- A man in the middle ----


@contextlib.contextmanager
def man_in_the_middle(target: int, up: Alter, down: Alter) -> Iterator[int]:
    """Relay one connection to a port of this host; yields the port to connect to instead."""

    def pump(source: socket.socket, destination: socket.socket, alter: Alter) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                destination.sendall(alter(data))
        with contextlib.suppress(OSError):
            destination.shutdown(socket.SHUT_RDWR)

    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:

        def serve() -> None:
            here, _ = listener.accept()
            there = socket.create_connection(("127.0.0.1", target))
            with here, there:
                back = threading.Thread(target=pump, args=(there, here, down))
                back.start()
                pump(here, there, up)
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        stack.callback(thread.join)
        yield listener.getsockname()[1]


def same(data: bytes) -> bytes:
    return data


def test_an_answer_of_the_store_that_is_altered_is_an_error_that_says_so() -> None:
    def lie(data: bytes) -> bytes:
        return data.replace(b"truth", b"lying")

    with TcpStoreServer(["127.0.0.1"], SECRET) as server:
        TcpStore(server.address, 10, SECRET).set("key", b"truth")
        with (
            man_in_the_middle(server.port, same, lie) as port,
            pytest.raises(AlteredError, match=r"answer of the rendezvous store .*'key' was"),
        ):
            TcpStore(f"tcp:127.0.0.1:{port}", 10, SECRET).get("key", 10)


def test_a_request_that_is_altered_is_turned_away() -> None:
    def lie(data: bytes) -> bytes:
        return data.replace(b"truth", b"lying")

    log: list[str] = []
    with TcpStoreServer(["127.0.0.1"], SECRET, log=log.append) as server:
        with man_in_the_middle(server.port, lie, same) as port, pytest.raises(ConnectionError):
            TcpStore(f"tcp:127.0.0.1:{port}", 10, SECRET).set("key", b"truth")
        assert server.peek("key") is None
    assert log[0].endswith("a message was altered on its way")


def test_a_welcome_that_is_altered_is_refused() -> None:
    def lie(data: bytes) -> bytes:
        return b"\x02" + data[1:] if len(data) < auth.ANSWER_BYTES else data

    lobbies = [RankListener(rank, 2, "world/1", ["127.0.0.1"], 10.0) for rank in range(2)]
    with contextlib.ExitStack() as stack:
        for listener in lobbies:
            stack.callback(listener.close)
            listener.open(SECRET)
        with man_in_the_middle(lobbies[0].endpoints[0][1], same, lie) as port:
            lobbies[1].introduce({0: [("127.0.0.1", port)]}, ["node-a", "node-b"])
            with pytest.raises(AlteredError, match=r"the welcome of rank 0 \(node-a\)"):
                lobbies[1].connect(0, 0)


# ---- Strangers ----

GREETING = struct.Struct("!8sHBB32s24s64s32s")
OTHER_PROTOCOL = GREETING.pack(b"SIRTAKI\n", 99, 2, 1, bytes(32), b"9.9.9", b"stranger", bytes(32))


def answer_in_another_protocol(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            sock, _ = listener.accept()
            with sock:
                sock.recv(auth.GREETING_BYTES, socket.MSG_WAITALL)
                sock.sendall(OTHER_PROTOCOL + bytes(auth.PROOF_BYTES))


@pytest.fixture
def stranger() -> Iterator[int]:
    """The port of one who says that it speaks another protocol."""
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=answer_in_another_protocol, args=(listener,))
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


def test_a_stranger_of_another_protocol_ends_no_search(stranger: int) -> None:
    with contextlib.closing(socket.socket()) as later:
        later.bind(("127.0.0.1", 0))
        port = later.getsockname()[1]
    found: list[bytes] = []

    def look() -> None:
        where = f"tcp:127.0.0.1:{stranger};127.0.0.1:{port}"
        found.append(TcpStore(where, 30, SECRET, patient=True).get("key", 30))

    thread = threading.Thread(target=look)
    thread.start()
    time.sleep(0.5)  # several rounds with nobody but the stranger
    assert not found
    with TcpStoreServer(["127.0.0.1"], SECRET, port) as server:
        TcpStore(server.address, 10, SECRET).set("key", b"value")
        thread.join()
    assert found == [b"value"]


def test_a_stranger_of_another_protocol_is_named_in_the_end(stranger: int) -> None:
    store = TcpStore(f"tcp:127.0.0.1:{stranger}", 1, SECRET, patient=True)
    with pytest.raises(auth.OtherProtocolError, match=f"{stranger}: .*speaks protocol 99"):
        store.set("key", b"value")


def test_one_who_speaks_another_protocol_learns_nothing_of_us_but_our_protocol() -> None:
    listener = auth.Listener(SECRET, auth.STORE, auth.Identity("secret-name", "1.2.3-version"))
    greeting = GREETING.pack(b"SIRTAKI\n", 99, 1, auth.STORE, bytes(32), b"9", b"who", bytes(32))
    with pytest.raises(auth.OtherProtocolError) as found:
        listener.answer(greeting)
    answer = found.value.answer
    assert len(answer) == auth.ANSWER_BYTES
    assert answer[:10] == auth.Dialer(SECRET, auth.STORE, HERE).greeting[:10]
    assert answer[10:] == bytes(auth.ANSWER_BYTES - 10)
