"""The wheel, which Clang has compiled, beside the build from source, which GCC has, in turns.

make wheels && python benchmarks/wheel_against_source.py        (--shortest: does it run?)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpi_jobs import INTEL_MPI, MPICH
from output import RESULTS, write_result
from peers import GLOO, OPEN_MPI
from run import wait_until_quiet
from train_rank import ALONE, BARRIER, COALESCED, DDP, RAW_GLOO

from sirtaki.observe.contenders import COPY

ROOT = Path(__file__).resolve().parents[1]
LEAST = 0.97
# What both environments have in common: how far its ratios are from 1 says how far ours may be.
PEERS = {GLOO, OPEN_MPI, MPICH, INTEL_MPI, COPY, ALONE, BARRIER, DDP, RAW_GLOO, COALESCED}
BENCHMARKS = {
    "allreduce.py": (),
    "pairs.py": ("--no-hosts",),
    "train_step.py": (),
}
SHORTEST = {
    "allreduce.py": ("--max-bytes", "4096", "--rounds", "1"),
    "pairs.py": ("--no-hosts", "--max-bytes", "4096", "--rounds", "1"),
    "train_step.py": ("--small-gradients", "--rounds", "1", "--steps", "1", "--worlds", "1"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="default: the one of this Python in wheelhouse")
    parser.add_argument("--turns", type=int, default=3, help="of each of the two (3)")
    parser.add_argument("--shortest", action="store_true", help="one turn of next to nothing")
    parser.add_argument("--output", type=Path, default=Path(RESULTS), metavar="FOLDER")
    args = parser.parse_args()
    pythons = {"source": Path(sys.executable), "wheel": with_wheel(args.wheel or own_wheel())}
    best: dict[str, dict[str, float]] = {build: {} for build in pythons}
    for _ in range(1 if args.shortest else args.turns):
        for benchmark, flags in (SHORTEST if args.shortest else BENCHMARKS).items():
            for build, python in pythons.items():
                if not args.shortest:
                    wait_until_quiet()
                for row, seconds in measure(python, benchmark, flags):
                    best[build][row] = min(seconds, best[build].get(row, seconds))
    ratios = {row: best["source"][row] / seconds for row, seconds in best["wheel"].items()}
    return report(ratios, args.output)


def report(ratios: dict[str, float], output: Path) -> int:
    """Print the rows, the slowest last; 1 if one of ours is too slow."""
    slow = 0
    for row, ratio in sorted(ratios.items(), key=lambda item: -item[1]):
        peer = is_peer(row)
        slow += not peer and ratio < LEAST
        told = "peer" if peer else "met" if ratio >= LEAST else "MISSED"
        print(f"{told:7} {ratio:5.2f}  {row}")
    print(f"{slow} rows of the wheel below {LEAST} of the source build's speed")
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
            [str(python), str(ROOT / "benchmarks" / benchmark), *flags, "--output", folder],
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
