"""What agreeing on an operation costs rank 0 in a world of many simulated ranks.

python benchmarks/control_plane.py
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from output import RESULTS, write_result
from targets import Check

from sirtaki.observe.machine import machine_facts
from sirtaki.observe.measure import show_bytes, show_seconds
from sirtaki.rendezvous.words import aligned

_HOSTS = (1, 10, 100, 1250)
_PER_HOST = 8
_MOST_SECONDS = 0.3e-3
_MOST_BYTES = 32 << 20
_HEADER = [
    "Hosts",
    "Ranks",
    "Messages",
    "Cached",
    "Unnamed",
    "One by one",
    "Alltoall, a rank",
    "Rank 0",
    "Leader",
    "Rank",
]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default=str(RESULTS), help="folder of control_plane.json")
    args = parser.parse_args(arguments)
    facts = machine_facts()
    with tempfile.TemporaryDirectory() as folder:
        program = _build(Path(folder))
        worlds = [_measure(program, hosts) for hosts in _HOSTS]
    print("Control plane, 8 simulated ranks a host", *aligned(rows(worlds)), sep="\n")
    print("", *(check.line() for check in checks(worlds)), sep="\n")
    result = {
        "benchmark": "control_plane",
        "command": shlex.join(["python", "benchmarks/control_plane.py", *arguments]),
        "machine": facts,
        "worlds": worlds,
        "targets": [vars(check) for check in checks(worlds)],
    }
    write_result(Path(args.output) / "control_plane.json", result)
    return 0


def rows(worlds: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the table: processor time, messages and memory by size of world."""
    table = [_HEADER]
    for world in worlds:
        seconds = [world[f"{key}_seconds"] for key in ("cached", "unnamed", "one_by_one")]
        memory = [world[f"{key}_bytes"] for key in ("sequencer", "leader", "rank")]
        table.append(
            [
                *(str(world[key]) for key in ("hosts", "ranks", "messages")),
                *map(show_seconds, seconds),
                show_bytes(world["alltoall_bytes"] // world["ranks"]),
                *(f"{size / 2**20:.2f} MiB" for size in memory),
            ]
        )
    return table


def checks(worlds: Sequence[dict[str, Any]]) -> list[Check]:
    """Return which targets were met in the largest world."""
    largest = worlds[-1]
    seconds = max(largest["cached_seconds"], largest["unnamed_seconds"])
    memory = max(largest[f"{key}_bytes"] for key in ("sequencer", "leader", "rank"))
    each = {world["alltoall_bytes"] / world["ranks"] for world in worlds}
    return [
        Check(
            f"an operation takes at most {show_seconds(_MOST_SECONDS)} of rank 0, cached or not",
            show_seconds(seconds),
            seconds <= _MOST_SECONDS,
        ),
        Check(
            "control bytes of an alltoall are linear in ranks",
            f"{min(each):g} to {max(each):g} a rank",
            len(each) == 1,
        ),
        Check(
            f"the control plane of a rank has at most {_MOST_BYTES >> 20} MiB",
            f"{memory / 2**20:.2f} MiB",
            memory <= _MOST_BYTES,
        ),
    ]


def _build(folder: Path) -> Path:
    """Build the program that measures; returns where it is."""
    root = Path(__file__).resolve().parent.parent
    cmake = Path(sys.executable).with_name("cmake")
    for step in (
        ["-S", root, "-B", folder, "-DSIRTAKI_BENCHMARKS=ON", "--log-level=WARNING"],
        ["--build", folder, "--target", "sirtaki_control_plane", "--parallel", "2"],
    ):
        subprocess.run([cmake, *step], check=True, stdout=subprocess.DEVNULL)
    return folder / "sirtaki_control_plane"


def _measure(program: Path, hosts: int) -> dict[str, Any]:
    output = subprocess.run(
        [program, str(hosts), str(_PER_HOST)], check=True, capture_output=True, text=True
    ).stdout
    world: dict[str, Any] = json.loads(output)
    return world


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
