"""Two processes of a job prove to each other that they know its secret.

The dialer sends a greeting, the listener a greeting and a proof, and the dialer a proof: three
messages of fixed size. A proof is an HMAC-SHA256 under the job's secret over both greetings, each
with a fresh nonce, and a label for the direction. So messages that are recorded, reflected or meant
for another purpose are useless. A claim in a greeting counts only after its proof was verified.
Both sides then derive keys, one per direction, for the tags of later messages. No code here uses a
socket.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any, NamedTuple

from sirtaki.rendezvous.trust import digests

SECRET_BYTES = 32
CLAIM_BYTES = 32
NO_CLAIM = bytes(CLAIM_BYTES)
# How long an authentication may take.
SECONDS = 3.0

STORE = 1
RANK = 2
AGENT = 3

_MAGIC = b"SIRTAKI\n"
# Increased when messages after the greeting change. The greeting itself keeps its size and first
# fields for ever, so that processes of different versions recognise each other.
_PROTOCOL = 2
_DIALER = 1
_LISTENER = 2
# Magic, protocol, role, purpose, nonce, version, host, claim.
_GREETING = struct.Struct(f"!8sHBB32s24s64s{CLAIM_BYTES}s")
_PROOF_BYTES = 32
_VERSION_BYTES = 24
_LABELS = {_DIALER: b"sirtaki proof of the dialer\0", _LISTENER: b"sirtaki proof of the listener\0"}
_KEY_LABELS = {_DIALER: b"sirtaki key of the dialer\0", _LISTENER: b"sirtaki key of the listener\0"}

GREETING_BYTES = _GREETING.size
ANSWER_BYTES = GREETING_BYTES + _PROOF_BYTES
PROOF_BYTES = _PROOF_BYTES


class AuthenticationError(ConnectionError):
    """The other end is not a process of this job; the base class of the reasons.

    answer: a last message, so that the other end knows the reason too.
    """

    def __init__(self, message: str, answer: bytes = b"") -> None:
        super().__init__(message)
        self.answer = answer


class NotAPeerError(AuthenticationError):
    """The received data is not part of the protocol."""


class WrongSecretError(AuthenticationError):
    """The other end does not know this job's secret."""


class VersionMismatchError(AuthenticationError):
    """The authenticated other end runs another version."""


class OtherProtocolError(AuthenticationError):
    """The other end claims, without a proof, to run another version."""


def repr_without(record: Any, *secret: str) -> str:
    """Return the repr of a NamedTuple without its secret fields."""
    shown = [f"{name}={value!r}" for name, value in record._asdict().items() if name not in secret]
    return f"{type(record).__name__}({', '.join(shown)})"


class Keys(NamedTuple):
    """The keys of an authenticated connection, one for each direction."""

    sending: bytes
    receiving: bytes

    def __repr__(self) -> str:
        return repr_without(self, "sending", "receiving")


class Identity(NamedTuple):
    """The identity of a process in others' messages: host name and version."""

    host: str
    version: str


def own_identity(host: str = "") -> Identity:
    """Return this process's identity. host: the name to use, default the machine's."""
    from sirtaki import __version__

    return Identity(host or socket.gethostname(), __version__)


class _Greeting(NamedTuple):
    raw: bytes
    protocol: int
    role: int
    purpose: int
    identity: Identity
    claim: bytes


def _greet(role: int, purpose: int, identity: Identity, claim: bytes) -> _Greeting:
    if len(claim) != CLAIM_BYTES:
        raise ValueError(f"a claim has {CLAIM_BYTES} bytes, not {len(claim)}")
    raw = _GREETING.pack(
        _MAGIC,
        _PROTOCOL,
        role,
        purpose,
        os.urandom(32),
        _on_wire(identity.version).encode(),
        identity.host.encode()[:64],
        claim,
    )
    return _Greeting(raw, _PROTOCOL, role, purpose, identity, claim)


def _on_wire(version: str) -> str:
    """Return the form of a version for the 24 bytes in a greeting."""
    if len(version.encode()) <= _VERSION_BYTES:
        return version
    # Versions of two commits may have the same beginning.
    return f"{version[:15]}~{digests.sha256(version.encode()).hex()[:8]}"


def _parse(raw: bytes) -> _Greeting:
    magic, protocol, role, purpose, _nonce, version, host, claim = _GREETING.unpack(raw)
    if magic != _MAGIC:
        raise NotAPeerError("not a Sirtaki peer")
    identity = Identity(_text(host), _text(version))
    return _Greeting(raw, protocol, role, purpose, identity, claim)


def _text(raw: bytes) -> str:
    """Decode unauthenticated bytes for a message."""
    text = raw.rstrip(b"\0").decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def could_be_greeting(start: bytes | bytearray) -> bool:
    """Return whether a greeting may begin with these bytes."""
    return _MAGIC.startswith(bytes(start[: len(_MAGIC)]))


def _proof(secret: bytes, role: int, dialer: _Greeting, listener: _Greeting) -> bytes:
    return digests.keyed(secret, _LABELS[role] + dialer.raw + listener.raw)


def _key(secret: bytes, role: int, dialer: _Greeting, listener: _Greeting) -> bytes:
    return digests.keyed(secret, _KEY_LABELS[role] + dialer.raw + listener.raw)


def _require_same_protocol(ours: _Greeting, theirs: _Greeting, answer: bytes = b"") -> None:
    if theirs.protocol != ours.protocol:
        raise OtherProtocolError(
            f"not a peer of this version: it speaks protocol {theirs.protocol}, Sirtaki "
            f"{ours.identity.version} on host {ours.identity.host} speaks {ours.protocol}; if it "
            "belongs to the job, install the same version on all hosts",
            answer,
        )


