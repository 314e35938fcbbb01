"""Plants faults in a copy of the project, one at a time, and lists those no test notices.

python -m tools.mutants [--count 64] [--seed 0] [--jobs 1] [core torch … cpp]
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import sirtaki
from tools.mutants import cpp_search, python_faults
from tools.mutants.coverage_map import Measured, measured
from tools.mutants.mutant import Mutant, difference
from tools.mutants.package_copy import PackageCopy
from tools.mutants.suites import PARTS, matched

# What a run of tests may take beyond three times its usual time.
SPARE_SECONDS = 60
CPP = "cpp"


def main() -> int:
    """Plant the faults, print what became of each, and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=64, help="how many faults, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="chooses other faults")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    known = [*PARTS, CPP]
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(known)}; all but cpp by default")
    args = parser.parse_args()
    args.parts = args.parts or list(PARTS)
    if unknown := set(args.parts) - set(known):
        parser.error(
            f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        )
    shares = share(args.count, args.parts)
    table: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as name:
        parts = [part for part in args.parts if part != CPP]
        if parts:
            table |= search_python(Path(name), parts, shares, args.seed, args.jobs)
        if CPP in shares:
            table[CPP] = cpp_search.search(Path(name), shares[CPP], args.seed, args.jobs, report)
    print(f"\n{'part':12} planted unnoticed")
    for part, (planted, unnoticed) in table.items():
        print(f"{part:12} {planted:7} {unnoticed:9}")
    total = [sum(column) for column in zip(*table.values(), strict=True)]
    print(f"{'all':12} {total[0]:7} {total[1]:9}")
    return 0


def share(count: int, parts: list[str]) -> dict[str, int]:
    """Share out the faults: some in every part."""
    each, more = divmod(max(count, len(parts)), len(parts))
    return {part: each + (number < more) for number, part in enumerate(parts)}


def choose(part: str, count: int, seed: int) -> list[Mutant]:
    """Draw among the faults of a part, whether tests run their lines or not."""
    package = Path(sirtaki.__file__).parents[1]
    found = [
        mutant
        for file in matched(package, PARTS[part][0], part)
        for mutant in python_faults.mutants_of(file, (package / file).read_bytes())
    ]
    return random.Random(f"{seed} {part}").sample(found, min(count, len(found)))


def report(part: str, mutant: Mutant, source: bytes, how: str) -> None:
    """Print what became of a fault: how it was noticed, or that it was not."""
    print(f"{part}: {how}: {mutant.file}:{mutant.line}", flush=True)
    if how.startswith("SURVIVES"):
        print(difference(mutant, source), flush=True)


def search_python(
    folder: Path, parts: list[str], shares: dict[str, int], seed: int, jobs: int
) -> dict[str, tuple[int, int]]:
    """Plant faults in Python; returns how many of each part, and how many go unnoticed."""
    chosen = {part: choose(part, shares[part], seed) for part in parts}
    copies: queue.Queue[PackageCopy] = queue.Queue()
    for number in range(jobs):
        copies.put(PackageCopy(folder / f"copy{number}"))

    def with_copy(function: Callable[..., Any], *arguments: Any) -> Any:
        copy = copies.get()
        try:
            return function(copy, *arguments)
        finally:
            copies.put(copy)

    suites = {suite.name: suite for part in parts for suite in PARTS[part][1]}
    package = Path(sirtaki.__file__).parents[1]
    table = {}
    with ThreadPoolExecutor(jobs) as pool:
        places = [folder / f"coverage-{name}" for name in suites]
        runs = pool.map(lambda *each: with_copy(measured, *each), suites.values(), places)
        known = dict(zip(suites, runs, strict=True))
        for part, mutants in chosen.items():
            own = [known[suite.name] for suite in PARTS[part][1]]
            fates = pool.map(lambda mutant, own=own: with_copy(fate, mutant, own), mutants)
            unnoticed = 0
            for mutant, how in zip(mutants, fates, strict=True):
                report(part, mutant, (package / mutant.file).read_bytes(), how)
                unnoticed += how.startswith("SURVIVES")
            table[part] = (len(mutants), unnoticed)
    return table


def fate(copy: PackageCopy, mutant: Mutant, suites: list[Measured]) -> str:
    """Plant a fault, run the tests that run its line; returns who noticed it."""
    path = copy.folder / mutant.file
    source = path.read_bytes()
    path.write_bytes(mutant.planted(source))
    try:
        run = False
        for known in suites:
            if tests := known.tests_of(mutant.file, mutant.line):
                run = True
                limit = SPARE_SECONDS + 3 * known.seconds
                if not copy.run(known.suite, tests, limit)[0]:
                    return f"noticed by {known.suite.name}"
        return "SURVIVES" if run else "SURVIVES, no test runs this line"
    finally:
        path.write_bytes(source)


if __name__ == "__main__":
    sys.exit(main())
