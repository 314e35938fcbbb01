"""Files of a solver's state: .solverstate, in protobuf's format or in HDF5."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.blobs import LARGEST, Array, decoded, encoded, encoded_size
from sirtaki_caffe.proto.files import written_beside
from sirtaki_caffe.proto.formats import binary, hdf5, wire

_ITER, _LEARNED_NET, _HISTORY, _CURRENT_STEP, _MINIMUM_LOSS, _ITER_LAST_EVENT = range(1, 7)


@dataclass
class State:
    """The state of a solver.

    Args:
        iteration: The number of completed iterations.
        learned_net: The file of weights that was written with the state.
        history: The solver's own blobs, for all learnable params in order.
        current_step: The number of steps of the learning rate.
        minimum_loss: The minimum loss so far, for policy "plateau".
        iter_last_event: The iteration of that loss, or of the last step.
    """

    iteration: int
    learned_net: str
    history: list[Array] = field(default_factory=list)
    current_step: int = 0
    minimum_loss: float = 1e38
    iter_last_event: int = 0


def read_state(path: str | Path) -> State:
    """Return the state in a file, which is HDF5 if its name ends in .h5.

    Raises:
        CaffeError: The file cannot be read, or contains no state.
    """
    if Path(path).suffix == ".h5":
        return State(**hdf5.read_state(path))
    state = State(-1, "")
    with binary.refused(path, "solver state"):
        for number, kind, value in binary.top_fields(path):
            _read_field(state, number, kind, value)
    if state.iteration < 0:
        raise CaffeError(f"{path} is no solver state: it tells no iteration")
    return state


def write_state(path: str | Path, state: State) -> None:
    """Write a state: in HDF5 if the name ends in .h5, else in protobuf's format.

    Args:
        path: The file; its old contents remain until writing is complete.
        state: The state. Data of policy "plateau" is written only if it is in use.

    Raises:
        CaffeError: It cannot be written, or has more than 2 GiB.
    """
    if Path(path).suffix == ".h5":
        hdf5.write_state(path, vars(state), _of_plateau(state))
        return
    sizes = [encoded_size(blob) for blob in state.history]
    if sum(sizes) + 20 * len(sizes) + len(state.learned_net.encode()) + 100 > LARGEST:
        raise CaffeError(
            f"{path} would have more than {LARGEST} bytes, the most of a binary file; "
            "write HDF5: snapshot_format: HDF5 in the solver"
        )
    with written_beside(path) as beside, beside.open("wb") as file:
        file.write(wire.counted(_ITER, state.iteration))
        file.write(wire.tagged(_LEARNED_NET, state.learned_net.encode()))
        for blob, size in zip(state.history, sizes, strict=True):
            file.write(wire.head(_HISTORY, size))
            file.writelines(encoded(blob))
        file.write(wire.counted(_CURRENT_STEP, state.current_step))
        if _of_plateau(state):
            file.write(wire.single(_MINIMUM_LOSS, state.minimum_loss))
            file.write(wire.counted(_ITER_LAST_EVENT, state.iter_last_event))


def _of_plateau(state: State) -> bool:
    return state.minimum_loss < 1e38 or state.iter_last_event != 0


def _read_field(state: State, number: int, kind: int, value: Any) -> None:
    if number == _ITER:
        state.iteration = wire.signed(value)
    elif number == _LEARNED_NET:
        state.learned_net = wire.string(value)
    elif number == _HISTORY:
        state.history.append(decoded(wire.content(value)))
        if len(state.history) > binary.MOST_BLOBS:
            raise wire.WireError(f"more than {binary.MOST_BLOBS} blobs")
    elif number == _CURRENT_STEP:
        state.current_step = wire.signed(value)
    elif number == _MINIMUM_LOSS and kind == wire.FIXED32:
        state.minimum_loss = float(np.frombuffer(value[-4:], "<f4")[0])
    elif number == _ITER_LAST_EVENT:
        state.iter_last_event = wire.signed(value)
