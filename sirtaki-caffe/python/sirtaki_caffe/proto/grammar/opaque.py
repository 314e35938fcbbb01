"""Messages with unknown fields: those of layers that are not implemented here.

Their text is read whatever it contains. The text of unknown fields is kept unchanged in the field
`as_read`, which these messages have in caffe.proto, and printed again.
"""

from __future__ import annotations

from typing import Any

from sirtaki_caffe.proto.grammar.tokens import Tokens

#: The name of the field for unparsed text.
AS_READ = "as_read"

_DEEPEST = 32
_LONGEST = 1 << 16


def is_opaque(descriptor: Any) -> bool:
    """Return whether a message accepts unknown fields."""
    return AS_READ in descriptor.fields_by_name


def keep_field(tokens: Tokens, message: Any, start: int) -> None:
    """Skip the content of an unknown field, whose name has been read, and keep its text.

    Args:
        tokens: The tokens after the name.
        message: The message being read.
        start: The start of the name.

    Raises:
        CaffeError: It is not the text of any field.
    """
    had_colon = tokens.skip(":")
    _skip_value(tokens, had_colon, 1)
    # Comments may be in any encoding.
    found = tokens.slice(start).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    kept = getattr(message, AS_READ)
    if len(kept) + len(found) > _LONGEST:
        raise tokens.error(f"more than {_LONGEST} characters of unknown fields", start)
    setattr(message, AS_READ, f"{kept}\n{found}" if kept else found)


def _skip_value(tokens: Tokens, may_be_scalar: bool, depth: int) -> None:
    if depth > _DEEPEST:
        raise tokens.error(f"more than {_DEEPEST} messages in one another")
    if tokens.skip("{"):
        _skip_fields(tokens, "}", depth)
    elif tokens.skip("<"):
        _skip_fields(tokens, ">", depth)
    elif not may_be_scalar:
        raise tokens.error(f"expected ':' or '{{', found {tokens.found()}")
    elif tokens.skip("["):
        _skip_list(tokens, depth)
    else:
        _skip_scalar(tokens)


def _skip_list(tokens: Tokens, depth: int) -> None:
    if tokens.skip("]"):
        return
    _skip_value(tokens, True, depth + 1)
    while tokens.skip(","):
        _skip_value(tokens, True, depth + 1)
    if not tokens.skip("]"):
        raise tokens.error(f"expected ',' or ']', found {tokens.found()}")


def _skip_fields(tokens: Tokens, end: str, depth: int) -> None:
    while not tokens.skip(end):
        if tokens.kind != "name":
            raise tokens.error(f"expected the name of a field or '{end}', found {tokens.found()}")
        tokens.advance()
        _skip_value(tokens, tokens.skip(":"), depth + 1)
        if not tokens.skip(","):
            tokens.skip(";")


def _skip_scalar(tokens: Tokens) -> None:
    if tokens.kind == "string":
        while tokens.kind == "string":
            tokens.advance()
        return
    tokens.skip("-")
    if tokens.kind not in ("number", "name"):
        raise tokens.error(f"expected a value, found {tokens.found()}")
    tokens.advance()
