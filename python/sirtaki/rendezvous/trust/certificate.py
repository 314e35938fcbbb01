"""A self-signed certificate on P-256, which the standard library can use but not make.

Its signature is not the base of trust: a dialer compares its fingerprint with the one that the
listener's proof covers. The key exists as long as the process.

Ranks make certificates, too, also those that a scheduler, mpirun, Ray or Spark started without a
launcher of ours. Training processes import only numpy and the framework, so this is written out
here instead of with the `cryptography` package.
"""

from __future__ import annotations

import base64
import hashlib
import secrets

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_A = _P - 3
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_SEQUENCE, _SET, _INTEGER, _BITS, _OCTETS, _OID, _TEXT, _TIME = 48, 49, 2, 3, 4, 6, 12, 24
_CURVE = bytes.fromhex("06082a8648ce3d030107")
_PUBLIC_KEY = bytes.fromhex("06072a8648ce3d0201")
_ECDSA_SHA256 = bytes.fromhex("06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")

_Point = tuple[int, int] | None


def make_certificate() -> tuple[bytes, bytes]:
    """Return a fresh certificate (DER) and, for `ssl`, it and its private key (PEM)."""
    key = _random()
    point = b"\x04" + b"".join(_word(part) for part in _times(key, _G) or ())
    algorithm = _der(_SEQUENCE, _ECDSA_SHA256)
    name = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _COMMON_NAME, _der(_TEXT, b"sirtaki job"))))
    body = _der(
        _SEQUENCE,
        _der(0xA0, _integer(2)),
        _integer(1 + secrets.randbelow(2**63)),
        algorithm,
        name,
        # Valid as long as its key exists, even if the clocks of hosts differ.
        _der(_SEQUENCE, _der(_TIME, b"20200101000000Z"), _der(_TIME, b"99991231235959Z")),
        name,
        _der(_SEQUENCE, _der(_SEQUENCE, _PUBLIC_KEY, _CURVE), _bits(point)),
    )
    certificate = _der(_SEQUENCE, body, algorithm, _bits(_sign(key, body)))
    private = _der(
        _SEQUENCE,
        _integer(1),
        _der(_OCTETS, _word(key)),
        _der(0xA0, _CURVE),
        _der(0xA1, _bits(point)),
    )
    return certificate, _pem("CERTIFICATE", certificate) + _pem("EC PRIVATE KEY", private)


def _sign(key: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    nonce = _random()
    point = _times(nonce, _G)
    assert point is not None
    r = point[0] % _N
    s = pow(nonce, -1, _N) * (digest + r * key) % _N
    return _der(_SEQUENCE, _integer(r), _integer(s))


def _random() -> int:
    return 1 + secrets.randbelow(_N - 1)


def _times(factor: int, point: _Point) -> _Point:
    total: _Point = None
    while factor:
        if factor & 1:
            total = _plus(total, point)
        point = _plus(point, point)
        factor >>= 1
    return total


def _plus(left: _Point, right: _Point) -> _Point:
    if left is None or right is None:
        return left or right
    (x1, y1), (x2, y2) = left, right
    if x1 == x2 and (y1 + y2) % _P == 0:
        return None
    if left == right:
        slope = (3 * x1 * x1 + _A) * pow(2 * y1, -1, _P)
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, _P)
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    length = len(content)
    if length < 128:
        return bytes((tag, length)) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 128 | len(size))) + size + content


def _integer(number: int) -> bytes:
    return _der(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _der(_BITS, b"\0", content)


def _pem(kind: str, data: bytes) -> bytes:
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n".encode()
