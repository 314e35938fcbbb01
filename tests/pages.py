"""The pages in docs/: their blocks, and the commands that they tell a reader to type."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.single.launching import HOROVODRUN

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
PROGRAMS = {"python": (sys.executable,), "horovodrun": HOROVODRUN}
LIMIT = 200


def title(path: Path) -> str:
    return path.relative_to(DOCS).with_suffix("").as_posix()


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)


def languages(path: Path) -> list[str]:
    """The language of each block of a page, in order."""
    return re.findall(r"^```(\S*)\n.*?^```$", path.read_text(), re.MULTILINE | re.DOTALL)


def without_figures(text: str) -> str:
    """What is compared of an output: not the numbers, which depend on the machine."""
    return re.sub(r"\d+\.\d+", "#", text)


def follow(page: str, folder: Path) -> None:
    """Do what a page of "Get started" says: save its script, type its commands.

    The last command prints what the page shows.
    """
    path = DOCS / "get-started" / f"{page}.md"
    assert languages(path) == ["python", "console", "text"]
    (script,), (commands,), (shown,) = (blocks(path, name) for name in languages(path))
    (folder / "train.py").write_text(script)
    variables = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    for line in commands.splitlines():
        assert line.startswith("$ ")
        program, *words = shlex.split(line.removeprefix("$ "))
        words = [sys.executable if word == "python" else word for word in words]
        done = subprocess.run(
            [*PROGRAMS[program], *words],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert without_figures(done.stdout) == without_figures(shown)


def run_alone(page: str, folder: Path, before: str = "") -> None:
    """Run the Python blocks of a page as one program, with what the page takes for granted."""
    code = "\n".join((before, *blocks(DOCS / f"{page}.md", "python")))
    script = folder / "page.py"
    script.write_text(code)
    subprocess.run([sys.executable, script], check=True, cwd=folder, timeout=LIMIT)
