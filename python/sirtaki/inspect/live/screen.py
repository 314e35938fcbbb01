"""The screen of `sirtaki top`: samples the job in the background, so that keys work at once."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sirtaki.inspect.live.view import HEADINGS, Looks, cells, headings
from sirtaki.inspect.stacks import stack_of
from sirtaki.rendezvous.threads import Inbox
from sirtaki.rendezvous.words import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

# The sort keys, in the order in which "s" selects them.
SORTS = (
    "rank",
    "step",
    "computing",
    "exposed",
    "communicating",
    "waiting",
    "cpu",
    "bytes",
    "memory",
)
# A narrow terminal shows these columns, and then more as they fit.
_ALWAYS = ("RANK", "STEP", "WAIT")
_MORE = ("EXPOSED", "COMPUTE", "PARTS", "COMM", "BYTES/S", "MEMORY", "CPU")
_LEAST_DOES = 14
_GAP = 2
_OTHER_LINES = 3
_REDRAW_SECONDS = 1.0
_UP, _DOWN = ("\x1b[A", "\x1bOA", "k"), ("\x1b[B", "\x1bOB", "j")
_ENTER, _BACK = ("\r", "\n"), ("\x1b", "\x7f", "q")


def usable() -> bool:
    """Return whether there is a terminal, and the package rich."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    good = os.environ.get("TERM", "dumb") not in ("dumb", "")
    return terminal and good and importlib.util.find_spec("rich") is not None


