"""Parsing of protobuf's text format, with errors that contain line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from sirtaki_caffe.errors import suggestion
from sirtaki_caffe.proto.grammar import opaque
from sirtaki_caffe.proto.grammar.tokens import Tokens, shown, unquoted

#: A limit of a file's messages, so that a small file cannot fill the memory.
MOST_MESSAGES = 200_000

_INTEGERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}
# As in protobuf's C++ parser, neither is a float.
_OCTAL_OR_HEXADECIMAL = re.compile("0[0-9xX]")
_BOOLS = {"true": True, "t": True, "True": True, "false": False, "f": False, "False": False}
_BOOLS |= {"1": True, "0": False}
_WORDS = {"inf": float("inf"), "infinity": float("inf"), "nan": float("nan")}


@dataclass(frozen=True)
class _Field:
    """A field's description; `message` is None for scalars."""

    name: str
    repeated: bool
    message: _Message | None
    read: Callable[[Tokens], Any]


@dataclass(frozen=True)
class _Message:
    """A message's description."""

    name: str
    fields: dict[str, _Field]
    required: tuple[str, ...]
    opaque: bool


class Parser:
    """Parser of one text.

    Args:
        text: The text.
        where: Its name in errors.
    """

    def __init__(self, text: str, where: str) -> None:
        self._tokens = Tokens(text, where)
        self._messages = 0

    def read(self, message: Any) -> None:
        """Fill a message from the whole text.

        Raises:
            CaffeError: The text is not that of this message.
        """
        known = _known(message.DESCRIPTOR)
        while self._tokens.kind != "end":
            self._read_field(message, known)
        self._check_required(message, known, 0)

    def _read_field(self, message: Any, known: _Message) -> None:
        tokens = self._tokens
        start, name = tokens.start, tokens.word
        if tokens.kind != "name":
            raise tokens.error(f"expected the name of a field, found {tokens.found()}")
        tokens.advance()
        field = known.fields.get(name)
        if field is None:
            if not known.opaque:
                raise tokens.error(_no_field(known, name), start)
            opaque.keep_field(tokens, message, start)
        else:
            self._read_known(message, known, field, start)
        if not tokens.skip(","):
            tokens.skip(";")

    def _read_known(self, message: Any, known: _Message, field: _Field, start: int) -> None:
        tokens = self._tokens
        if not field.repeated and message.HasField(field.name):
            raise tokens.error(f"{known.name} has '{field.name}' once only", start)
        if not tokens.skip(":") and field.message is None:
            raise tokens.error(f"expected ':' behind '{field.name}', found {tokens.found()}")
        if field.repeated and tokens.skip("["):
            while not tokens.skip("]"):
                self._read_value(message, field, start)
                if not tokens.skip(",") and tokens.word != "]":
                    raise tokens.error(f"expected ',' or ']', found {tokens.found()}")
        else:
            self._read_value(message, field, start)

    def _read_value(self, message: Any, field: _Field, start: int) -> None:
        if field.message is not None:
            part = getattr(message, field.name)
            self._read_message(part.add() if field.repeated else part, field, start)
        elif field.repeated:
            getattr(message, field.name).append(field.read(self._tokens))
        else:
            setattr(message, field.name, field.read(self._tokens))

    def _read_message(self, part: Any, field: _Field, start: int) -> None:
        tokens, known = self._tokens, field.message
        assert known is not None
        self._messages += 1
        if self._messages > MOST_MESSAGES:
            raise tokens.error(f"more than {MOST_MESSAGES} messages in one file")
        end = ">" if tokens.word == "<" else "}"
        if not (tokens.skip("<") or tokens.skip("{")):
            raise tokens.error(f"expected '{{' behind '{field.name}', found {tokens.found()}")
        part.SetInParent()
        while not tokens.skip(end):
            if tokens.kind == "end":
                raise tokens.error(f"'{field.name}' is not closed by '{end}'", start)
            self._read_field(part, known)
        self._check_required(part, known, start)

    def _check_required(self, message: Any, known: _Message, start: int) -> None:
        for name in known.required:
            if not message.HasField(name):
                raise self._tokens.error(f"{known.name} needs '{name}'", start)


_tables: dict[str, _Message] = {}


def _known(descriptor: Any) -> _Message:
    table = _tables.get(descriptor.full_name)
    if table is None:
        table = _Message(
            descriptor.name,
            {f.name: _field(f) for f in descriptor.fields if f.name != opaque.AS_READ},
            tuple(f.name for f in descriptor.fields if _is(f, "required")),
            opaque.is_opaque(descriptor),
        )
        _tables[descriptor.full_name] = table
    return table


