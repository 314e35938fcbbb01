"""Snapshots of a solver, and resuming from them.

Beside Caffe's two files is a third, `<state>.position.json`: the data positions of all processes,
their random numbers, and the losses of the current mean. With it a resumed run equals an
uninterrupted one; without it, as in Caffe, data start again at the first record.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.net.net import Net
from sirtaki_caffe.parallel import batch_statistics
from sirtaki_caffe.proto.state import State, read_state, write_state
from sirtaki_caffe.proto.weights import read_weights, write_weights
from sirtaki_caffe.solver.report import LossWindow

if TYPE_CHECKING:
    from sirtaki_caffe.solver.solver import Solver

_HDF5 = 0
_MOST_BYTES = 64 << 20


def write(solver: Solver) -> None:
    """Write weights, position and state; all call it, and process 0 writes.

    Raises:
        CaffeError: A file cannot be written.
    """
    param = solver.param
    hdf5 = param.snapshot_format == _HDF5
    stem = f"{param.snapshot_prefix}_iter_{solver.iter}"
    model, state = (f"{stem}{ending}{'.h5' * hdf5}" for ending in (".caffemodel", ".solverstate"))
    kind = "HDF5" if hdf5 else "binary proto"
    position = _position(solver)
    with solver.processes.averaged(batch_statistics(solver.net.layers), "statistics"):
        if not solver.processes.is_first:
            return
        solver.log("solver.cpp", f"Snapshotting to {kind} file {model}")
        saved = solver.net.saved()
        if not param.snapshot_diff:
            for blobs in saved.values():
                for blob in blobs:
                    blob.diff = None
        try:
            write_weights(model, solver.net.proto, saved)
            solver.log("sgd_solver.cpp", f"Snapshotting solver state to {kind} file {state}")
            _write_position(_position_file(state), position)
            write_state(state, _state(solver, model))
        except OSError as error:
            raise CaffeError(f"cannot write the snapshot {stem}: {error}") from error


def restore(solver: Solver, path: str) -> None:
    """Continue from a saved state; all processes read it.

    Raises:
        CaffeError: A file cannot be read, or is not of this solver.
    """
    solver.log("solver.cpp", f"Restoring previous solver status from {path}")
    state = read_state(path)
    if state.iteration < 0 or state.current_step < 0:
        raise CaffeError(f"{path}: its iteration or its current_step is below 0")
    solver.take_weights(read_weights(_model(state.learned_net, path)))
    solver.log("sgd_solver.cpp", "SGDSolver: restoring history")
    _take_history(solver, state, path)
    solver.processes.broadcast(solver.update.history, "history")
    policy = solver.policy
    solver.iter = state.iteration
    policy.current_step = state.current_step
    policy.minimum_loss = state.minimum_loss
    policy.iter_last_event = state.iter_last_event
    position = _read_position(_position_file(path)) if solver.processes.is_first else None
    _take_position(solver, solver.processes.broadcast_object(position, "position"))


def _state(solver: Solver, model: str) -> State:
    policy = solver.policy
    return State(
        iteration=solver.iter,
        learned_net=model,
        history=[tensor.detach().cpu().numpy() for tensor in solver.update.history],
        current_step=policy.current_step,
        minimum_loss=policy.minimum_loss,
        iter_last_event=policy.iter_last_event,
    )


def _model(name: str, state: str) -> str:
    """Return the file of weights named in a state, or the one beside it if that is missing."""
    beside = Path(state).parent / Path(name).name
    return str(beside) if not Path(name).exists() and beside.exists() else name


def _take_history(solver: Solver, state: State, path: str) -> None:
    own = solver.update.history
    if len(state.history) != len(own):
        raise CaffeError(
            f"{path}: Incorrect length of history blobs: {len(state.history)}, where solver type "
            f"{solver.param.type} of this net has {len(own)}"
        )
    for number, (tensor, array) in enumerate(zip(own, state.history, strict=True)):
        if _without_ones(array.shape) != _without_ones(tuple(tensor.shape)):
            raise CaffeError(
                f"{path}: history blob {number} has shape {list(array.shape)}, the net's param "
                f"{list(tensor.shape)}"
            )
        values = torch.from_numpy(np.ascontiguousarray(array))
        tensor.copy_(values.reshape(tensor.shape))


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the leading ones that old files add."""
    first = next((i for i, size in enumerate(shape) if size != 1), len(shape))
    return shape[first:]


def _position_file(state: str) -> str:
    return f"{state}.position.json"


def _nets(solver: Solver) -> list[Net]:
    return [solver.net, *solver.test_nets]


def _position(solver: Solver) -> dict[str, Any]:
    """Return the positions of all processes; called by all of them."""
    own = {
        "data": [
            {layer.name: layer.position() for layer in net.layers if hasattr(layer, "position")}
            for net in _nets(solver)
        ],
        "random": [
            base64.b64encode(net.context.random.get_state().numpy().tobytes()).decode()
            for net in _nets(solver)
        ],
    }
    processes = solver.processes.gather(own, "position")
    return {
        "iteration": solver.iter,
        "losses": solver.window.in_order(),
        "mean_loss": solver.window.mean,
        "processes": processes,
    }


def _write_position(path: str, position: dict[str, Any]) -> None:
    beside = Path(f"{path}.part")
    beside.write_text(json.dumps(position))
    beside.replace(path)


def _read_position(path: str) -> dict[str, Any] | None:
    """Return the contents of the file, or None without one.

    Raises:
        CaffeError: The file is invalid.
    """
    file = Path(path)
    try:
        if not file.exists():
            return None
        if file.stat().st_size > _MOST_BYTES:
            raise CaffeError(f"{path}: is larger than any file of positions")
        position = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise CaffeError(f"{path}: is not a file of positions: {error}") from error
    if not isinstance(position, dict) or not isinstance(position.get("processes"), list):
        raise CaffeError(f"{path}: is not a file of positions; remove it to go on without it")
    return position


def _take_position(solver: Solver, position: dict[str, Any] | None) -> None:
    solver.window = LossWindow(solver.param.average_loss)
    processes = position["processes"] if position else []
    if position is None or len(processes) != solver.processes.size:
        why = f"it is of {len(processes)} processes" if position else "there is none"
        solver.log(
            "solver.cpp", f"No position of the data ({why}): they begin with the first record"
        )
        return
    own = processes[solver.processes.rank]
    try:
        for net, data, state in zip(_nets(solver), own["data"], own["random"], strict=True):
            for layer in net.layers:
                if hasattr(layer, "restore") and layer.name in data:
                    layer.restore(data[layer.name])
            bits = np.frombuffer(base64.b64decode(state), dtype=np.uint8).copy()
            net.context.random.set_state(torch.from_numpy(bits))
        for loss in position["losses"]:
            solver.window.add(float(loss))
        solver.window.mean = float(position["mean_loss"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CaffeError(
            "the file of positions beside the state does not fit this solver; remove it to go on "
            f"without it: {error}"
        ) from error