class Screen:
    """The content of the screen and its keys; only `run` needs a terminal.

    Args:
        looks: Samples the job.
    """

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self.seen: dict[str, Any] | None = None
        self.ended = False
        self.sort = "rank"
        self.chosen = 0
        self.stack: list[str] | None = None
        self._typed = ""
        self._scrolled = 0
        self._asked = 0
        self._failure: BaseException | None = None
        self._changes: Inbox[None] = Inbox()

    def run(self) -> int:
        """Show the job until "q", Ctrl-C or its end; returns 0, or 1 if it has ended."""
        from rich.console import Console
        from rich.live import Live

        threading.Thread(target=self._look, name="sirtaki looks", daemon=True).start()
        console = Console(highlight=False)
        with _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            going = True
            while going and not self.ended:
                live.update(self.drawn(console.width, console.height), refresh=True)
                going = self._wait(keys)
        if self._failure is not None:
            raise self._failure
        return int(self.ended)

    def _wait(self, keys: int) -> bool:
        """Wait for a key, a sample or a stack; False when the user wants to leave."""
        ready, _, _ = select.select([keys, self._changes.fileno()], [], [], _REDRAW_SECONDS)
        list(self._changes.take())
        if keys not in ready:
            return True
        try:
            pressed = os.read(keys, 64).decode(errors="replace")
        except OSError:
            pressed = ""
        return bool(pressed) and all(self.press(key) for key in _split(pressed))

    def _look(self) -> None:
        try:
            while not self.ended:
                self.seen = self._looks.look()
                self.ended = self.seen is None
                self._changes.put(None)
                time.sleep(self._looks.interval)
        except BaseException as error:  # raised again after the terminal is restored
            self._failure, self.ended = error, True
            self._changes.put(None)

    def press(self, key: str) -> bool:
        """Handle a key; False: leave."""
        if self.stack is not None:
            if key in _BACK or key in _ENTER:
                self.stack, self._asked = None, self._asked + 1
            elif key in _UP or key in _DOWN:
                self._scrolled = max(0, self._scrolled + (-1 if key in _UP else 1))
        elif key == "q":
            return False
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key in _UP or key in _DOWN:
            self._step(-1 if key in _UP else 1)
        elif key.isdecimal() and len(self._typed) < 9:
            self._typed += key
        elif key in _ENTER:
            self._open(int(self._typed or self.chosen))
        else:
            self._typed = ""
        return True

    def _step(self, by: int) -> None:
        ranks = [one["rank"] for one in self.sorted()]
        if self.chosen in ranks:
            at = ranks.index(self.chosen) + by
            self.chosen = ranks[min(max(at, 0), len(ranks) - 1)]

    def _open(self, rank: int) -> None:
        """Ask for the stack in the background, as a rank may take long to answer."""
        self._typed = ""
        self.stack = [f"asking rank {rank}"]
        self._scrolled = 0
        self._asked += 1
        number = self._asked

        def ask() -> None:
            lines = stack_of(self._looks.job, rank)
            if self._asked == number:
                self.stack = lines
                self._changes.put(None)

        threading.Thread(target=ask, name="sirtaki asks for a stack", daemon=True).start()

    def sorted(self) -> list[dict[str, Any]]:
        """Return the ranks in the chosen order: largest first, except for rank numbers."""

        def place(one: Mapping[str, Any]) -> tuple[bool, float]:
            value = one[self.sort]
            return value is None, 0.0 if value is None else -value

        ranks = [] if self.seen is None else list(self.seen["ranks"])
        return ranks if self.sort == "rank" else sorted(ranks, key=place)

    def drawn(self, width: int, height: int) -> RenderableType:
        """Return the content of the terminal."""
        from rich.console import Group
        from rich.text import Text

        room = max(1, height - _OTHER_LINES)
        if self.stack is not None:
            lines = [part for line in self.stack for part in _folded(printable(line), width)]
            self._scrolled = max(0, min(self._scrolled, len(lines) - room))
            seen = lines[self._scrolled : self._scrolled + room]
            return Group(
                Text("\n".join(seen), no_wrap=True),
                self._hint("Enter: back  up, down: scroll", width),
            )
        if self.seen is None:
            return Text(f"asking the ranks of {self._looks.job}"[:width])
        title = Text(f"sirtaki top {self._looks.job}, {len(self.seen['ranks'])} ranks"[:width])
        keys = f"q: quit  s: sort ({self.sort})  Enter: stack of {self._typed or self.chosen}"
        return Group(title, self._table(width, room), self._hint(keys, width))

    def _hint(self, text: str, width: int) -> RenderableType:
        from rich.text import Text

        return Text(text[:width], style="dim", no_wrap=True)

    def _table(self, width: int, room: int) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        ranks = self.sorted()
        rows = [dict(zip(headings(ranks), cells(one), strict=True)) for one in ranks]
        names = columns(rows, width)
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, expand=False)
        for name in names:
            last = name == names[-1]
            table.add_column(name, justify="left" if last else "right", no_wrap=True)
        first = self._first(ranks, room)
        for one, row in list(zip(ranks, rows, strict=True))[first : first + room]:
            style = "bold red" if one["slowest"] else ""
            if one["rank"] == self.chosen:
                style += " reverse"
            left = width - sum(_widths(rows)[name] + _GAP for name in names[:-1])
            row["DOES"] = row["DOES"][: max(1, left)]
            table.add_row(*(Text(printable(row[name])) for name in names), style=style)
        return table

    def _first(self, ranks: Sequence[Mapping[str, Any]], room: int) -> int:
        """Return the first row on the screen, such that the chosen row is visible."""
        at = next((n for n, one in enumerate(ranks) if one["rank"] == self.chosen), 0)
        return max(0, at - room + 1)


def columns(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """Return the headings of the columns that fit.

    Args:
        rows: The cell under each heading.
        width: Of the terminal.
    """
    widths = _widths(rows)
    shown = set(_ALWAYS)
    for name in filter(widths.__contains__, _MORE):
        needed = sum(widths[each] + _GAP for each in shown | {name}) + _LEAST_DOES
        if needed > width:
            break
        shown.add(name)
    return [name for name in widths if name in shown] + [HEADINGS[-1]]


def _folded(line: str, width: int) -> list[str]:
    """Return a line as several that fit, not truncated: the end of a path matters most."""
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]


def _widths(rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    names = rows[0] if rows else HEADINGS
    return {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Switch off echo and line buffering of keys; yields the descriptor to read them from."""
    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    tty.setcbreak(keys)
    try:
        yield keys
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _split(pressed: str) -> list[str]:
    """Split a terminal's input into keys: an arrow is three characters."""
    if pressed.startswith("\x1b") and len(pressed) > 1:
        return [pressed[:3], *_split(pressed[3:])] if pressed[3:] else [pressed[:3]]
    return [pressed[0], *_split(pressed[1:])] if pressed else []
