"""Which test runs which line of the package."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.package_copy import PackageCopy
from tools.mutants.suites import Suite

BASELINE_SECONDS = 1800
SETTINGS = """[run]
source_pkgs = sirtaki, sirtaki_caffe
disable_warnings = module-not-imported
parallel = true
patch = subprocess, _exit
data_file = {folder}/.coverage
"""


@dataclass(frozen=True)
class Measured:
    """A suite without a fault: how long it takes, and which tests run a line of a file.

    Lines that run when a module is imported are of no test: `tests_of` gives all of the file's.
    """

    suite: Suite
    seconds: float
    lines: dict[str, dict[int, set[str]]]

    def tests_of(self, file: str, line: int) -> list[str]:
        """Return the tests that run a line, or, of one that only imports run, those of its file."""
        if file in self.suite.unseen:
            return self.suite.files()
        lines = self.lines.get(file, {})
        if line not in lines:
            return []
        tests = lines[line] or set().union(*lines.values())
        return sorted(tests)


def measured(copy: PackageCopy, suite: Suite, folder: Path) -> Measured:
    """Run a suite without a fault."""
    folder.mkdir()
    settings = folder / "coveragerc"
    settings.write_text(SETTINGS.format(folder=folder))
    begin = time.monotonic()
    passed, said = copy.run(suite, suite.files(), BASELINE_SECONDS, settings)
    seconds = time.monotonic() - begin
    if not passed:
        sys.exit(f"{suite.name} fails without a fault:\n{said}")
    return Measured(suite, seconds, lines_of(settings, copy.folder))


def lines_of(settings: Path, package: Path) -> dict[str, dict[int, set[str]]]:
    """Read what coverage has noted."""
    import coverage  # only `make mutants` installs it

    measuring = coverage.Coverage(config_file=str(settings))
    measuring.combine()
    data = measuring.get_data()
    found: dict[str, dict[int, set[str]]] = {}
    for file in data.measured_files():
        if not Path(file).is_relative_to(package):
            continue
        lines: dict[int, set[str]] = defaultdict(set)
        for line, contexts in data.contexts_by_lineno(file).items():
            lines[line] |= {name.strip("|") for name in contexts} - {""}
        found[str(Path(file).relative_to(package))] = dict(lines)
    return found
