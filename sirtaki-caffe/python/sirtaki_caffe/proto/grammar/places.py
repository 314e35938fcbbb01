"""Positions in a text that has already been parsed."""

from __future__ import annotations

from collections.abc import Iterator

from sirtaki_caffe.proto.grammar.tokens import Tokens, unquoted


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
