"""Ranks without a secret agree on one through a store that anybody may read.

This is a Diffie-Hellman key agreement in a group of RFC 3526. A reader of the store, then or later,
learns nothing. The ranks are not authenticated: a process that can write to the store during the
agreement can take a rank's place.
"""

from __future__ import annotations

import secrets
import time

from sirtaki.rendezvous.stores.store import Store
from sirtaki.rendezvous.trust import digests
from sirtaki.rendezvous.trust.auth import SECRET_BYTES

# Group 15 of RFC 3526.
_PRIME = int(
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08"
    "798e3404ddef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637"
    "ed6b0bff5cb6f406b7edee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598"
    "da48361c55d39a69163fa8fd24cf5f83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e"
    "4abc9804f1746c08ca18217c32905e462e36ce3be39e772c180e86039b2783a2ec07a28fb5c55df06f4c52"
    "c9de2bcbf6955817183995497cea956ae515d2261898fa051015728e5a8aaac42dad33170d04507a33a855"
    "21abdf1cba64ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7abf5ae8cdb0933d71e8c94e04a"
    "25619dcee3d2261ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200cbbe117577a615d6c"
    "770988c0bad946e208e24fa074e5ab3143db5bfce0fd108e4b82d120a93ad2caffffffffffffffff",
    16,
)
_BASE = 2
_EXPONENT_BITS = 256
_BYTES = _PRIME.bit_length() // 8
_LABEL = b"sirtaki grant of a secret\0"


def agree(store: Store, prefix: str, rank: int, size: int, deadline: float) -> bytes:
    """Return a secret that all ranks share, unknown to those who only read the store.

    Every rank calls it. prefix: of the store's keys, used once only. deadline: time.monotonic().
    Raises TimeoutError, ConnectionError as stores do, ValueError for invalid values.
    """
    private = secrets.randbits(_EXPONENT_BITS) | 1 << _EXPONENT_BITS - 1
    public = pow(_BASE, private, _PRIME)
    store.set(f"{prefix}/public/{rank}", public.to_bytes(_BYTES, "big"))

    def shared_with(other: int, first: int, second: int, theirs: int) -> bytes:
        both = pow(theirs, private, _PRIME).to_bytes(_BYTES, "big")
        ends = first.to_bytes(_BYTES, "big") + second.to_bytes(_BYTES, "big")
        return digests.keyed(digests.sha256(both), _LABEL + other.to_bytes(4, "big") + ends)

    def value(key: str) -> bytes:
        return store.get(f"{prefix}/{key}", max(0.0, deadline - time.monotonic()))

    if rank != 0:
        theirs = _parse(value("public/0"))
        return _mixed(value(f"grant/{rank}"), shared_with(rank, theirs, public, theirs))
    secret = secrets.token_bytes(SECRET_BYTES)
    for other in range(1, size):
        theirs = _parse(value(f"public/{other}"))
        grant = _mixed(secret, shared_with(other, public, theirs, theirs))
        store.set(f"{prefix}/grant/{other}", grant)
    return secret


def _parse(data: bytes) -> int:
    number = int.from_bytes(data, "big")
    if len(data) != _BYTES or not 1 < number < _PRIME - 1:
        raise ValueError("the store holds a public key that makes no sense")
    return number


def _mixed(one: bytes, other: bytes) -> bytes:
    if len(one) != SECRET_BYTES:
        raise ValueError("the store holds a grant of a secret that makes no sense")
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
