"""Reading files with a limit, and writing them whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from sirtaki_caffe.errors import CaffeError


def read_bytes(path: str | Path, limit: int) -> bytes:
    """What a file holds.

    Raises:
        CaffeError: It cannot be read, or is longer than `limit` bytes.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise CaffeError(f"cannot read {path}: {reason(error)}") from error
    if len(data) > limit:
        raise CaffeError(f"{path} is longer than {limit} bytes, the most that is read")
    return data


@contextlib.contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """A path beside a file to write to; it takes the file's name at the end.

    Nothing is left of it if writing fails.

    Raises:
        CaffeError: It cannot be written.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(target)
    except (OSError, ValueError) as error:
        raise CaffeError(f"cannot write {path}: {reason(error)}") from error
    finally:
        beside.unlink(missing_ok=True)


def reason(error: Exception) -> str:
    """Why a file could not be read or written, without its path."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
