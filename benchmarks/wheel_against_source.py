"""The wheel, which Clang has compiled, beside the build from source, which GCC has, in turns.

make wheels && python benchmarks/wheel_against_source.py        (--shortest: does it run?)
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from output import RESULTS, write_result
from run import wait_until_quiet
from train_rank import ALONE

from sirtaki.observe.contenders import COPY

ROOT = Path(__file__).resolve().parents[1]
LEAST = 0.97
# What both environments have in common: how far its ratios are from 1 says how far ours may be.
PEERS = {COPY, ALONE}
# Few rounds and many turns: which memory a process gets decides more than what it does in a round.
BENCHMARKS = {
    "allreduce.py": ("--rounds", "3"),
    "pairs.py": ("--no-hosts", "--rounds", "3"),
    "train_step.py": ("--worlds", "1", "--rounds", "3"),
}
SHORTEST = {
    "allreduce.py": ("--max-bytes", "4096", "--rounds", "1"),
    "pairs.py": ("--no-hosts", "--max-bytes", "4096", "--rounds", "1"),
    "train_step.py": ("--small-gradients", "--rounds", "1", "--steps", "1", "--worlds", "1"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="default: the one of this Python in wheelhouse")
    parser.add_argument("--turns", type=int, default=4, help="of each of the two (4)")
    parser.add_argument("--only", choices=BENCHMARKS, help="this benchmark's rows alone")
    parser.add_argument("--shortest", action="store_true", help="one turn of next to nothing")
    parser.add_argument("--output", type=Path, default=Path(RESULTS), metavar="FOLDER")
    args = parser.parse_args()
    pythons = {"source": Path(sys.executable), "wheel": with_wheel(args.wheel or own_wheel())}
    chosen = {
        name: flags
        for name, flags in (SHORTEST if args.shortest else BENCHMARKS).items()
        if args.only in (None, name)
    }
    best: dict[str, dict[str, float]] = {build: {} for build in pythons}
    if not args.shortest:
        wait_until_quiet()
    for turn in range(1 if args.shortest else args.turns):
        for benchmark, flags in chosen.items():
            # Each build is first in every other turn.
            for build in list(pythons)[:: -1 if turn % 2 else 1]:
                for row, seconds in measure(pythons[build], benchmark, flags):
                    best[build][row] = min(seconds, best[build].get(row, seconds))
    ratios = {row: best["source"][row] / seconds for row, seconds in best["wheel"].items()}
    return report(ratios, args.output)


def report(ratios: dict[str, float], output: Path) -> int:
    """Print the rows, the slowest last; 1 if one of ours is too slow."""
    slow = 0
    ours = sum(not is_peer(row) for row in ratios)
    for row, ratio in sorted(ratios.items(), key=lambda item: -item[1]):
        peer = is_peer(row)
        slow += not peer and ratio < LEAST
        told = "peer" if peer else "met" if ratio >= LEAST else "MISSED"
        print(f"{told:7} {ratio:5.2f}  {row}")
    mean = math.exp(sum(math.log(ratios[row]) for row in ratios if not is_peer(row)) / ours)
    print(f"{slow} of {ours} rows of the wheel below {LEAST} of the source build's speed")
    print(f"geometric mean {mean:.3f}")
    write_result(output / "wheel_against_source.json", {"least": LEAST, "ratios": ratios})
    return 1 if slow else 0


def is_peer(row: str) -> bool:
    """Whether a row measures nothing of ours."""
    return row.rpartition("/")[2] in PEERS


def own_wheel() -> Path:
    """Return the wheel in wheelhouse that this Python and this processor take."""
    version = sys.version_info[:2]
    tag = "abi3" if version >= (3, 12) else "cp{}{}-".format(*version)
    machine = sysconfig.get_platform().rpartition("-")[2]
    found = [
        one for one in (ROOT / "wheelhouse").glob(f"sirtaki-*{machine}.whl") if tag in one.name
    ]
    if not found:
        raise SystemExit(f"no wheel of {tag.strip('-')} for {machine} in wheelhouse; `make wheels`")
    return found[0]


def with_wheel(wheel: Path) -> Path:
    """Return the Python of an environment like this one, but with the wheel."""
    folder = ROOT / "build" / "wheel-environment"
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = ("-m", "pip", "install", "--quiet", "--no-deps", str(wheel))
    subprocess.run([str(python), *install], check=True)
    packages = python.parents[1] / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    # Looked at after the environment's own packages.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def measure(python: Path, benchmark: str, flags: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Run a benchmark; yield the median seconds of each row that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        # The MPIs' programs are in this environment.
        path = f"{python.parent}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}"
        subprocess.run(
            [
                str(python),
                str(ROOT / "benchmarks" / benchmark),
                "--no-peers",
                *flags,
                "--output",
                folder,
            ],
            check=True,
            env={**os.environ, "PATH": path + os.environ["PATH"]},
            stdout=subprocess.DEVNULL,
        )
        for file in Path(folder).glob("*.json"):
            yield from rows(json.loads(file.read_text()), benchmark)


def rows(found: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield the medians below a part of a result, each by where it stands."""
    if not isinstance(found, dict):
        return
    if "median" in found:
        yield path, found["median"]
        return
    for name, part in found.items():
        yield from rows(part, f"{path}/{name}")


if __name__ == "__main__":
    sys.exit(main())
