"""A store in a private folder of a file system that all hosts share."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from sirtaki.rendezvous.files.private_folder import (
    make_private_folder,
    opened,
    require_private,
    write_whole,
)
from sirtaki.rendezvous.stores import wire
from sirtaki.rendezvous.trust import digests

SCHEME = "file:"
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.25


class FileStore:
    """One file per value; a value appears atomically, by renaming.

    address: "file:/folder". The folder is created with mode 0700 if it is missing; its name should
    be unique to the job, because values of an earlier job would be taken for this one's. Raises
    ValueError for an address of another form, PermissionError when the folder is not private to
    this user, OSError.
    """

    def __init__(self, address: str) -> None:
        folder = Path(address.removeprefix(SCHEME))
        if not address.startswith(SCHEME) or not folder.is_absolute():
            raise ValueError(f"not the address of a file store: {address!r}: expected file:/folder")
        self.address = address
        self.folder = folder
        make_private_folder(folder)
        with opened(folder):
            pass

    def set(self, key: str, value: bytes, timeout: float | None = None) -> None:
        """See `Store.set`."""
        wire.checked(key, value)
        with opened(self.folder) as folder:
            write_whole(folder, _file_name(key), value, durable=True)

    def get(self, key: str, timeout: float) -> bytes:
        """See `Store.get`."""
        wire.checked(key)
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE_SECONDS
        while True:
            value = self.peek(key)
            if value is not None:
                return value
            if time.monotonic() + pause >= deadline:
                raise TimeoutError(
                    f"nobody set {key!r} in {self.folder} within {timeout:g} s; do all hosts share "
                    "that folder?"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def peek(self, key: str) -> bytes | None:
        """Return the value of `key`, None if it is not set. PermissionError: not our file."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        # The folder is opened each time to refresh a network file system, and because it may have
        # been replaced.
        with opened(self.folder) as folder:
            try:
                file = os.open(_file_name(key), flags, dir_fd=folder)
            except FileNotFoundError:
                return None
            with os.fdopen(file, "rb") as stream:
                require_private(os.fstat(file), f"the value of {key!r} in {self.folder}")
                value = stream.read(wire.MAX_VALUE_BYTES + 1)
        wire.checked(key, value)
        return value

    def remove(self, key: str) -> None:
        """Remove `key`; no effect if it is not set."""
        with contextlib.suppress(FileNotFoundError), opened(self.folder) as folder:
            os.unlink(_file_name(key), dir_fd=folder)

    def close(self) -> None:
        """See `Store.close`; the files stay for the others."""


def _file_name(key: str) -> str:
    # A key may be longer than a file name, and may contain slashes.
    return digests.sha256(key.encode()).hex()
