"""Abstract Unix sockets between processes of one user, authenticated and not on disk."""

from __future__ import annotations

import os
import socket
import struct
import time

_CREDENTIALS = struct.Struct("iII")  # user ids go up to 2^32 - 2
_RETRY_SECONDS = 0.005


def listen(name: str = "", backlog: int = 4096) -> tuple[socket.socket, str]:
    """Listen on the abstract Unix socket `name` ("@…"), default one with a fresh random name.

    Returns the listening socket and its name. Raises OSError when another process listens there.
    """
    name = name.removeprefix("@") or "sirtaki-" + os.urandom(16).hex()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind("\0" + name)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener, "@" + name


def connect(name: str, deadline: float) -> socket.socket:
    """Connect to the abstract Unix socket `name` ("@…") of a process of this user.

    deadline: a time of time.monotonic(). Returns a blocking socket. Raises ValueError for a name of
    another form, PermissionError when another user listens there, TimeoutError, ConnectionError.
    """
    if not name.startswith("@") or len(name) < 2:
        raise ValueError(f"not the name of an abstract Unix socket: {name!r}")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        set_deadline(sock, deadline)
        _connect_when_there_is_room(sock, "\0" + name[1:], deadline)
        require_same_user(sock)
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


def _connect_when_there_is_room(sock: socket.socket, address: str, deadline: float) -> None:
    while True:
        try:
            sock.connect(address)
            return
        except BlockingIOError:
            # With a full backlog, connect fails with EAGAIN at once instead of waiting.
            if time.monotonic() >= deadline:
                raise TimeoutError("the listener accepts no connections") from None
            time.sleep(_RETRY_SECONDS)


def is_same_user(sock: socket.socket) -> bool:
    """Return whether the peer of a connected Unix socket has our effective user id."""
    return peer_of(sock)[1] == os.geteuid()


def listening_user(name: str) -> int | None:
    """Return the id of the user that listens on the socket `name` ("@…"), None if nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            sock.connect("\0" + name[1:])
            return peer_of(sock)[1]
        except OSError:
            return None


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end of a connected Unix socket."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return int(pid), int(uid)


def require_same_user(sock: socket.socket) -> None:
    """Raise PermissionError unless the peer has our effective user id."""
    if not is_same_user(sock):
        raise PermissionError("the process at the other end of the Unix socket is another user's")


def set_deadline(sock: socket.socket, deadline: float) -> None:
    """Make blocking calls on `sock` raise TimeoutError at `deadline` (time.monotonic())."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("timed out")
    sock.settimeout(remaining)


def receive_some(sock: socket.socket, count: int, most: int) -> tuple[bytes, list[int]]:
    """Read up to `count` available bytes, and up to `most` descriptors sent with them."""
    width = struct.calcsize("i")
    # `socket.recv_fds` ignores its flags.
    data, ancillary, _flags, _address = sock.recvmsg(
        count, socket.CMSG_SPACE(most * width), socket.MSG_CMSG_CLOEXEC
    )
    descriptors = [
        number
        for level, kind, payload in ancillary
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for (number,) in struct.iter_unpack("i", payload[: len(payload) // width * width])
    ]
    return data, descriptors


def receive_with_descriptors(
    sock: socket.socket, count: int, most: int, deadline: float
) -> tuple[bytes, list[int]]:
    """Read `count` bytes, and up to `most` descriptors sent with them.

    Raises as `receive_exactly` does; then no descriptor stays open.
    """
    set_deadline(sock, deadline)
    data, descriptors = receive_some(sock, count, most)
    try:
        data += receive_exactly(sock, count - len(data), deadline)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return data, descriptors


def receive_exactly(sock: socket.socket, count: int, deadline: float) -> bytes:
    """Read `count` bytes. Raises ConnectionError when the peer closes first, TimeoutError."""
    buffer = bytearray(count)
    view = memoryview(buffer)
    received = 0
    while received < count:
        set_deadline(sock, deadline)
        step = sock.recv_into(view[received:])
        if step == 0:
            raise ConnectionError("the peer closed the connection")
        received += step
    return bytes(buffer)
