"""`sirtaki demo`: shows on this machine, in about a minute, what Sirtaki does."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from sirtaki.demo import scenes
from sirtaki.demo.program import SceneError, say
from sirtaki.launch.flags.guesses import CommandParser

_FAILED = 1
_SCRIPTS = ("shapes", "train", "survive", "hang", "compare")
_Scene = Callable[[Path], str]


def main(arguments: Sequence[str]) -> int:
    """Run `sirtaki demo …`; returns 0, or 1 if a scene failed."""
    make_parser().parse_args(arguments)
    framework = "torch" if importlib.util.find_spec("torch") else "numpy"
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sirtaki-demo-") as name:
        scripts = _write_scripts(Path(name), framework)
        say(f"The scripts of this demo: {scripts}")
        _warn_of_noise()
        figures = _play(_program(framework), Path(name))
    say(f"\n==== Measured here in {time.monotonic() - began:.0f} s")
    for number, figure in enumerate(figures, 1):
        say(f"{number}. {figure or 'FAILED'}")
    if framework != "torch":
        say("With PyTorch installed, the demo also compares Sirtaki with Gloo.")
    return 0 if all(figures) else _FAILED


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of `sirtaki demo`."""
    return CommandParser(
        prog="sirtaki demo",
        description="Train a small network on two processes of this machine, survive the loss of "
        "one, explain a hang, and compare Sirtaki with Gloo. Takes about a minute, downloads "
        "nothing, and uses PyTorch if it is installed, otherwise NumPy.",
    )


def _program(framework: str) -> list[tuple[str, _Scene]]:
    program: list[tuple[str, _Scene]] = [
        ("Two processes train one network", scenes.speed_up),
        ("A job is watched, and survives the loss of a process", scenes.survival),
        ("A job hangs, and says why", scenes.hang),
    ]
    if framework == "torch":
        program.append(("The same script over Gloo and over Sirtaki", scenes.against_gloo))
    return program


def _play(program: Sequence[tuple[str, _Scene]], folder: Path) -> list[str | None]:
    """Play all scenes; return the figure of each, None if it failed."""
    figures: list[str | None] = []
    for number, (title, scene) in enumerate(program, 1):
        say(f"\n==== {number} of {len(program)}: {title}")
        try:
            figures.append(scene(folder))
            say(f"=> {figures[-1]}")
        except SceneError as error:
            figures.append(None)
            print(f"sirtaki demo: error: {error}", file=sys.stderr, flush=True)
    return figures


def _write_scripts(folder: Path, framework: str) -> Path:
    """Copy the scripts into a folder, like a user's; return the folder of the originals."""
    kept = resources.files("sirtaki.demo.scripts")
    names = {name: name for name in _SCRIPTS} | {f"network_{framework}": "network"}
    for name, written in names.items():
        text = kept.joinpath(f"{name}.py").read_text(encoding="utf-8")
        (folder / f"{written}.py").write_text(text, encoding="utf-8")
    return Path(str(kept))


def _warn_of_noise() -> None:
    """Print conditions that make this machine's figures unreliable."""
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        say("This process may use one core only: two processes share it, and are no faster.")
    elif os.getloadavg()[0] > 0.5:
        say(f"Other programs are busy here (load {os.getloadavg()[0]:.1f}): expect worse figures.")
