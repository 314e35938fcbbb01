"""Keys of jobs, and message digests that authenticate their owners."""

from __future__ import annotations

import hashlib
import hmac
import secrets

HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
DIGEST_LENGTH = hashlib.sha256().digest_size
_KEY_BYTES = 32


def make_secret_key() -> bytes:
    """Return a new key."""
    return secrets.token_bytes(_KEY_BYTES)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """Return the digest of a message under a key."""
    return hmac.new(key, message, hashlib.sha256).digest()


def check_digest(digest: bytes, message: bytes, key: bytes) -> bool:
    """Return whether a digest matches the message under the key."""
    return hmac.compare_digest(digest, compute_digest(key, message))
