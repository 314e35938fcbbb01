"""The words of environment variables, the same for launcher and ranks."""

from __future__ import annotations

_TRUE = frozenset(("1", "true", "yes", "on"))
_FALSE = frozenset(("0", "false", "no", "off"))


def truth(text: str) -> bool | None:
    """Return what a word says, in any case; None when it is no such word."""
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def heap_mode(text: str) -> str | None:
    """Return what SIRTAKI_SHARED_HEAP says: ``on``, ``off``, ``auto``, or None for nothing.

    Raises:
        ValueError: It says something else.
    """
    word = text.strip().lower()
    said = truth(word)
    if said is None and word not in ("", "auto"):
        raise ValueError(f"SIRTAKI_SHARED_HEAP={text!r} must be 1, 0 or auto")
    return (word or None) if said is None else "on" if said else "off"
