"""Flags of the tools beside `caffe`, in the syntax of gflags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

_FALSE = ("false", "0", "no", "f", "n")
_TRUE = ("true", "1", "yes", "t", "y")


class ToolParser(argparse.ArgumentParser):
    """Parses `--flag value`, `-flag=value`, `--switch`, `--noswitch` and `--switch=false`."""

    def __init__(self, about: str) -> None:
        super().__init__(description=about, allow_abbrev=False)

    def switch(self, name: str, about: str, default: bool = False) -> None:
        """Add a boolean flag."""
        self.add_argument(f"--{name}", type=_boolean, default=default, metavar="BOOL", help=about)

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse a command line; end the program if it is invalid."""
        return self.parse_args([self._plain(word) for word in arguments])

    def _plain(self, word: str) -> str:
        """Return a word in argparse's syntax."""
        if not word.startswith("-"):
            return word
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and self._is_switch(name):
            return f"--{name}=true"
        if not equals and name.startswith("no") and self._is_switch(name[2:]):
            return f"--{name[2:]}=false"
        return f"--{name}{equals}{value}" if len(name) > 1 else word

    def _is_switch(self, name: str) -> bool:
        action: Any = self._option_string_actions.get(f"--{name}")
        return action is not None and action.type is _boolean


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    raise argparse.ArgumentTypeError(f"'{text}' is neither true nor false")
