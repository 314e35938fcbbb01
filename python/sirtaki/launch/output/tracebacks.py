"""Python's tracebacks among the lines that a rank prints: found, and shortened."""

from __future__ import annotations

import functools
import re
from itertools import groupby
from pathlib import Path

from sirtaki.records import dataclass

_HEADER = "Traceback (most recent call last):"
_CHAINS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_MOST_REST = 30
# Strings, which `re` compiles at their first use: most jobs end without it.
_FRAME = r'  File "(.+)", line \d+'
_ADDRESS = r"\b0x[0-9a-f]+\b"
# What ranks say of it that another one has failed.
_CONSEQUENCE = (
    r"\b(HorovodInternalError|PeerLostError|CollectiveTimeoutError)\b"
    r"|\bthe world has (been shut down|ended)\b"
)
_LEFT = r"\bthe world has been shut down: rank (\d+) "
_PACKAGES = ("sirtaki", "horovod")


@dataclass(frozen=True)
class Traceback:
    """One or, where an exception led to another, several that belong together.

    lines: as they were printed, with their ends. rest: what was printed at once behind them: more
    lines of the message, but perhaps also something else.
    """

    lines: tuple[str, ...]
    rest: tuple[str, ...] = ()

    @property
    def printed(self) -> tuple[str, ...]:
        """All lines, with their ends."""
        return (*self.lines, *self.rest)

    @property
    def error(self) -> str:
        """The exception's class and the first line of its message."""
        return self.lines[-1].rstrip()

    @property
    def key(self) -> str:
        """What is equal where tracebacks of two ranks say the same."""
        return re.sub(_ADDRESS, "0x", "".join(line.rstrip("\r\n") + "\n" for line in self.lines))

    @property
    def is_consequence(self) -> bool:
        """Whether it says that another rank failed, or follows from that."""
        said = [line for line in self.lines if not line.startswith(" ")]
        return any(re.search(_CONSEQUENCE, line) for line in (*said, *self.rest))

    @property
    def blamed(self) -> int | None:
        """The rank that left, where this says which one."""
        found = re.search(_LEFT, self.error)
        return None if found is None else int(found[1])


class TracebackFinder:
    """Finds the tracebacks in the lines of one stream, and holds their lines until they end.

    Whether a line belongs to the message of an exception nobody can tell, so its end is a pause.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest: list[str] = []
        self._complete = False

    @property
    def holds(self) -> bool:
        """Whether there are lines that were not returned yet."""
        return bool(self._lines)

    def feed(self, lines: list[str]) -> list[str | Traceback]:
        """Take more lines; returns lines and whole tracebacks, in their order."""
        found: list[str | Traceback] = []
        for line in lines:
            found += self._take(line, line.rstrip("\r\n"))
        return found

    def release(self) -> list[str | Traceback]:
        """Return what is held: nothing more comes, or not soon."""
        lines, rest, complete = tuple(self._lines), tuple(self._rest), self._complete
        self._lines, self._rest, self._complete = [], [], False
        return [Traceback(lines, rest)] if complete else list(lines)

    def _take(self, line: str, text: str) -> list[str | Traceback]:
        if not self._lines:
            if text != _HEADER:
                return [line]
            self._lines.append(line)
        elif text == _HEADER:
            return self._begin_another(line, text)
        elif self._complete:
            self._rest.append(line)
            return self.release() if len(self._rest) == _MOST_REST else []
        elif text:
            self._lines.append(line)
            self._complete = not text.startswith(" ")
        else:
            return [*self.release(), line]
        return []

    def _begin_another(self, line: str, text: str) -> list[str | Traceback]:
        """Take the head of another traceback, to which the one before may have led."""
        before = [between.rstrip("\r\n") for between in self._rest[-3:]]
        if len(before) == 3 and before[0] == before[2] == "" and before[1] in _CHAINS:
            self._lines += [*self._rest, line]
            self._rest, self._complete = [], False
            return []
        return [*self.release(), *self._take(line, text)]


def shortened(traceback: Traceback) -> Traceback:
    """Leave out the frames of this package, unless there are no others."""
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
    """Leave out the frames of this package from a traceback as text."""
    return "".join(shortened(Traceback(tuple(text.splitlines(keepends=True)))).lines)


def _frames(lines: tuple[str, ...]) -> list[tuple[bool | None, list[str]]]:
    """Cut a traceback into frames: whether each is ours, None for what is between them."""
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
    """Whether this is a file of the package, wherever a host has it."""
    parts = Path(path).parts
    starts = (at for at, part in enumerate(parts) if part in _PACKAGES)
    return any("/".join(parts[at:]) in _own_files() for at in starts)


@functools.cache
def _own_files() -> frozenset[str]:
    root = Path(__file__).parents[3]
    found = (path for package in _PACKAGES for path in (root / package).rglob("*.py"))
    return frozenset(str(path.relative_to(root)) for path in found)
