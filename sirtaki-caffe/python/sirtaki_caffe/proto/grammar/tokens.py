"""The tokens of protobuf's text format, with their places in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from sirtaki_caffe.errors import CaffeError

Kind = Literal["name", "number", "string", "symbol", "end"]

# No pattern repeats a group: Python stores each repetition, which would fill the memory.
_SPACE = re.compile(r"[ \t\r\n\f\v]*")
_PLAIN = {quote: re.compile(rf"[^{quote}\\\n]*") for quote in "'\""}
_TOKEN = re.compile(
    r"""
    (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
      (?![A-Za-z0-9_.]))
  | (?P<symbol>[{}<>:;,\[\]-])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_LETTERS = {
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
    **{each: each for each in (b"\\", b"'", b'"', b"?")},
}


class Tokens:
    """The tokens of a text, one at a time.

    Args:
        text: The text.
        where: Its name in errors, for example a path.

    Attributes:
        kind: The kind of the current word; "end" after the last one.
        word: The current word.
        start: Its start.
        stop: The end of the previous word.
    """

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._end = 1 if text.startswith("\ufeff") else 0
        self.kind: Kind = "end"
        self.word = ""
        self.start = self.stop = self._end
        self.advance()

    def advance(self) -> None:
        """Advance to the next word.

        Raises:
            CaffeError: The next characters are no word.
        """
        self.stop = self._end
        self.start = self._after_space()
        if self._text[self.start : self.start + 1] in ("'", '"'):
            self.kind, self._end = "string", self._after_string()
        elif match := _TOKEN.match(self._text, self.start):
            self.kind = match.lastgroup  # type: ignore[assignment]
            self._end = match.end()
        elif self.start == len(self._text):
            self.kind, self._end = "end", self.start
        else:
            raise self._no_word()
        self.word = self._text[self.start : self._end]

    def _after_space(self) -> int:
        """Return the start of the next word, after blanks and comments."""
        at = self._end
        while True:
            blank = _SPACE.match(self._text, at)
            at = blank.end() if blank else at
            if not self._text.startswith("#", at):
                return at
            line = self._text.find("\n", at)
            at = line if line >= 0 else len(self._text)

    def _after_string(self) -> int:
        """Return the end of the string that begins here."""
        quote = self._text[self.start]
        at = self.start + 1
        while True:
            plain = _PLAIN[quote].match(self._text, at)
            at = plain.end() if plain else at
            if self._text.startswith(quote, at):
                return at + 1
            if not self._text.startswith("\\", at) or self._text.startswith("\\\n", at):
                raise self.error("the string that begins here does not end on this line")
            at += 2

    def skip(self, symbol: str) -> bool:
        """Advance if the current word is this symbol; return whether it was."""
        if self.word == symbol and self.kind == "symbol":
            self.advance()
            return True
        return False

    def slice(self, start: int) -> str:
        """Return the text from `start` to the end of the previous word."""
        return self._text[start : self.stop]

    def error(self, why: str, at: int | None = None) -> CaffeError:
        """Return an error with the place of the current word, or of `at`."""
        return CaffeError(f"{self.place(self.start if at is None else at)}: {why}")

    def place(self, at: int) -> str:
        """Return a place in the text for errors: `net.prototxt:12:3`, with line and column."""
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        return f"{self._where}:{self.line(at)}:{column}"

    def line(self, at: int) -> int:
        """Return the line number of a place, from 1."""
        return self._text.count("\n", 0, at) + 1

    def found(self) -> str:
        """Return the current word for errors."""
        if self.kind == "end":
            return "the end of the file"
        return shown(self.word) if self.kind != "string" else shown(self.word[1:-1])

    def _no_word(self) -> CaffeError:
        first = self._text[self.start]
        if first.isdigit() or first == ".":
            number = re.compile(r"[\w.]+").match(self._text, self.start)
            return self.error(f"{shown(number.group() if number else first)} is not a number")
        return self.error(f"unexpected character {first!a}")


def shown(word: str) -> str:
    """Return a word in quotes, shortened if it is long."""
    return f"'{word}'" if len(word) <= 60 else f"'{word[:57]}...'"


def unquoted(word: str) -> bytes:
    """Return the content of a quoted word.

    Raises:
        ValueError: It contains an unknown escape.
    """
    content = word[1:-1].encode("utf-8", "surrogateescape")
    return _ESCAPE.sub(_unescaped, content) if b"\\" in content else content


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, letter = match.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if letter is not None:
        if letter not in _LETTERS:
            raise ValueError(f"unknown escape \\{letter.decode('ascii', 'replace')}")
        return _LETTERS[letter]
    code = int(short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError(f"{match.group().decode('ascii')} is not a character")
    return chr(code).encode()


def quoted(content: str | bytes) -> str:
    """Return the quoted word for some content, in ASCII."""
    data = content.encode() if isinstance(content, str) else content
    return '"' + "".join(_QUOTED[byte] for byte in data) + '"'


_QUOTED = [chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in range(256)]
for _letter, _byte in (("n", 10), ("r", 13), ("t", 9), ('"', 34), ("'", 39), ("\\", 92)):
    _QUOTED[_byte] = f"\\{_letter}"


def field_place(text: str, where: str, field: str) -> str:
    """Return `solver.prototxt:3:1`, the place of a field in the outermost message.

    Args:
        text: The parsed text.
        where: Its name in errors.
        field: The field's name; if the text lacks it, `where` alone is returned.
    """
    tokens = Tokens(text, where)
    for depth, start, name in _fields(tokens):
        if depth == 0 and name == field:
            return tokens.place(start)
    return where


def layer_lines(text: str, name: str) -> list[int]:
    """Return the lines of layers with a given name in the text of a net."""
    lines: list[int] = []
    tokens, line = Tokens(text, ""), 0
    for depth, start, field in _fields(tokens):
        if depth == 0:
            line = tokens.line(start)
        elif depth == 1 and field == "name":
            tokens.skip(":")
            if tokens.kind == "string" and unquoted(tokens.word) == name.encode():
                lines.append(line)
    return lines


def _fields(tokens: Tokens) -> Iterator[tuple[int, int, str]]:
    """Yield each field's depth, start and name; `tokens` are after the name."""
    depth = 0
    while tokens.kind != "end":
        if tokens.kind == "name":
            start, name = tokens.start, tokens.word
            tokens.advance()
            yield depth, start, name
            # A word used as a value is no field.
            if tokens.skip(":") and tokens.kind == "name":
                tokens.advance()
            continue
        depth += {"{": 1, "<": 1, "}": -1, ">": -1}.get(tokens.word, 0)
        tokens.advance()
