"""The screen of `sirtaki top`: what it shows on any terminal, and what keys do."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirtaki.inspect.live.screen import SORTS, Screen
from sirtaki.inspect.live.view import HEADINGS
from tests import needs
from tests.single.inspect.live.made_up import MadeUp
from tests.single.inspect.test_questions import PROGRAM, running
from tests.single.launching import LIMIT, SIRTAKI, Job

needs.package("rich")


def shown(screen: Screen, width: int, height: int = 20) -> list[str]:
    """The lines of a terminal of this size."""
    from rich.console import Console

    console = Console(width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(screen.drawn(width, height))
    return captured.get().splitlines()


def on(made_up: MadeUp) -> Screen:
    """A screen that has looked once."""
    screen = Screen(made_up)  # type: ignore[arg-type]
    screen.seen = made_up.look()
    return screen


def test_a_wide_terminal_shows_all_columns() -> None:
    title, head, first, second, keys = shown(on(MadeUp()), 120)
    assert title == "sirtaki top 0123abcd, 2 ranks"
    assert head.split() == list(HEADINGS)
    assert first.split()[:2] + first.split()[3:7] == ["0*", "21.0", "85%", "15%", "75%", "10%"]
    assert second.rstrip().endswith("waits in allreduce 'grad', for rank 0")
    assert keys.startswith("q: quit  s: sort (rank)")


def test_the_parts_of_each_rank_are_shown_where_ranks_share_them_out() -> None:
    _, head, first, second, _ = shown(on(MadeUp(parts=[4, 8])), 120)
    assert head.split() == [*HEADINGS[:-1], "PARTS", "DOES"]
    at = head.index("PARTS") + len("PARTS")
    assert [first[:at].split()[-1], second[:at].split()[-1]] == ["4", "8"]


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = shown(on(MadeUp(name="a" * 300)), width)
    assert max(map(len, lines)) <= width
    assert len(lines) == 5


def test_forty_columns_show_the_step_the_wait_and_what_it_does() -> None:
    _, head, _, second, _ = shown(on(MadeUp()), 40)
    assert head.split() == ["RANK", "STEP", "WAIT", "DOES"]
    assert second.split()[:4] == ["1", "21.0", "ms", "70%"]
    assert "waits in allreduce" in second


def test_names_do_nothing_to_the_terminal() -> None:
    evil = "\x1b[2J\x1b]0;owned\a[red]x[/red]"
    text = "\n".join(shown(on(MadeUp(name=evil)), 200))
    assert "\x1b" not in text
    assert "\a" not in text
    assert "?[2J?]0;owned?[red]x[/red]" in text


def test_s_sorts_by_one_column_after_the_other_largest_first() -> None:
    screen = on(MadeUp(ranks=3))
    orders = {}
    for _ in SORTS:
        orders[screen.sort] = [one["rank"] for one in screen.sorted()]
        assert screen.press("s")
    assert screen.sort == "rank"
    assert list(orders) == list(SORTS)
    assert (orders["rank"], orders["waiting"]) == ([0, 1, 2], [1, 2, 0])
    assert orders["cpu"] == [0, 1, 2]  # not known of any


def test_the_chosen_rank_stays_on_a_low_terminal() -> None:
    screen = on(MadeUp(ranks=50))
    for _ in range(60):
        screen.press("\x1b[B")
    assert screen.chosen == 49
    lines = shown(screen, 80, height=10)
    assert len(lines) <= 10
    assert lines[-2].split()[0] == "49"
    screen.press("k")
    assert screen.chosen == 48


@pytest.mark.parametrize("keys", [["1", "\r"], ["\x1b[B", "\r"]])
def test_a_number_or_the_chosen_rank_opens_its_stack(keys: list[str]) -> None:
    screen = on(MadeUp())
    assert all(screen.press(key) for key in keys)
    deadline = time.monotonic() + LIMIT
    while screen.stack == ["asking rank 1"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert shown(screen, 100)[0] == "rank 1: it has ended, or runs on another host"
    assert shown(screen, 40)[:2] == ["rank 1: it has ended, or runs on another", " host"]
    screen.stack = [f"line {number}" for number in range(30)]
    assert shown(screen, 80, height=13)[9] == "line 9"
    for _ in range(40):
        screen.press("j")
    assert shown(screen, 80, height=13)[:10] == [f"line {number}" for number in range(20, 30)]
    screen.press("k")
    assert shown(screen, 80, height=13)[0] == "line 19"
    assert screen.press("q")  # closes the stack
    assert screen.stack is None
    assert not screen.press("q")


class Terminal:
    """`sirtaki top` on a terminal of its own."""

    def __init__(self, job: str, columns: int, **variables: str) -> None:
        self._end, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.before = termios.tcgetattr(other)
        self._other = other
        # A size in the environment counts more than the terminal's own.
        outer = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [*SIRTAKI, "top", job, "--interval", "0.3"],
            stdin=other,
            stdout=other,
            stderr=other,
            env={**outer, "TERM": "xterm", **variables},
            start_new_session=True,
        )
        self.text = ""

    def press(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def wait(self, pattern: str) -> str:
        """Read until the text since the last time has this; returns it without escapes."""
        deadline = time.monotonic() + LIMIT
        text = ""
        while not re.search(pattern, text):
            assert time.monotonic() < deadline, f"no {pattern!r} in {text[-2000:]!r}"
            if select.select([self._end], [], [], 0.1)[0]:
                self.text += os.read(self._end, 1 << 16).decode(errors="replace")
            text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text)
        self.text = ""
        return text

    def settings(self) -> list[object]:
        return list(termios.tcgetattr(self._other))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)
        os.close(self._other)


@contextlib.contextmanager
def top(job: str, columns: int = 40, **variables: str) -> Iterator[Terminal]:
    terminal = Terminal(job, columns, **variables)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.job
def test_keys_work_on_a_job_that_hangs_and_has_a_stopped_rank(job: Job, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    with running("asleep", str(script), job) as found:
        with top(str(found.pids[0])) as terminal:
            terminal.wait("RANK +STEP .*WAIT +DOES")
            terminal.wait(" 1 .*idle, in no")
            terminal.press("1\r")
            terminal.wait(r"time\.sleep\(100\)")
            terminal.press("\r")
            terminal.wait("RANK")
            os.kill(found.pids[1], signal.SIGSTOP)
            terminal.wait("stopped by a")
            os.kill(found.pids[1], signal.SIGCONT)
            terminal.press("q")
            assert terminal.process.wait(LIMIT) == 0
            assert terminal.settings() == terminal.before
        with top(str(found.pids[0]), TERM="dumb") as plain:
            text = plain.wait(" 1 .*-")
            assert "\x1b" not in text
            assert max(map(len, text.splitlines())) <= 40
            plain.process.send_signal(signal.SIGINT)
            assert plain.process.wait(LIMIT) == 0