def _field(field: Any) -> _Field:
    part = _known(field.message_type) if field.message_type is not None else None
    return _Field(field.name, is_repeated(field), part, _reader(field))


def is_repeated(field: Any) -> bool:
    """Return whether a field may be repeated."""
    return _is(field, "repeated")


def _is(field: Any, label: str) -> bool:
    # Protobuf 4 has only the label, protobuf 7 only the property.
    known = getattr(field, f"is_{label}", None)
    if known is None:
        return bool(field.label == getattr(FieldDescriptor, f"LABEL_{label.upper()}"))
    return bool(known)


def _reader(field: Any) -> Callable[[Tokens], Any]:
    if field.type in _INTEGERS:
        low, high = _INTEGERS[field.type]
        return lambda tokens: _integer(tokens, field.name, low, high)
    if field.type == FieldDescriptor.TYPE_ENUM:
        numbers = {value.name: value.number for value in field.enum_type.values}
        return lambda tokens: _enum(tokens, field.name, numbers)
    return {
        FieldDescriptor.TYPE_FLOAT: _float,
        FieldDescriptor.TYPE_DOUBLE: _float,
        FieldDescriptor.TYPE_BOOL: lambda tokens: _bool(tokens, field.name),
        FieldDescriptor.TYPE_STRING: _string,
        FieldDescriptor.TYPE_BYTES: _bytes,
        FieldDescriptor.TYPE_MESSAGE: _float,  # never called
    }[field.type]


def _integer(tokens: Tokens, field: str, low: int, high: int) -> int:
    start = tokens.start
    negative = tokens.skip("-")
    word = tokens.word
    if tokens.kind != "number":
        raise tokens.error(f"'{field}' is a whole number, found {tokens.found()}")
    try:
        # A leading 0 means octal, as in C.
        octal = len(word) > 1 and word.isdigit() and word[0] == "0"
        value = int(word, 8 if octal else 0)
    except ValueError:
        raise tokens.error(f"'{field}' is a whole number, found {shown(word)}") from None
    value = -value if negative else value
    if not low <= value <= high:
        text = shown(f"-{word}" if negative else word)
        raise tokens.error(f"'{field}' is from {low} to {high}, found {text}", start)
    tokens.advance()
    return value


def _float(tokens: Tokens) -> float:
    negative = tokens.skip("-")
    word = tokens.word
    if tokens.kind == "name" and word.lower() in _WORDS:
        value = _WORDS[word.lower()]
    elif tokens.kind == "number" and not _OCTAL_OR_HEXADECIMAL.match(word):
        value = float(word.rstrip("fF"))
    else:
        raise tokens.error(f"expected a number, found {tokens.found()}")
    tokens.advance()
    return -value if negative else value


def _bool(tokens: Tokens, field: str) -> bool:
    word = tokens.word
    if tokens.kind == "number" and re.fullmatch("0[xX]0*[01]|0*[01]", word):
        word = word[-1]
    if tokens.kind not in ("name", "number") or word not in _BOOLS:
        raise tokens.error(f"'{field}' is true or false, found {tokens.found()}")
    tokens.advance()
    return _BOOLS[word]


def _enum(tokens: Tokens, field: str, numbers: dict[str, int]) -> int:
    names = ", ".join(numbers)
    word, start = tokens.word, tokens.start
    if tokens.kind == "number" or word == "-":
        value = _integer(tokens, field, -(2**31), 2**31 - 1)
        if value not in numbers.values():
            raise tokens.error(f"'{field}' has no value {value}; it is one of {names}", start)
        return value
    if tokens.kind != "name" or word not in numbers:
        near = suggestion(word, numbers)
        raise tokens.error(f"'{field}' is one of {names}; found {tokens.found()}{near}")
    tokens.advance()
    return numbers[word]


def _bytes(tokens: Tokens) -> bytes:
    if tokens.kind != "string":
        raise tokens.error(f"expected a string in quotes, found {tokens.found()}")
    parts = []
    while tokens.kind == "string":
        try:
            parts.append(unquoted(tokens.word))
        except ValueError as error:
            raise tokens.error(str(error)) from None
        tokens.advance()
    return b"".join(parts)


def _string(tokens: Tokens) -> str:
    start = tokens.start
    try:
        return _bytes(tokens).decode()
    except UnicodeDecodeError:
        raise tokens.error("the string is not UTF-8", start) from None


def _no_field(known: _Message, name: str) -> str:
    return f"{known.name} has no field '{name}'{suggestion(name, known.fields)}"
