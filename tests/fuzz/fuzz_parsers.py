"""A coverage-guided search for bytes from strangers that a parser does not refuse properly.

    make fuzz            (seconds: FUZZ_SECONDS=60)

Every parser may raise what it documents; anything else is a find.
"""

from __future__ import annotations

import contextlib
import sys

import atheris

with atheris.instrument_imports():
    from sirtaki.launch.processes import frames
    from sirtaki.rendezvous.stores import wire
    from sirtaki.rendezvous.trust import auth
    from sirtaki.rendezvous.world import records

SECRET = bytes(32)
IDENTITY = auth.own_identity("host")
PURPOSE = 1
SEAL = auth.Seal(auth.Keys(b"s" * 32, b"r" * 32))


def store_request(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        wire.parse_request(data, auth.Seal())
    with contextlib.suppress(auth.AlteredError):
        if wire.parse_request(data, SEAL) is not None:
            raise AssertionError("a stranger's request was believed")


def store_answer(data: bytes) -> None:
    with contextlib.suppress(auth.AlteredError):
        wire.answer_content_bytes(data, SEAL)
        raise AssertionError("a stranger's answer was believed")


def handshake(data: bytes) -> None:
    size = auth.GREETING_BYTES
    with contextlib.suppress(auth.AuthenticationError):
        listener = auth.Listener(SECRET, PURPOSE, IDENTITY)
        listener.answer(data[:size].ljust(size, b"\0"))
        listener.accept(data[size : size + auth.PROOF_BYTES].ljust(auth.PROOF_BYTES, b"\0"))
        raise AssertionError("a stranger was let in")


def answer(data: bytes) -> None:
    with contextlib.suppress(auth.AuthenticationError):
        dialer = auth.Dialer(SECRET, PURPOSE, IDENTITY)
        dialer.prove(data[: auth.ANSWER_BYTES].ljust(auth.ANSWER_BYTES, b"\0"))
        raise AssertionError("a stranger was believed")


def host_record(data: bytes) -> None:
    with contextlib.suppress(ValueError, ConnectionError, TimeoutError):
        records.parse(data)


def agent_frames(data: bytes) -> None:
    with contextlib.suppress(frames.FrameError):
        for kind, payload in frames.FrameReader().feed(data):
            if kind == frames.Kind.OUTPUT:
                frames.unpack_output(payload)
            elif kind == frames.Kind.ANSWER:
                frames.unpack_answer(payload)
            else:
                frames.unpack_json(payload)


TARGETS = (store_request, store_answer, handshake, answer, host_record, agent_frames)


def one(data: bytes) -> None:
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
