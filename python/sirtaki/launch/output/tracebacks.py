"""Detects Python's tracebacks among the lines that a rank prints, and shortens them."""

from __future__ import annotations

import functools
import re
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

_HEADER = "Traceback (most recent call last):"
_CHAINS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_MOST_REST = 30
# TensorFlow lists where a node of the graph was defined before it says what failed.
_MOST_REST_OF_A_GRAPH = 200
_OF_A_GRAPH = "Graph execution error:"
# The limits of a traceback that does not end: that of a deep recursion with several errors, which
# Python prints in full, has some hundred lines.
_MOST_LINES = 4096
_MOST_CHARACTERS = 1 << 18
# Strings, because `re` compiles them at first use, and most jobs need none.
_FRAME = r'  File "(.+)", line \d+'
# The error of a script that Python cannot parse has no header.
_UNREADABLE = r'  File ".+", line \d+$'
_WHY_UNREADABLE = r"\w*Error\b"
# The error of a missing script is one line.
_UNFOUND = r"\S*python[\d.]*: (can't open file '|No module named |can't find '__main__' module)"
_ADDRESS = r"\b0x[0-9a-f]+\b"
# Errors by which ranks report that another one has failed.
_CONSEQUENCE = (
    r"\b(HorovodInternalError|PeerLostError|CollectiveTimeoutError)\b"
    r"|\bthe world has (been shut down|ended)\b"
)
_LEFT = r"\bthe world has been shut down: rank (\d+) "
_LOST = r"\b(?:the world has been shut down:|lost peer) rank (\d+) "
_PACKAGES = ("sirtaki", "horovod")


class Traceback(NamedTuple):
    """A traceback, or several if one exception led to another.

    lines: as printed, with their ends. rest: lines printed immediately afterwards: more of the
    message, or possibly other output.
    """

    lines: tuple[str, ...]
    rest: tuple[str, ...] = ()

    @property
    def printed(self) -> tuple[str, ...]:
        """All lines, with their ends."""
        return (*self.lines, *self.rest)

    @property
    def kind(self) -> str:
        """Its name in messages."""
        return "traceback" if self.lines[0].rstrip() == _HEADER else "error"

    @property
    def error(self) -> str:
        """The exception's class and the first line of its message."""
        error = self.lines[-1].rstrip()
        if error.endswith(_OF_A_GRAPH):
            causes = [line.rstrip() for line in self.rest if re.match(r"[\w.]+Error: ", line)]
            return causes[-1] if causes else error
        return error

    @property
    def key(self) -> str:
        """A key that is equal for the same traceback on two ranks."""
        return re.sub(_ADDRESS, "0x", "".join(line.rstrip("\r\n") + "\n" for line in self.lines))

    @property
    def is_consequence(self) -> bool:
        """Whether it reports that another rank failed, or follows from that."""
        said = [line for line in self.lines if not line.startswith(" ")]
        return any(re.search(_CONSEQUENCE, line) for line in (*said, *self.rest))

    @property
    def blamed(self) -> int | None:
        """The rank that left, if the error names it."""
        found = re.search(_LEFT, self.error)
        return None if found is None else int(found[1])

    @property
    def lost(self) -> int | None:
        """The rank that left or was lost, if the error names it."""
        return lost_rank(self.error)


def lost_rank(text: str) -> int | None:
    """Return the rank that left or was lost, if one of our messages names it."""
    found = re.search(_LOST, text)
    return None if found is None else int(found[1])


