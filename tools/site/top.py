"""Pictures of `sirtaki top --web` on a real job of four ranks, of which one loads slowly.

`python -m tools.site.top FOLDER` writes them, at two widths, light and dark. `--axe axe.min.js`
also lists what axe-core finds in the page, and fails where there is something.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chromium import Page, browser

TRAIN = """
import time

import numpy as np

import sirtaki as hvd

hvd.init()
gradients = [np.ones(100_000, np.float32) for _ in range(4)]


def load():
    time.sleep(0.03 if hvd.rank() == 2 else 0.002)


print("training", flush=True)
while True:
    load()
    handles = []
    for number, gradient in enumerate(gradients):
        time.sleep(0.005)
        handles.append(hvd.allreduce_async_(gradient, name=f"grad.layer{number}"))
    for handle in handles:
        hvd.synchronize(handle)
"""
SIRTAKI = (sys.executable, "-m", "sirtaki.launch.cli")
SLOW = 2
SIZES = ((1280, 1000), (390, 844))
FINDINGS = """
axe.run(document, {resultTypes: ['violations']}).then((found) => JSON.stringify(
  found.violations.map((each) => `${each.id}: ${each.help}: ${each.nodes[0].target.join(' ')}`)))
"""


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A command, until the end of the block; what it prints can be read."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def line_with(process: subprocess.Popen[str], words: str) -> str:
    """The first line of a process that contains words."""
    assert process.stdout is not None
    return next(line.strip() for line in process.stdout if words in line)


def open_row(page: Page) -> None:
    """Open the row of the slow rank, where its stack is that of its loader."""
    frames = "document.querySelector('#frames')?.textContent"
    while "in load\n" not in (page.value(frames) or ""):
        page.value(f"document.querySelectorAll('#ranks tr')[{SLOW}].click()")
        time.sleep(1.0)


def look_at(page: Page, folder: Path, axe: str) -> set[str]:
    """Write the pictures; return what axe finds."""
    found: set[str] = set()
    for dark in (False, True):
        for width, height in SIZES:
            name = folder / f"top-{width}-{'dark' if dark else 'light'}.png"
            page.picture(name, width, height, dark)
            time.sleep(1.5)  # the next look at the job draws the charts as wide as the window is
            page.picture(name, width, height, dark)
            if axe:
                page.value(f"{axe}; 0")
                found |= {f"{name.stem}: {each}" for each in json.loads(page.value(FINDINGS))}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--axe", type=Path)
    parser.add_argument("--seconds", type=float, default=70.0, help="of the charts")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch) / "train.py"
        script.write_text(TRAIN)
        with running(*SIRTAKI, "run", "-np", "4", sys.executable, str(script)) as job:
            line_with(job, "training")
            listed = subprocess.check_output([*SIRTAKI, "ps"], text=True).splitlines()
            name = next(line.split()[0] for line in listed if str(script) in line)
            with (
                running(*SIRTAKI, "top", name, "--web", "--interval", "1") as top,
                browser("chromium", Path(scratch) / "profile") as page,
            ):
                address = line_with(top, "http://")
                time.sleep(args.seconds)
                page.do("Page.navigate", url=address)
                page.wait(f"document.querySelectorAll('#ranks tr').length > {SLOW}")
                open_row(page)
                found = look_at(page, args.folder, args.axe.read_text() if args.axe else "")
                wrong = sorted({*found, *page.errors})
    print("\n".join(wrong) or f"pictures in {args.folder}: nothing found")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