def _require_same_version(ours: _Greeting, theirs: _Greeting, answer: bytes = b"") -> None:
    if theirs.identity.version != _on_wire(ours.identity.version):
        raise VersionMismatchError(
            f"version mismatch: host {ours.identity.host} runs Sirtaki {ours.identity.version}, "
            f"host {theirs.identity.host} runs {theirs.identity.version}; install the same version "
            "on all hosts",
            answer,
        )


# The answer to a peer with another protocol version: the number of ours.
_NOTHING_BUT_PROTOCOL = struct.pack("!8sH", _MAGIC, _PROTOCOL).ljust(ANSWER_BYTES, b"\0")

_WRONG_SECRET = (
    "wrong secret: it belongs to another job, or SIRTAKI_SECRET_FILE differs between the hosts"
)


class Listener:
    """The side that accepted the connection.

    secret: the job's. purpose: of the port. identity: of this process. claim: further data about
    this process.
    """

    def __init__(
        self, secret: bytes, purpose: int, identity: Identity, claim: bytes = NO_CLAIM
    ) -> None:
        self._secret = secret
        self._ours = _greet(_LISTENER, purpose, identity, claim)

    def answer(self, greeting: bytes) -> bytes:
        """Return what to send after the dialer's greeting (`GREETING_BYTES`).

        Raises AuthenticationError, whose answer must then be sent.
        """
        theirs = _parse(greeting)
        _require_same_protocol(self._ours, theirs, _NOTHING_BUT_PROTOCOL)
        if (theirs.role, theirs.purpose) != (_DIALER, self._ours.purpose):
            raise NotAPeerError("a Sirtaki process that wanted something else here")
        self._theirs = theirs
        return self._ours.raw + _proof(self._secret, _LISTENER, theirs, self._ours)

    def accept(self, proof: bytes) -> bytes:
        """Check the dialer's proof (`PROOF_BYTES`) and return its claim.

        Raises AuthenticationError.
        """
        expected = _proof(self._secret, _DIALER, self._theirs, self._ours)
        if not digests.equal(proof, expected):
            raise WrongSecretError(_WRONG_SECRET)
        _require_same_version(self._ours, self._theirs)
        return self._theirs.claim

    def keys(self) -> Keys:
        """Return the keys; only after the dialer's proof was accepted."""
        greetings = self._theirs, self._ours
        return Keys(
            sending=_key(self._secret, _LISTENER, *greetings),
            receiving=_key(self._secret, _DIALER, *greetings),
        )


class Dialer:
    """The side that connected; arguments as for `Listener`."""

    def __init__(
        self, secret: bytes, purpose: int, identity: Identity, claim: bytes = NO_CLAIM
    ) -> None:
        self._secret = secret
        self._ours = _greet(_DIALER, purpose, identity, claim)
        self.greeting = self._ours.raw

    def prove(self, answer: bytes) -> tuple[bytes, bytes]:
        """Check the listener's answer (`ANSWER_BYTES`); return our proof and its claim.

        Raises AuthenticationError, whose answer must then be sent.
        """
        theirs = _parse(answer[:GREETING_BYTES])
        _require_same_protocol(self._ours, theirs)
        if (theirs.role, theirs.purpose) != (_LISTENER, self._ours.purpose):
            raise NotAPeerError("a Sirtaki process that serves something else there")
        expected = _proof(self._secret, _LISTENER, self._ours, theirs)
        if not digests.equal(answer[GREETING_BYTES:], expected):
            raise WrongSecretError(_WRONG_SECRET, bytes(_PROOF_BYTES))
        proof = _proof(self._secret, _DIALER, self._ours, theirs)
        _require_same_version(self._ours, theirs, proof)
        self._theirs = theirs
        return proof, theirs.claim

    def keys(self) -> Keys:
        """Return the keys; only after the listener's proof was accepted."""
        greetings = self._ours, self._theirs
        return Keys(
            sending=_key(self._secret, _DIALER, *greetings),
            receiving=_key(self._secret, _LISTENER, *greetings),
        )


_NUMBER = struct.Struct("!Q")
_TAG_BYTES = 32


class AlteredError(AuthenticationError):
    """Data was changed, repeated, reordered or dropped on its way."""


class Seal:
    """Makes and checks the tags of one connection.

    Each piece of data has a tag: an HMAC-SHA256 over the piece's number in its direction and its
    bytes, under the direction's key. keys: shared by both ends; None if the kernel vouches for the
    other end, and pieces have no tags. tag_bytes: size of a tag.
    """

    def __init__(self, keys: Keys | None = None) -> None:
        self._keys = keys
        self.tag_bytes = 0 if keys is None else _TAG_BYTES

    def sealed(self, number: int, piece: bytes) -> bytes:
        """Return a piece, the number-th that we send, followed by its tag."""
        if self._keys is None:
            return piece
        return piece + _tag(self._keys.sending, number, piece)

    def opened(self, number: int, sealed: bytes | bytearray | memoryview) -> bytes:
        """Verify the tag of a received piece, and return the piece. Raises AlteredError."""
        size = len(sealed) - self.tag_bytes
        piece = bytes(memoryview(sealed)[: max(0, size)])
        if self._keys is None:
            return piece
        tag = bytes(memoryview(sealed)[len(piece) :])
        if not digests.equal(tag, _tag(self._keys.receiving, number, piece)):
            raise AlteredError("a message was altered on its way")
        return piece


def _tag(key: bytes, number: int, piece: bytes) -> bytes:
    return digests.keyed(key, _NUMBER.pack(number) + piece)
