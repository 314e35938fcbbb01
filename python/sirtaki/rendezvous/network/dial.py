"""Connects to a process of the job that may have several addresses, some of them unreachable."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from collections.abc import Callable, Sequence

from sirtaki.rendezvous.network.lookup import Lookup, unanswered
from sirtaki.rendezvous.network.tcp_socket import Endpoint, format_endpoint
from sirtaki.rendezvous.trust import auth

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5
_LOOK_SECONDS = 0.1


def never() -> bool:
    """Return False: the connection is always needed."""
    return False


def dial(
    endpoints: Sequence[Endpoint],
    authenticate: Callable[[], auth.Dialer],
    who: str,
    deadline: float,
    patient: bool = False,
    tls: bool = False,
    ended: Callable[[], bool] = never,
    answer_seconds: float = float("inf"),
) -> tuple[socket.socket, auth.Keys]:
    """Connect to the endpoint that answers and authenticates first; close the other connections.

    authenticate: makes our side of one authentication. who: the peer, for messages. deadline: a
    time of time.monotonic(). patient: whether the peer may not be listening yet. tls: whether to
    encrypt. ended: whether the caller no longer needs the connection. answer_seconds: how long a
    host that is known to be up may be silent. Returns a blocking socket and the keys of the
    connection. Raises TimeoutError, ConnectionError, auth.AuthenticationError; the message
    describes each endpoint.
    """
    pause = _FIRST_PAUSE_SECONDS
    while True:
        attempt = _Round(endpoints, authenticate, deadline, tls, answer_seconds)
        with contextlib.closing(attempt):
            proved = attempt.run(ended)
        if proved is not None:
            proved[0].settimeout(None)
            return proved
        if ended():
            raise ConnectionError(f"{who} is not needed any more: the world has ended")
        late = time.monotonic() + pause >= deadline
        if late or not attempt.worth_repeating(patient):
            raise attempt.failure(who, late)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


class _Attempt:
    """One connection before its authentication is complete."""

    def __init__(self, endpoint: Endpoint, sock: socket.socket, deadline: float) -> None:
        self.endpoint = endpoint
        self.sock = sock
        self.connected = False
        self.dialer: auth.Dialer | None = None
        self.incoming = b""
        self.deadline = deadline


class _Round:
    """All endpoints tried once, at the same time."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        authenticate: Callable[[], auth.Dialer],
        deadline: float,
        tls: bool,
        answer_seconds: float,
    ) -> None:
        self._tls = tls
        self._answer_seconds = answer_seconds
        self._endpoints = endpoints
        self._authenticate = authenticate
        self._deadline = deadline
        self._selector = selectors.DefaultSelector()
        self._failures: dict[Endpoint, Exception] = {}
        self._lookups = {host: Lookup(host) for host in dict.fromkeys(h for h, _ in endpoints)}

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.sock.close()
        self._selector.close()

    def run(self, ended: Callable[[], bool]) -> tuple[socket.socket, auth.Keys] | None:
        """Return the first authenticated connection and its keys, None if all failed or `ended`."""
        self._begin_found()
        while (self._selector.get_map() or self._lookups) and not ended():
            now = time.monotonic()
            if now >= self._deadline:
                break
            self._begin_found()
            attempts = [key.data for key in self._selector.get_map().values()]
            ends = min(self._deadline, *(attempt.deadline for attempt in attempts), now + 60)
            for key, _events in self._selector.select(min(max(0.0, ends - now), _LOOK_SECONDS)):
                if self._advance(key.data):
                    self._selector.unregister(key.data.sock)
                    return key.data.sock, key.data.dialer.keys()
            self._expire()
        return None

    def worth_repeating(self, patient: bool) -> bool:
        """Return whether another round may succeed."""
        failures = self._failures.values()
        if any(isinstance(failure, auth.VersionMismatchError) for failure in failures):
            return False
        # An overloaded listener hangs up or is silent; any other failure is permanent.
        busy = (_HungUpError, _SilentError)
        return patient or any(isinstance(failure, busy) for failure in failures)

    def failure(self, who: str, late: bool) -> Exception:
        """Return the exception to raise."""
        told = "; ".join(
            f"{format_endpoint(endpoint)}: {self._failures.get(endpoint) or self._silent(endpoint)}"
            for endpoint in self._endpoints
        )
        message = f"cannot reach {who}. Tried {told or 'nothing: it offers no address'}"
        for kind in _TOLD_FIRST:
            if any(isinstance(failure, kind) for failure in self._failures.values()):
                return kind(message)
        unanswered = len(self._failures) < len(self._endpoints)
        return TimeoutError(message) if late or unanswered else ConnectionError(message)

    def _silent(self, endpoint: Endpoint) -> str:
        return unanswered(endpoint[0]) if endpoint[0] in self._lookups else "no answer"

    def _begin_found(self) -> None:
        """Start connections to the hosts whose addresses are known by now."""
        # Most names resolve at once; until all have, connect to those that have resolved.
        wait = 0.0 if self._selector.get_map() else _LOOK_SECONDS
        for host, lookup in list(self._lookups.items()):
            if lookup.wait(min(wait, self._deadline - time.monotonic())):
                del self._lookups[host]
                for endpoint in self._endpoints:
                    if endpoint[0] == host:
                        self._begin(endpoint, lookup)
            else:
                wait = 0.0

    def _begin(self, endpoint: Endpoint, lookup: Lookup) -> None:
        try:
            for family, address in lookup.addresses(endpoint[1]):
                sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                try:
                    code = sock.connect_ex(address)
                except BaseException:
                    sock.close()
                    raise
                if code not in (0, errno.EINPROGRESS):
                    sock.close()
                    self._failures[endpoint] = OSError(code, os.strerror(code))
                    continue
                answer_by = time.monotonic() + self._answer_seconds
                attempt = _Attempt(endpoint, sock, answer_by)
                self._selector.register(sock, selectors.EVENT_WRITE, attempt)
        except OSError as error:
            self._failures[endpoint] = error

    def _advance(self, attempt: _Attempt) -> bool:
        """Continue an attempt without blocking; True when both sides are authenticated."""
        try:
            if attempt.dialer is None:
                self._greet(attempt)
                return False
            return self._prove(attempt, attempt.dialer)
        except BlockingIOError:
            return False
        except auth.AuthenticationError as error:
            with contextlib.suppress(OSError):
                attempt.sock.send(error.answer)
            self._fail(attempt, error)
        except (OSError, ValueError) as error:
            self._fail(attempt, error)
        return False

    def _greet(self, attempt: _Attempt) -> None:
        if not attempt.connected:
            code = attempt.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            attempt.connected = True
            attempt.deadline = time.monotonic() + auth.SECONDS
            if self._tls:
                self._put_tls_on(attempt)
        if self._tls:
            attempt.sock.do_handshake()  # type: ignore[attr-defined]
        attempt.dialer = self._authenticate()
        attempt.sock.send(attempt.dialer.greeting)  # fits into an empty socket
        self._selector.modify(attempt.sock, selectors.EVENT_READ, attempt)

    def _put_tls_on(self, attempt: _Attempt) -> None:
        from sirtaki.rendezvous.trust.tls import wrap_dialed

        self._selector.unregister(attempt.sock)
        attempt.sock = wrap_dialed(attempt.sock)
        self._selector.register(attempt.sock, selectors.EVENT_READ, attempt)

    def _prove(self, attempt: _Attempt, dialer: auth.Dialer) -> bool:
        while len(attempt.incoming) < auth.ANSWER_BYTES:
            try:
                data = attempt.sock.recv(auth.ANSWER_BYTES - len(attempt.incoming))
            except ConnectionError as error:
                raise _HungUpError(str(error)) from error
            if not data:
                raise _HungUpError("it closed the connection")
            attempt.incoming += data
            if not auth.could_be_greeting(attempt.incoming):
                raise auth.NotAPeerError("not a Sirtaki peer")
        proof, claim = dialer.prove(attempt.incoming)
        if self._tls:
            from sirtaki.rendezvous.trust.tls import require_pinned

            require_pinned(attempt.sock, claim)
        attempt.sock.send(proof)
        return True

    def _expire(self) -> None:
        now = time.monotonic()
        for key in list(self._selector.get_map().values()):
            if key.data.deadline > now:
                continue
            if key.data.connected:
                text = f"not a Sirtaki peer: silent for {auth.SECONDS:g} s"
                self._fail(key.data, _SilentError(text))
            else:
                text = f"the host did not answer for {self._answer_seconds:g} s"
                self._fail(key.data, TimeoutError(text))

    def _fail(self, attempt: _Attempt, error: Exception) -> None:
        self._failures[attempt.endpoint] = error
        self._selector.unregister(attempt.sock)
        attempt.sock.close()


_TOLD_FIRST = (
    auth.VersionMismatchError,
    auth.OtherProtocolError,
    auth.WrongSecretError,
    auth.NotAPeerError,
)


class _HungUpError(ConnectionError):
    """The listener accepted and closed without an answer."""


class _SilentError(auth.NotAPeerError):
    """The listener does not answer a greeting."""
