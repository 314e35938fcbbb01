"""Trace files; by extension Chrome's JSON, the same compressed, or Perfetto's protobuf."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

from sirtaki.observe.trace.chrome import NoTrace, from_json, to_json
from sirtaki.observe.trace.model import Trace
from sirtaki.observe.trace.perfetto import to_protobuf

_ENDINGS = (".json", ".json.gz", ".pftrace")


def require_writable(path: str) -> None:
    """Refuse early a file that could not be written later.

    Raises:
        ValueError: The extension is unknown.
        OSError: The folder does not exist or is not writable.
    """
    if not path.endswith(_ENDINGS):
        raise ValueError(f"{path}: a trace's name ends in {', '.join(_ENDINGS)}")
    beside = _beside(path)
    beside.touch(exist_ok=False)
    beside.unlink()


def write(trace: Trace, path: str) -> None:
    """Write a trace atomically. Raises as `require_writable`."""
    require_writable(path)
    beside = _beside(path)
    try:
        if path.endswith(".pftrace"):
            with beside.open("xb") as binary:
                binary.write(to_protobuf(trace))
        else:
            packed = path.endswith(".gz")
            with gzip.open(beside, "xt", 6) if packed else beside.open("x") as file:
                file.writelines(to_json(trace))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _beside(path: str) -> Path:
    """Return the path of a new file with a random name, which nobody can have linked elsewhere."""
    return Path(f"{path}.{os.urandom(8).hex()}.new")


def read(path: str) -> Trace:
    """Return the trace in a file.

    Raises:
        OSError: The file cannot be read.
        NoTrace: It contains no trace of ours, or one as protobuf, which only Perfetto reads.
    """
    if path.endswith(".pftrace"):
        raise NoTrace(f"{path}: of traces only .json and .json.gz can be read again; write both")
    data = Path(path).read_bytes()
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return from_json(data.decode())
    except (EOFError, zlib.error, UnicodeDecodeError, gzip.BadGzipFile, NoTrace) as error:
        raise NoTrace(f"{path}: {error}") from None
