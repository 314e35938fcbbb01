"""SHA-256 and HMAC-SHA256, loaded when the first is wanted: a job on one host wants none."""

from __future__ import annotations

Bytes = bytes | bytearray | memoryview


def sha256(data: Bytes) -> bytes:
    """Return the hash of some bytes."""
    import hashlib

    return hashlib.sha256(data).digest()


def keyed(key: bytes, data: bytes) -> bytes:
    """Return the HMAC-SHA256 of some bytes under a key."""
    import hmac

    return hmac.digest(key, data, "sha256")


def equal(one: Bytes, other: Bytes) -> bool:
    """Compare in a time that does not tell where two values differ."""
    import hmac

    return hmac.compare_digest(one, other)
