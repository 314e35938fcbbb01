"""A coverage-guided search for files of Caffe's that are not refused properly.

    make fuzz-python     (seconds: FUZZ_SECONDS=60)

Reading a file may raise CaffeError; anything else is a find, and so is a text that is not the
same after it was written and read again.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports():
    from sirtaki_caffe.proto import blobs, state, text, upgrade, weights
    from sirtaki_caffe.proto.formats import binary

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.schema import NetParameter, SolverParameter

FOLDER = Path(tempfile.mkdtemp())


def checked(kind: Any, upgraded: Callable[[Any], Any], data: bytes) -> None:
    message = text.parse(data.decode("utf-8", "surrogateescape"), kind, "text")
    once = text.text_of(message)
    if text.text_of(text.parse(once, kind, "again")) != once:
        raise AssertionError(f"written and read again, it is another: {once}")
    upgraded(message)


def net_text(data: bytes) -> None:
    checked(NetParameter, upgrade.upgrade_net, data)


def solver_text(data: bytes) -> None:
    checked(SolverParameter, upgrade.upgrade_solver, data)


def file_of(data: bytes, name: str = "file") -> Path:
    path = FOLDER / name
    path.write_bytes(data)
    return path


def phases(data: bytes) -> None:
    text.read_phases(file_of(data))


def weights_file(data: bytes) -> None:
    # HDF5 is read by its own library.
    if not data.startswith(b"\x89HDF"):
        weights.read_weights(file_of(data))


def binary_net(data: bytes) -> None:
    net = upgrade.upgrade_net(binary.read_net(file_of(data)))
    binary.write_net(FOLDER / "copy", net)
    weights.read_weights(FOLDER / "copy")


def state_file(data: bytes) -> None:
    before = state.read_state(file_of(data))
    state.write_state(FOLDER / "copy", before)
    if state.read_state(FOLDER / "copy").iteration != before.iteration:
        raise AssertionError("written and read again, it is another")


def mean_file(data: bytes) -> None:
    blobs.read_mean(file_of(data))


TARGETS = (net_text, solver_text, phases, weights_file, binary_net, state_file, mean_file)


def one(data: bytes) -> None:
    if data:
        with contextlib.suppress(CaffeError):
            TARGETS[data[0] % len(TARGETS)](data[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
