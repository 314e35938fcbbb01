"""Where results lie."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sirtaki.rendezvous.words import aligned

if TYPE_CHECKING:
    from targets import Check

RESULTS = Path(__file__).resolve().parent / "results"


def write_result(path: Path, result: dict[str, object]) -> None:
    """Write a benchmark's JSON file; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def write_turns(
    path: Path,
    arguments: Sequence[str],
    facts: Mapping[str, object],
    taken: Mapping[str, Sequence[float]],
    check: Check,
) -> None:
    """Print a table of what contenders of two ranks took by turns, and write its JSON file.

    path: the file; its name is the benchmark's. facts: of the machine. taken: seconds by contender.
    """
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    table = [["", "median", "least", "most"]]
    for name, seconds in taken.items():
        shown = (f"{value:.2f} s" for value in (medians[name], min(seconds), max(seconds)))
        table.append([name, *shown])
    print("\n".join([*aligned(table), "", check.line()]))
    result = {
        "benchmark": path.stem,
        "command": shlex.join(["python", f"benchmarks/{path.stem}.py", *arguments]),
        "ranks": 2,
        "machine": facts,
        "cases": {name: {"median": medians[name], "all": taken[name]} for name in taken},
        "targets": [asdict(check)],
    }
    write_result(path, result)
