"""The fields of a solver: its nets, their states, and the location of snapshots."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sirtaki_caffe.errors import CaffeError, FieldError
from sirtaki_caffe.proto import text
from sirtaki_caffe.proto.schema import TEST, TRAIN, NetState
from sirtaki_caffe.solver.detection import VERSIONS

_TRAIN_FIELDS = ("net", "net_param", "train_net", "train_net_param")


@dataclass(frozen=True)
class NetSource:
    """A net of a solver.

    Args:
        proto: Its NetParameter; `state` is the complete state of the net.
        where: The solver's source of it, for the log.
        file: Its file; "": it is part of the solver.
    """

    proto: Any
    where: str
    file: str


@contextlib.contextmanager
def placed(path: str | Path) -> Iterator[None]:
    """Add a file's place to errors of a solver's fields.

    Raises:
        CaffeError: The error from the context, with file, line and column before it.
    """
    try:
        yield
    except FieldError as error:
        raise CaffeError(f"{text.field_place(path, error.field)}: {error}") from error


def check(param: Any) -> None:
    """Check for invalid numbers.

    Raises:
        CaffeError: A number is invalid; the message names the field.
    """
    for name, least in (
        ("average_loss", 1),
        ("iter_size", 1),
        ("max_iter", 0),
        ("display", 0),
        ("snapshot", 0),
        ("test_interval", 0),
    ):
        value = getattr(param, name)
        if value < least:
            raise FieldError(name, f"{name}: {value} must be at least {least}")
    if param.eval_type not in ("classification", "detection"):
        raise FieldError(
            "eval_type",
            f"Unknown evaluation type: {param.eval_type}; there are classification and detection",
        )
    if param.ap_version not in VERSIONS:
        raise FieldError(
            "ap_version", f"Unknown ap_version: {param.ap_version}; there are {', '.join(VERSIONS)}"
        )
    for value in param.test_iter:
        if value < 0:
            raise FieldError("test_iter", f"test_iter: {value} must be at least 0")


def train_net(param: Any) -> NetSource:
    """Return the net to train.

    Raises:
        CaffeError: The solver names none or several, or its file cannot be read.
    """
    given = [name for name in _TRAIN_FIELDS if param.HasField(name)]
    if not given:
        raise FieldError(
            "net",
            f"SolverParameter must specify a train net using one of: {', '.join(_TRAIN_FIELDS)}",
        )
    if len(given) > 1:
        raise FieldError(
            given[1],
            f"SolverParameter must name one train net, not several: it has {' and '.join(given)}",
        )
    (name,) = given
    states = [param.train_state] if param.HasField("train_state") else []
    return _source(name, getattr(param, name), TRAIN, states)


def test_nets(param: Any) -> list[NetSource]:
    """Return the nets to test.

    Raises:
        CaffeError: Their number, `test_iter`, `test_state` or `test_interval` are inconsistent.
    """
    common = next((n for n in ("net_param", "net") if param.HasField(n)), "")
    named = len(param.test_net_param) + len(param.test_net)
    count = len(param.test_iter)
    if count < named or (count > named and not common):
        raise FieldError(
            "test_iter",
            f"test_iter must be specified for each test network: there are {named} test networks, "
            f"and {count} values",
        )
    if len(param.test_state) not in (0, count):
        raise FieldError(
            "test_state",
            "test_state must be unspecified or specified once per test net: there are "
            f"{count} test nets, and {len(param.test_state)} states",
        )
    if count and param.test_interval <= 0:
        raise FieldError(
            "test_interval", "test_interval must be above 0, because there are test nets"
        )
    found = [("test_net_param", each) for each in param.test_net_param]
    found += [("test_net", each) for each in param.test_net]
    found += [(common, getattr(param, common))] * (count - named) if common else []
    sources = []
    for i, (name, value) in enumerate(found):
        states = [param.test_state[i]] if param.test_state else []
        sources.append(_source(name, value, TEST, states))
    return sources


def _source(name: str, value: Any, phase: int, states: list[Any]) -> NetSource:
    """Return the net of a field, which names a file or contains the net."""
    if isinstance(value, str):
        net = text.read_net(value)
        return NetSource(_in_state(net, phase, states), f"{name} file: {value}", value)
    copy = type(value)()
    copy.CopyFrom(value)
    return NetSource(_in_state(copy, phase, states), name, "")


def _in_state(proto: Any, phase: int, states: list[Any]) -> Any:
    """Set a net's state: the phase, overridden by the file's, and then by the solver's."""
    state = NetState(phase=phase)
    state.MergeFrom(proto.state)
    for each in states:
        state.MergeFrom(each)
    proto.state.CopyFrom(state)
    return proto


def with_place(param: Any, rank: int, size: int) -> Any:
    """Return the solver, with `%#` and `%*` in names replaced by process and process count."""
    copy = type(param)()
    copy.CopyFrom(param)
    for name in ("train_net", "snapshot_prefix"):
        if copy.HasField(name):
            value = getattr(copy, name)
            setattr(copy, name, value.replace("%#", str(rank)).replace("%*", str(size)))
    return copy


def check_snapshot_folder(param: Any) -> None:
    """Check whether snapshots can be written.

    Raises:
        CaffeError: They cannot.
    """
    probe = Path(f"{param.snapshot_prefix}_iter_0.tempfile")
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FieldError(
            "snapshot_prefix",
            f"Cannot write to snapshot prefix '{param.snapshot_prefix}' ({error.strerror}). "
            "Make sure that the directory exists and is writable.",
        ) from error
