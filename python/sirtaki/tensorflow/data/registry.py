"""The registry where processes of a tf.data service exchange their addresses.

Both sides of a connection prove knowledge of the key with the standard library's HMAC challenge
before anything else is read. The names and addresses that follow are neither encrypted nor signed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

Address = tuple[str, int]
Step = Callable[[Connection, bytes], None]

_HANDSHAKE_SECONDS = 10
_WRONG_KEY = (AuthenticationError, AssertionError)  # AssertionError: the peer sent no challenge
_MOST_BYTES = 1 << 16
_SHUTDOWN = "shutdown"


class ComputeService:
    """Stores the members' addresses, and sends them to the members that wait for them.

    Args:
        host: The address of this host on which it listens, on a free port.
        key: The key that members must know.
    """

    def __init__(self, host: str, key: bytes) -> None:
        self._server = _Server(host, key)
        self.address: Address = (host, int(self._server.server_address[1]))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class ComputeClient:
    """A client of the compute service in a `TfDataServiceConfig`.

    Args:
        addresses: The service's addresses; the first that answers is used.
        key: Proves that this process belongs to it.
        timeout: Seconds to wait for an answer, and for the awaited event.
    """

    def __init__(self, addresses: Sequence[Address], key: bytes, timeout: float) -> None:
        self._addresses = addresses
        self._key = key
        self._timeout = timeout

    def register_dispatcher(self, dispatcher: int, address: str) -> None:
        """Register the address of a dispatcher; RuntimeError if it has another one already."""
        present = self._ask("tell", f"dispatcher {dispatcher}", address)
        if present != address:
            raise RuntimeError(
                f"dispatcher {dispatcher} of this tf.data service already is at {present}: start "
                "a compute job for each training job"
            )

    def wait_for_dispatcher(self, dispatcher: int) -> str:
        """Return the address of a dispatcher once known; TimeoutError if it is not in time."""
        return self._wait_for(f"dispatcher {dispatcher}")

    def register_worker(self, dispatcher: int, worker: int) -> None:
        """Register a worker of a dispatcher; those of each are numbered from 0."""
        self._ask("tell", _worker(dispatcher, worker), "")

    def wait_for_workers(self, dispatcher: int, workers: int) -> None:
        """Return once a dispatcher has this many workers; TimeoutError if it does not in time."""
        for worker in range(workers):
            self._wait_for(_worker(dispatcher, worker))

    def shutdown(self) -> None:
        """End the compute job: `wait_for_shutdown` returns in its processes."""
        self._ask("tell", _SHUTDOWN, "")

    def wait_for_shutdown(self) -> None:
        """Return once any process has called `shutdown`."""
        self._ask("wait", _SHUTDOWN, None)

    def _wait_for(self, name: str) -> str:
        value = self._ask("wait", name, self._timeout)
        if value is None:
            raise TimeoutError(
                f"{name} of the tf.data service did not register with the compute service at "
                f"{self._where()} within {self._timeout:g} s: look at the output of the compute job"
            )
        return value

    def _ask(self, verb: str, name: str, value: str | float | None) -> str | None:
        with self._connect() as connection:
            connection.send_bytes(json.dumps([verb, name, value]).encode())
            try:
                answer: str | None = json.loads(connection.recv_bytes(_MOST_BYTES))
            except EOFError:
                raise ConnectionError(
                    f"the compute service at {self._where()} has ended while this process waited "
                    f"for {name}"
                ) from None
        return answer

    def _connect(self) -> Connection:
        errors = []
        for address in self._addresses:
            try:
                sock = socket.create_connection(address, self._timeout)
            except OSError as error:
                errors.append(f"{_text(address)}: {error}")
            else:
                return self._prove(sock, address)
        raise ConnectionError(
            f"no compute service answers ({'; '.join(errors)}): is the compute job still running?"
        )

    def _prove(self, sock: socket.socket, address: Address) -> Connection:
        try:
            return _authenticated(sock, self._key, (answer_challenge, deliver_challenge))
        except _WRONG_KEY:
            raise PermissionError(
                f"the compute service at {_text(address)} and this process have different keys: "
                "read the configuration that the running compute job has written"
            ) from None
        except (OSError, EOFError) as error:
            raise ConnectionError(f"{_text(address)} is no compute service: {error}") from None

    def _where(self) -> str:
        return " or ".join(map(_text, self._addresses))


class _Told:
    """The members' registrations; each name keeps its first value."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()

    def tell(self, name: str, value: str) -> str:
        with self._changed:
            kept = self._values.setdefault(name, value)
            self._changed.notify_all()
            return kept

    def wait(self, name: str, seconds: float | None) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: name in self._values, seconds)
            return self._values.get(name)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, key: bytes) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.key = key
        self.told = _Told()
        super().__init__((host, 0), _Handler)


class _Handler(socketserver.BaseRequestHandler):
    """One request, in its own thread, so that a silent stranger delays nobody."""

    server: _Server

    def handle(self) -> None:
        try:
            steps = (deliver_challenge, answer_challenge)
            connection = _authenticated(self.request, self.server.key, steps)
        except (*_WRONG_KEY, OSError, EOFError):
            host, port, *_ = self.client_address
            logging.getLogger(__name__).warning(
                "the compute service refused %s:%s, which does not know its key", host, port
            )
            return
        with connection, contextlib.suppress(OSError, EOFError):  # the client may disconnect
            verb, name, value = json.loads(connection.recv_bytes(_MOST_BYTES))
            told = self.server.told
            answer = told.tell(name, value) if verb == "tell" else told.wait(name, value)
            connection.send_bytes(json.dumps(answer).encode())


def _authenticated(sock: socket.socket, key: bytes, steps: Sequence[Step]) -> Connection:
    """Return a connection to a peer that knows the key; the socket is closed."""
    with sock:
        sock.settimeout(None)
        _limit_receiving(sock, _HANDSHAKE_SECONDS)
        connection = Connection(os.dup(sock.fileno()))
        try:
            for step in steps:
                step(connection, key)
        except BaseException:
            connection.close()
            raise
        _limit_receiving(sock, 0)
    return connection


def _limit_receiving(sock: socket.socket, seconds: int) -> None:
    """Make a receive that takes longer fail; 0: no limit."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", seconds, 0))


def _worker(dispatcher: int, worker: int) -> str:
    return f"worker {worker} of dispatcher {dispatcher}"


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
