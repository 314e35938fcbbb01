"""SHA-256 and HMAC-SHA256, imported at first use: a job on one host needs neither."""

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
    """Compare two values in constant time."""
    import hmac

    return hmac.compare_digest(one, other)
