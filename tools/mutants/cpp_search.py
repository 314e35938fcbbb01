"""Planting faults in the C++ core, which is compiled anew for each."""

from __future__ import annotations

import queue
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutants import cpp_faults
from tools.mutants.mutant import Mutant
from tools.mutants.package_copy import finished
from tools.mutants.suites import CPP_ELSEWHERE, CPP_FILES, ROOT, matched

BUILD_SECONDS = 1200
TEST_SECONDS = 300
Report = Callable[[str, Mutant, bytes, str], None]


class SourceCopy:
    """A copy of the C++ sources and their tests, with a build of its own.

    Args:
        folder: Where to make it.
        choice: Which tests are run, as arguments of the test program.
    """

    def __init__(self, folder: Path, choice: Sequence[str] = ()) -> None:
        self.folder = folder
        self.choice = choice
        for name in ("cpp", "tests/cpp", "third_party"):
            shutil.copytree(ROOT / name, folder / name)
        shutil.copy(ROOT / "CMakeLists.txt", folder)
        tools = Path(sys.executable).parent
        configure = [
            *(str(tools / "cmake"), "-S", str(folder), "-B", str(folder / "build")),
            *("-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"),
            *("-DSIRTAKI_TESTS=ON", "-DSIRTAKI_WERROR=OFF", "--log-level=WARNING"),
        ]
        for command in (configure, self._build):
            passed, said = finished(command, BUILD_SECONDS)
            if not passed:
                sys.exit(f"the C++ tests cannot be built without a fault:\n{said}")
        passed, said = self.test()
        if not passed:
            sys.exit(f"the C++ tests fail without a fault:\n{said}")

    @property
    def _build(self) -> list[str]:
        cmake = str(Path(sys.executable).parent / "cmake")
        build = str(self.folder / "build")
        return [cmake, "--build", build, "--target", "sirtaki_tests", "--parallel", "1"]

    def test(self) -> tuple[bool, str]:
        """Run the tests until one fails."""
        program = str(self.folder / "build" / "sirtaki_tests")
        return finished([program, "--abort-after=1", *self.choice], TEST_SECONDS)

    def fate(self, mutant: Mutant) -> str | None:
        """Plant a fault; returns whether the tests notice it, None where it cannot be compiled."""
        path = self.folder / mutant.file
        source = path.read_bytes()
        path.write_bytes(mutant.planted(source))
        try:
            if not finished(self._build, BUILD_SECONDS)[0]:
                return None
            return "SURVIVES" if self.test()[0] else "noticed by C++ tests"
        finally:
            path.write_bytes(source)


def choose(seed: int) -> list[Mutant]:
    """Return all faults of the core, in a random order."""
    found = [
        mutant
        for file in matched(ROOT, CPP_FILES, "cpp")
        if not file.startswith(CPP_ELSEWHERE)
        for mutant in cpp_faults.mutants_of(file, (ROOT / file).read_bytes())
    ]
    random.Random(f"{seed} cpp").shuffle(found)
    return found


def search(folder: Path, count: int, seed: int, jobs: int, report: Report) -> tuple[int, int]:
    """Plant faults until `count` were compiled; returns how many, and how many go unnoticed."""
    copies: queue.Queue[SourceCopy] = queue.Queue()
    with ThreadPoolExecutor(jobs) as pool:
        for copy in pool.map(SourceCopy, [folder / f"cpp{number}" for number in range(jobs)]):
            copies.put(copy)
        waiting = choose(seed)
        planted = unnoticed = 0

        def with_copy(mutant: Mutant) -> str | None:
            copy = copies.get()
            try:
                return copy.fate(mutant)
            finally:
                copies.put(copy)

        while planted < count and waiting:
            batch, waiting = waiting[: count - planted], waiting[count - planted :]
            for mutant, how in zip(batch, pool.map(with_copy, batch), strict=True):
                if how is not None:
                    report("cpp", mutant, (ROOT / mutant.file).read_bytes(), how)
                    planted += 1
                    unnoticed += how == "SURVIVES"
    return planted, unnoticed
