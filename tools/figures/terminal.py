"""The animated terminal of the README: `python -m tools.figures.terminal`.

It runs two jobs, a hang and a job of which a process is killed, and draws what they print. The
picture plays once, with pauses shortened. Readers who prefer no motion see its end at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.figures.svg import drawing, element, rectangle, text

SCENES = Path(__file__).with_name("scenes")
FILE = Path(__file__).resolve().parents[2] / "docs" / "_static" / "terminal.svg"
ALT = (
    "A terminal. A job of two ranks stops, and Sirtaki says that rank 1 has not called an "
    "operation and at which line it is. In a second job a process is killed; training goes on "
    "without it, and with a new one later."
)
COLUMNS = 100
INDENT = 6 * " "
WRAPPER = textwrap.TextWrapper(COLUMNS, subsequent_indent=INDENT, break_on_hyphens=False)
LONGEST_PAUSE = 1.5
LETTER, LINE, EDGE = 7.5, 18, 14
STYLE = """\
.terminal{fill:#131416;stroke:#444b54}
text{font:12.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre}
text{fill:#d0d7de}
.command{fill:#ffffff;font-weight:600}
.kill{fill:#ffa657}
.found{fill:#ff8b95}
.back{fill:#5fd37a}
@keyframes appear{from{opacity:0}to{opacity:1}}
g{animation:appear .01s backwards}
@media(prefers-reduced-motion:reduce){g{animation:none}}
"""
CLASSES = {"$ kill": "kill", "$ ": "command", "stalled": "found", "process ": "back"}
# Called with each line; returns a line that somebody types now, or None when the scene ends.
Director = Callable[[str], str | None]


@dataclass(frozen=True)
class Line:
    seconds: float
    words: str


def ranks_of(folder: Path) -> dict[int, int]:
    """The process of each rank that runs in a folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").resolve() == folder:
                environment = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                command = (entry / "cmdline").read_bytes().split(b"\0")
                rank = next((each for each in environment if each.startswith("HOROVOD_RANK=")), "")
                if rank and command[0].endswith(b"python"):
                    found[int(rank.partition("=")[2])] = int(entry.name)
    return found


def record(command: str, script: str, direct: Callable[[Path], Director]) -> list[Line]:
    """Run a command on a script of `scenes`, and return what was seen and when."""
    folder = Path(tempfile.mkdtemp(prefix="demo-"))
    (folder / script).write_text((SCENES / script).read_text())
    (folder / "runtime").mkdir(mode=0o700)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "SIRTAKI_RUNTIME_DIR": str(folder / "runtime"),
    }
    begin = time.monotonic()
    seen = [Line(0.0, f"$ {command}")]
    job = subprocess.Popen(
        command.split(),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert job.stdout is not None
    director = direct(folder)
    try:
        for printed in job.stdout:
            words = printed.rstrip("\n").replace(str(folder), "/tmp/demo")
            seen.append(Line(time.monotonic() - begin, words))
            typed = director(words)
            if typed is None:
                break
            if typed:
                seen.append(Line(time.monotonic() - begin, typed))
    finally:
        job.send_signal(signal.SIGTERM)
        job.stdout.close()
        job.wait(60)
    return seen


def watch_the_hang(folder: Path) -> Director:
    return lambda words: None if words.startswith("  more:") else ""


def kill_a_rank(folder: Path) -> Director:
    """Kill rank 2 after two epochs, and see the job get a new one."""
    lost = False

    def direct(words: str) -> str | None:
        nonlocal lost
        if "epoch 2 on 3" in words:
            process = ranks_of(folder)[2]
            os.kill(process, signal.SIGKILL)
            return f"$ kill -9 {process}  # rank 2, from another terminal"
        lost = lost or words.startswith("process ")
        return None if lost and words.endswith("on 3 ranks") else ""

    return direct


def record_all() -> list[list[Line]]:
    return [
        record("sirtaki run -np 2 python train.py", "train.py", watch_the_hang),
        record("sirtaki run -np 3 --min-np 2 python elastic.py", "elastic.py", kill_a_rank),
    ]


def draw(scenes: list[list[Line]]) -> str:
    """The picture: the scenes one below the other, each line from its time on."""
    parts: list[str] = []
    height, now = float(EDGE), 0.0
    for scene in scenes:
        before = 0.0
        for line in scene:
            now += min(line.seconds - before, LONGEST_PAUSE)
            before = line.seconds
            class_ = next((c for begin, c in CLASSES.items() if line.words.startswith(begin)), "")
            rows = ""
            for part in WRAPPER.wrap(line.words) or [""]:
                height += LINE
                rows += text(EDGE, height, part, class_, anchor="start")
            parts.append(element("g", rows, style=f"animation-delay:{now:.2f}s"))
        height += LINE
        now += LONGEST_PAUSE
    width = COLUMNS * LETTER + 2 * EDGE
    screen = rectangle(0.5, 0.5, width - 1, height - 1, "terminal", 8)
    return drawing(width, height, screen + "".join(parts), ALT, STYLE) + "\n"


if __name__ == "__main__":
    FILE.write_text(draw(record_all()))
    print(FILE)
