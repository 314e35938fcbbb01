"""The secret of a job, read from the file that the launcher or the user provides."""

from __future__ import annotations

import os
import re
import stat
from typing import BinaryIO

from sirtaki.rendezvous.files import memory_file
from sirtaki.rendezvous.files.private_folder import is_private
from sirtaki.rendezvous.trust.auth import SECRET_BYTES

HOW_TO_MAKE = "make one with 'head -c 32 /dev/urandom > FILE; chmod 600 FILE'"
_IN_MEMORY = re.compile(r"/proc/[0-9]+/fd/([0-9]{1,9})")
# They distinguish the launcher's file from any other with the same descriptor.
_SEALS = memory_file.WRITE | memory_file.GROW | memory_file.SHRINK | memory_file.SEAL


def read_secret(path: str) -> bytes:
    """Return the 32 bytes in the file at `path`, in binary or as 64 hexadecimal digits.

    A descriptor of a launcher's process is read as our own if we have inherited it. Raises
    ValueError for other content, PermissionError when other users may read the file, unless it is
    root's and readable by a group of ours, OSError.
    """
    in_memory = _IN_MEMORY.fullmatch(path)
    if in_memory is None:
        return _read_file(path)
    number = int(in_memory[1])
    inherited = _read_inherited(number)
    if inherited is not None:
        return inherited
    try:
        return _read_file(path)
    except OSError as error:
        raise PermissionError(
            f"cannot read the job's secret: file descriptor {number} was not inherited, and "
            f"{path} cannot be opened ({error.strerror or error}). What starts this rank, such as "
            "a container, closes descriptors and has a user or PID namespace of its own: let it "
            f"pass on descriptor {number} (podman run --preserve-fd={number}) or share the "
            "host's namespaces, or start horovodrun inside the container"
        ) from error


def sealed_secret(secret: bytes) -> BinaryIO:
    """Put a secret into a memory file that processes may inherit. Raises OSError."""
    descriptor = memory_file.create("sirtaki-secret", sealable=True)
    file = os.fdopen(descriptor, "wb", buffering=0)
    os.fchmod(descriptor, 0o600)
    file.write(secret)
    memory_file.add_seals(descriptor, _SEALS)
    return file


def _read_inherited(number: int) -> bytes | None:
    """Return the secret in the launcher's sealed file, None if the descriptor is another file's."""
    try:
        if memory_file.seals_of(number) != _SEALS:
            return None
        data = os.pread(number, SECRET_BYTES + 1, 0)
    except OSError:
        return None
    return data if len(data) == SECRET_BYTES else None


def _is_ours_alone(status: os.stat_result) -> bool:
    # Others cannot open a file without a name (a memory file).
    nameless = status.st_nlink == 0 and status.st_uid == os.geteuid()
    return nameless or is_private(status)


def _is_given_by_root(status: os.stat_result) -> bool:
    """Return whether root lets only a group of ours read it, as Kubernetes does."""
    groups = {os.getegid(), *os.getgroups()}
    by_root = status.st_uid == 0 and status.st_gid in groups
    return by_root and stat.S_IMODE(status.st_mode) == 0o440


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        status = os.fstat(file.fileno())
        if not (_is_ours_alone(status) or _is_given_by_root(status)):
            raise PermissionError(
                f"the secret in {path} belongs to another user or may be read by others; "
                f"run 'chmod 600 {path}' (or let it be root's, with mode 0440 and a group of yours)"
            )
        data = file.read(4 * SECRET_BYTES)
    if len(data) == SECRET_BYTES:
        return data
    try:
        secret = bytes.fromhex(data.decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"{path} does not hold a secret of {SECRET_BYTES} bytes; {HOW_TO_MAKE}")
    return secret
