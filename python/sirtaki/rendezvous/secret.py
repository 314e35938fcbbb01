"""The secret of a job, from the file that the launcher or the user gives."""

from __future__ import annotations

import os
import stat

from sirtaki.rendezvous.auth import SECRET_BYTES

HOW_TO_MAKE = "make one with 'head -c 32 /dev/urandom > FILE; chmod 600 FILE'"


def read_secret(path: str) -> bytes:
    """Return the 32 bytes in the file at `path`, or those that its 64 hexadecimal digits mean.

    Raises ValueError when it holds anything else, PermissionError when it is another user's or
    others may read it, OSError.
    """
    with open(path, "rb") as file:  # noqa: PTH123
        status = os.fstat(file.fileno())
        # What has no name (a file in memory) cannot be opened by others.
        shared = status.st_nlink > 0 and stat.S_IMODE(status.st_mode) & 0o077
        if status.st_uid != os.geteuid() or shared:
            raise PermissionError(
                f"the secret in {path} belongs to another user or may be read by others; "
                f"run 'chmod 600 {path}'"
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
