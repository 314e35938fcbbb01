"""A store in a private folder of a file system that all hosts share."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from sirtaki.rendezvous.files.private_folder import make_private_folder
from sirtaki.rendezvous.stores import wire
from sirtaki.rendezvous.trust import digests

SCHEME = "file:"
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.25


class FileStore:
    """One file a value; a value appears whole, by renaming, or not at all.

    address: "file:/folder". The folder is made with mode 0700 where it is missing; its name should
    contain what no other job has, since what an earlier job left would be believed. Raises
    ValueError for an address of another form, PermissionError when the folder is not ours alone,
    OSError.
    """

    def __init__(self, address: str) -> None:
        folder = Path(address.removeprefix(SCHEME))
        if not address.startswith(SCHEME) or not folder.is_absolute():
            raise ValueError(f"not the address of a file store: {address!r}: expected file:/folder")
        self.address = address
        self.folder = folder
        make_private_folder(folder)
        with self._opened():
            pass

    def set(self, key: str, value: bytes, timeout: float | None = None) -> None:
        """See `Store.set`."""
        wire.checked(key, value)
        temporary = f".{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._opened() as folder:
            file = os.open(temporary, flags, 0o600, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(value)
                    stream.flush()
                    os.fsync(file)
                os.rename(temporary, _file_name(key), src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(temporary, dir_fd=folder)
                raise

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
        """Return the value of `key`, None when nobody has set it. PermissionError: not ours."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        # Opening the folder again makes a network file system look again.
        with self._opened() as folder:
            try:
                file = os.open(_file_name(key), flags, dir_fd=folder)
            except FileNotFoundError:
                return None
            with os.fdopen(file, "rb") as stream:
                _require_private(os.fstat(file), f"the value of {key!r} in {self.folder}")
                value = stream.read(wire.MAX_VALUE_BYTES + 1)
        wire.checked(key, value)
        return value

    def remove(self, key: str) -> None:
        """Forget `key`; nothing happens when nobody has set it."""
        with contextlib.suppress(FileNotFoundError), self._opened() as folder:
            os.unlink(_file_name(key), dir_fd=folder)

    def close(self) -> None:
        """See `Store.close`; the files stay for the others."""

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder, checked anew each time since anybody may have replaced it."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(self.folder, flags)
        try:
            _require_private(os.fstat(folder), f"the folder {self.folder}")
            yield folder
        finally:
            os.close(folder)


def _file_name(key: str) -> str:
    # A key may be longer than a file name, and may contain slashes.
    return digests.sha256(key.encode()).hex()


def _require_private(status: os.stat_result, what: str) -> None:
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{what} belongs to user {status.st_uid}, not to us")
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise PermissionError(f"{what} has mode {mode:04o}: others may use it, so we do not")
