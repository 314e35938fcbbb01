"""The pages: their blocks, and whether these do what the pages say.

CONTRIBUTING.md says how a block and its output are written.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
# Those outside of docs/ that users read too.
READMES = [ROOT / "README.md", ROOT / "docker/README.md", ROOT / "sirtaki-caffe/README.md"]
# Pages on several frameworks are followed with the frameworks' tests, on this backend of Keras.
BY_FRAMEWORK = {
    "get-started/tensorflow": "tensorflow",
    "get-started/keras": "tensorflow",
    "get-started/jax": "jax",
    "index": "torch",
}
LIMIT = 300

NOTES = ("file", "not run", "run", "output of", "beside")
OPTIONS = ("figures vary", "any order", "with stderr", "fails")
_NOTE = re.compile(r"<!-- ([a-z ]+): (.*) -->")
_FENCE = re.compile(r"(`{3,})(.*)")
# What differs from run to run: names of jobs, and numbers.
_FIGURE = r"(?:\b[0-9a-f]{8}\b|\d+(?:[.,]\d+)*)"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with the notes in the comments directly above it."""

    line: int
    language: str
    text: str
    notes: dict[str, str] = field(default_factory=dict)

    def has(self, option: str) -> bool:
        return option in self.notes.get("run", "").split(", ")


@dataclass(frozen=True)
class Step:
    """A command, and what the page shows below it."""

    command: str
    shown: str


def title(path: Path) -> str:
    return path.relative_to(DOCS if DOCS in path.parents else ROOT).with_suffix("").as_posix()


def blocks_of(path: Path) -> list[Block]:
    """All blocks of a page in order, also those inside directives of more than three backticks."""
    return list(_blocks(path.read_text().splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    notes: dict[str, str] = {}
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        number += 1
        if note := _NOTE.fullmatch(line):
            notes[note[1]] = note[2]
        elif fence := _FENCE.fullmatch(line):
            if not (len(fence[1]) > 3 and fence[2].startswith("{")):
                begin = number
                while number < len(lines) and lines[number].strip() != fence[1]:
                    number += 1
                text = textwrap.dedent("".join(f"{each}\n" for each in lines[begin:number]))
                yield Block(begin, fence[2], text, notes)
                number += 1
            else:
                end = next(n for n in range(number, len(lines)) if lines[n].strip() == fence[1])
                lines = [*lines[:end], "", *lines[end + 1 :]]
            notes = {}
        elif line:
            notes = {}


def programs(path: Path) -> list[str]:
    """The Python blocks of a page that are one program: all that have no note."""
    return [
        block.text
        for block in blocks_of(path)
        if block.language == "python" and not {"file", "not run"} & set(block.notes)
    ]


def steps_of(block: Block) -> list[Step]:
    """The commands of a block with what is shown below each."""
    if "output of" in block.notes:
        return [Step(block.notes["output of"], block.text)]
    steps: list[Step] = []
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = re.sub(r"\\\n\s*", "", part).partition("\n")
        steps.append(Step(command, shown))
    return steps


def is_run(block: Block) -> bool:
    return "not run" not in block.notes and (
        block.language == "console" or "output of" in block.notes
    )


def agree(shown: str, printed: str, figures_vary: bool = False, any_order: bool = False) -> bool:
    """Compare what a page shows with what was printed.

    A number on the page may be rounded. `…` is any text within a line; alone, any lines.
    """
    page, output = (
        [line.split() for line in text.splitlines() if line.strip()] for text in (shown, printed)
    )
    if any_order:
        page, output = sorted(page), sorted(output)
    patterns = ["(?:.*\n)*?" if line == ["…"] else _pattern(line, figures_vary) for line in page]
    found = re.fullmatch("".join(patterns), "".join(f"{' '.join(line)}\n" for line in output))
    if found is None or figures_vary:
        return found is not None
    wanted = [
        n for line in page if line != ["…"] for n in re.findall(r"-?\d+\.\d+", " ".join(line))
    ]
    return all(
        f"{float(number):.{len(told.partition('.')[2])}f}" == told
        for told, number in zip(wanted, found.groups(), strict=True)
    )


def _pattern(words: list[str], figures_vary: bool) -> str:
    """What a line of a page matches, with a group for each number with decimals."""
    parts = []
    for part in re.split(rf"(…|-?\d+\.\d+|{_FIGURE})", " ".join(words)):
        if part == "…":
            parts.append(".*")
        elif figures_vary and re.fullmatch(rf"-?\d+\.\d+|{_FIGURE}", part):
            parts.append(f"-?{_FIGURE}")
        elif re.fullmatch(r"-?\d+\.\d+", part):
            parts.append(r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)")
        else:
            parts.append(re.escape(part))
    return "".join(parts) + "\n"


class Terminal:
    """A folder in which the commands of a page are typed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("examples", "sirtaki-caffe"):
            (folder / name).symlink_to(ROOT / name)
        runtime = folder / ".runtime"
        runtime.mkdir(mode=0o700)
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "SIRTAKI_RUNTIME_DIR": str(runtime),
            "COLUMNS": "100",
        }

    def start(self, command: str, stderr: int = subprocess.STDOUT) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def type(self, command: str, with_stderr: bool) -> tuple[int, str, str]:
        """Return the exit code, what was printed, and what more was on standard error."""
        process = self.start(command, subprocess.STDOUT if with_stderr else subprocess.PIPE)
        with _ended(process):
            printed, errors = process.communicate(timeout=LIMIT)
        return process.returncode, printed, errors or ""

    @contextlib.contextmanager
    def beside(self, command: str | None) -> Iterator[None]:
        if command is None:
            yield
            return
        process = self.start(f"{{ {command}; }} > beside.txt 2>&1")
        with _ended(process):
            yield


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """End what a command has started, however the block is left."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def follow(path: Path, folder: Path) -> None:
    """Save the files of a page, type its commands, and compare what they print."""
    terminal = Terminal(folder)
    for block in blocks_of(path):
        if name := block.notes.get("file"):
            with (folder / name).open("a") as file:
                file.write(block.text)
        elif is_run(block):
            with terminal.beside(block.notes.get("beside")):
                wrong = _type_all(terminal, block)
            assert not wrong, f"{path.name}:{block.line}: {wrong}"


def _type_all(terminal: Terminal, block: Block) -> str | None:
    """Type the commands of a block; return what the first wrong one did.

    What is beside them takes time to start, and measures differ from one time to the next:
    all of them are typed again until each prints what the page shows.
    """
    until = time.monotonic() + (LIMIT if "beside" in block.notes else 0)
    while True:
        wrong = next(
            filter(None, (_wrong(terminal, block, step) for step in steps_of(block))), None
        )
        if wrong is None or time.monotonic() > until:
            return wrong
        time.sleep(0.5)


def _wrong(terminal: Terminal, block: Block, step: Step) -> str | None:
    """Type a command, and return what it did if that is not what the page shows."""
    code, printed, errors = terminal.type(step.command, block.has("with stderr"))
    well = (code != 0) == block.has("fails") and (
        not step.shown.strip()
        or agree(step.shown, printed, block.has("figures vary"), block.has("any order"))
    )
    return None if well else f"{step.command} ended with {code} and printed:\n{printed}{errors}"


def run_alone(page: str, folder: Path, before: str = "") -> None:
    """Run the program of a page, with what the page takes for granted."""
    script = folder / "page.py"
    script.write_text("\n".join((before, *programs(DOCS / f"{page}.md"))))
    subprocess.run([sys.executable, script], check=True, cwd=folder, timeout=LIMIT)
