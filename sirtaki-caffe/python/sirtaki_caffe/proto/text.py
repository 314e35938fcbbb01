"""Reading and writing nets and solvers as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from sirtaki_caffe.errors import CaffeError
from sirtaki_caffe.proto.files import read_bytes
from sirtaki_caffe.proto.grammar import tokens
from sirtaki_caffe.proto.grammar.opaque import AS_READ
from sirtaki_caffe.proto.grammar.parser import Parser, is_repeated
from sirtaki_caffe.proto.grammar.tokens import Tokens, quoted
from sirtaki_caffe.proto.schema import MultiPhaseSolverParameter, NetParameter, SolverParameter
from sirtaki_caffe.proto.upgrade import upgrade_net, upgrade_solver
from sirtaki_caffe.proto.upgrade_v0 import Note, ignore

#: The maximum length of a text, in bytes.
LONGEST = 256 << 20


def read_net(path: str | Path, note: Note = ignore) -> Any:
    """Return the net of a text file, upgraded if necessary.

    Args:
        path: The file.
        note: Called with a line on each upgrade.

    Raises:
        CaffeError: The file cannot be read, or is not a net.
    """
    return _upgraded(parse(_text(path), NetParameter, str(path)), upgrade_net, str(path), note)


def read_solver(path: str | Path, note: Note = ignore) -> Any:
    """Return the solver of a text file, upgraded if necessary.

    Raises:
        CaffeError: The file cannot be read, or is not a solver.
    """
    solver = parse(_text(path), SolverParameter, str(path))
    return _with_prefix(_upgraded(solver, upgrade_solver, str(path), note), Path(path))


def read_phases(path: str | Path, note: Note = ignore) -> list[tuple[Any, int | None]]:
    """Return the solvers of a file that run in turn, each with its batch size, if any.

    An ordinary solver file has one, without a batch size.

    Raises:
        CaffeError: The file cannot be read, or contains no solver.
    """
    text = _text(path)
    if Tokens(text, str(path)).word != "params_pair":
        return [(read_solver(path, note), None)]
    phases = parse(text, MultiPhaseSolverParameter, str(path)).params_pair
    return [
        (
            _with_prefix(_upgraded(p.solver_params, upgrade_solver, str(path), note), Path(path)),
            p.batch_size if p.HasField("batch_size") else None,
        )
        for p in phases
    ]


def parse(text: str, message_class: Any, where: str) -> Any:
    """Return the message in a text.

    Args:
        text: The text.
        message_class: The class of the message.
        where: The name of the text in errors, for example its path.

    Raises:
        CaffeError: It is not such a message; the error has line and column.
    """
    message = message_class()
    Parser(text, where).read(message)
    return message


def field_place(path: str | Path, field: str) -> str:
    """Return `solver.prototxt:3:1`, a field's place in a file, or the path without such a field.

    Raises:
        CaffeError: The file can no longer be read.
    """
    return tokens.field_place(_text(path), str(path), field)


def layer_lines(path: str | Path, name: str) -> list[int]:
    """Return the lines of a net's file with layers of a given name.

    Raises:
        CaffeError: The file can no longer be read.
    """
    return tokens.layer_lines(_text(path), name)


def text_of(message: Any) -> str:
    """Return the text of a message, one field per line, in ascending order of numbers."""
    return "".join(f"{line}\n" for line in _lines(message, ""))


def _text(path: str | Path) -> str:
    # Comments are in any encoding; a string that is not UTF-8 is an error of the parser.
    return read_bytes(path, LONGEST).decode("utf-8", "surrogateescape")


def _upgraded(message: Any, upgrade: Callable[[Any, Note], Any], path: str, note: Note) -> Any:
    try:
        return upgrade(message, note)
    except CaffeError as error:
        raise CaffeError(f"{path}: {error}") from None


def _with_prefix(solver: Any, path: Path) -> Any:
    """Name snapshots after the solver's file if it gives no prefix, or only a folder."""
    if not solver.HasField("snapshot_prefix"):
        solver.snapshot_prefix = str(path.with_suffix(""))
    elif Path(solver.snapshot_prefix).is_dir():
        solver.snapshot_prefix = str(Path(solver.snapshot_prefix) / path.stem)
    return solver


def _lines(message: Any, indent: str) -> Iterator[str]:
    for field, content in message.ListFields():
        for value in content if is_repeated(field) else (content,):
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                yield f"{indent}{field.name} {{"
                yield from _lines(value, indent + "  ")
                yield indent + "}"
            elif field.name == AS_READ:
                yield from (indent + line.strip() for line in value.splitlines())
            else:
                yield f"{indent}{field.name}: {_word(field, value)}"


def _word(field: Any, value: Any) -> str:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return str(field.enum_type.values_by_number[value].name)
    if field.type == FieldDescriptor.TYPE_FLOAT:
        return number(value)
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _shortest(value, range(15, 18), float)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return "true" if value else "false"
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return quoted(value)
    return str(value)


def number(value: float) -> str:
    """Return the shortest decimal equal to this float32, in C++'s format: 1, 0.01, 1e-05."""
    return _shortest(value, range(6, 10), np.float32)


def _shortest(value: float, digits: range, kind: Callable[[float], Any]) -> str:
    if not math.isfinite(value):
        return str(value)
    for count in digits:
        text = f"{value:.{count}g}"
        if kind(float(text)) == kind(value):
            break
    return text