class TracebackFinder:
    """Detects the tracebacks in the lines of one stream, and holds their lines until they end.

    The end of an exception's message cannot be recognised, so a pause in the output marks it.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest: list[str] = []
        self._complete = False
        self._characters = 0

    @property
    def holds(self) -> bool:
        """Whether some lines were not returned yet."""
        return bool(self._lines)

    def feed(self, lines: list[str]) -> list[str | Traceback]:
        """Feed more lines; returns lines and whole tracebacks, in their order."""
        found: list[str | Traceback] = []
        for line in lines:
            found += self._take(line, line.rstrip("\r\n"))
        return found

    def release(self) -> list[str | Traceback]:
        """Return the lines held, when no more are expected soon."""
        lines, rest, complete = tuple(self._lines), tuple(self._rest), self._complete
        self._lines, self._rest, self._complete, self._characters = [], [], False, 0
        return [Traceback(lines, rest)] if complete else list(lines)

    def _take(self, line: str, text: str) -> list[str | Traceback]:
        if self._lines:
            self._characters += len(line)
            if len(self._lines) >= _MOST_LINES or self._characters > _MOST_CHARACTERS:
                return [*self.release(), line]  # too long for a traceback
        if not self._lines:
            if re.match(_UNFOUND, text):
                self._complete = True
            elif text != _HEADER and not re.match(_UNREADABLE, text):
                return [line]
            self._lines.append(line)
        elif text == _HEADER:
            return self._begin_another(line, text)
        elif self._complete:
            self._rest.append(line)
            of_a_graph = self._lines[-1].rstrip().endswith(_OF_A_GRAPH)
            most = _MOST_REST_OF_A_GRAPH if of_a_graph else _MOST_REST
            return self.release() if len(self._rest) == most else []
        elif text and (text.startswith(" ") or self._may_end_with(text)):
            self._lines.append(line)
            self._complete = not text.startswith(" ")
        else:
            return [*self.release(), line]
        return []

    def _may_end_with(self, text: str) -> bool:
        has_header = self._lines[0].rstrip("\r\n") == _HEADER
        return has_header or re.match(_WHY_UNREADABLE, text) is not None

    def _begin_another(self, line: str, text: str) -> list[str | Traceback]:
        """Begin another traceback, which the previous one may have caused."""
        before = [between.rstrip("\r\n") for between in self._rest[-3:]]
        if len(before) == 3 and before[0] == before[2] == "" and before[1] in _CHAINS:
            self._lines += [*self._rest, line]
            self._rest, self._complete = [], False
            return []
        return [*self.release(), *self._take(line, text)]


def shortened(traceback: Traceback) -> Traceback:
    """Remove the frames of this package, unless there are no others."""
    frames = _frames(traceback.lines)
    if all(ours for ours, _ in frames if ours is not None):
        return traceback
    lines: list[str] = []
    for ours, run in groupby(frames, key=lambda frame: frame[0]):
        hidden = list(run)
        if ours:
            how_many = "1 frame" if len(hidden) == 1 else f"{len(hidden)} frames"
            lines.append(f"  [{how_many} inside Sirtaki; --verbose shows them]\n")
        else:
            lines += [line for _, part in hidden for line in part]
    return Traceback(tuple(lines), traceback.rest)


def shortened_text(text: str) -> str:
    """Remove the frames of this package from a traceback as text."""
    return "".join(shortened(Traceback(tuple(text.splitlines(keepends=True)))).lines)


def _frames(lines: tuple[str, ...]) -> list[tuple[bool | None, list[str]]]:
    """Split a traceback into frames: whether each is ours, None for lines between frames."""
    found: list[tuple[bool | None, list[str]]] = []
    for line in lines:
        frame = re.match(_FRAME, line)
        if frame is not None:
            found.append((_is_ours(frame[1]), [line]))
        elif line.startswith("  ") and found and found[-1][0] is not None:
            found[-1][1].append(line)
        else:
            found.append((None, [line]))
    return found


def _is_ours(path: str) -> bool:
    """Return whether this is a file of the package, wherever it is installed."""
    parts = Path(path).parts
    starts = (at for at, part in enumerate(parts) if part in _PACKAGES)
    return any("/".join(parts[at:]) in _own_files() for at in starts)


@functools.cache
def _own_files() -> frozenset[str]:
    root = Path(__file__).parents[3]
    found = (path for package in _PACKAGES for path in (root / package).rglob("*.py"))
    return frozenset(str(path.relative_to(root)) for path in found)
