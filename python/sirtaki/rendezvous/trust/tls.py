"""TLS between processes of a job, pinned to the job's secret.

A listener makes its own certificate, and its proof covers the fingerprint (see `auth`). So a dialer
that sees the same fingerprint in the TLS connection is connected to that listener, without a man in
the middle. The dialer sends its proof only after that.
"""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import ssl
from dataclasses import dataclass
from typing import Any

from sirtaki.rendezvous.files import memory_file
from sirtaki.rendezvous.trust import auth
from sirtaki.rendezvous.trust.certificate import make_certificate


@dataclass(frozen=True)
class ListenerTls:
    """The context of a listener's connections, and its claim."""

    context: ssl.SSLContext
    claim: bytes


@functools.cache
def listener_tls() -> ListenerTls:
    """Return that of this process, made at the first call."""
    certificate, pem = make_certificate()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslsocket_class = TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A memory file, because OpenSSL needs a path.
    file = memory_file.create("sirtaki-tls")
    try:
        os.write(file, pem)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return ListenerTls(context, hashlib.sha256(certificate).digest())


@functools.cache
def dialer_context() -> ssl.SSLContext:
    """Return the context of connections to others; `require_pinned` verifies them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # No authority signs a job's certificates: the fingerprint is verified instead.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def require_pinned(sock: socket.socket, claim: bytes) -> None:
    """Raise auth.WrongSecretError unless the verified claim matches this connection."""
    assert isinstance(sock, TlsSocket)
    certificate = sock.getpeercert(binary_form=True) or b""
    if hashlib.sha256(certificate).digest() != claim:
        raise auth.WrongSecretError("somebody in between has taken over the TLS connection")


class TlsSocket(ssl.SSLSocket):
    """A TLS connection that raises BlockingIOError, as any socket does, if it would block."""

    def do_handshake(self, block: bool = False) -> None:
        """Continue the handshake. Raises auth.NotAPeerError when the other end breaks it."""
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError(str(error)) from None
        except ssl.SSLError as error:
            raise auth.NotAPeerError(
                f"not a Sirtaki peer that speaks TLS ({error.reason})"
            ) from None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Receive available data."""
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError(str(error)) from None

    def send(self, data: Any, flags: int = 0) -> int:
        """Send as much as possible without blocking."""
        try:
            return super().send(data, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError(str(error)) from None


def wrap_accepted(sock: socket.socket) -> TlsSocket:
    """Add TLS to an accepted non-blocking connection, before the handshake."""
    return _wrap(listener_tls().context, sock, True)


def wrap_dialed(sock: socket.socket) -> TlsSocket:
    """Add TLS to a dialed non-blocking connection, before the handshake."""
    return _wrap(dialer_context(), sock, False)


def _wrap(context: ssl.SSLContext, sock: socket.socket, server: bool) -> TlsSocket:
    wrapped = context.wrap_socket(sock, server_side=server, do_handshake_on_connect=False)
    assert isinstance(wrapped, TlsSocket)
    return wrapped
