"""Shows that the simulation finds faults of each class that it is made for."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.cpp_search import SourceCopy
from tools.mutants.mutant import Mutant
from tools.mutants.suites import ROOT

SEEDS = 2000


@dataclass(frozen=True)
class Fault:
    """A class of faults, and one of them: `text` in place of `code`, which a file has once."""

    kind: str
    file: str
    code: str
    text: str

    def mutant(self) -> Mutant:
        """Return the fault; ends the program where the file has no such code."""
        source = (ROOT / self.file).read_text()
        if source.count(self.code) != 1:
            sys.exit(f"{self.file} has {source.count(self.code)} times: {self.code}")
        start = source.index(self.code)
        line = source.count("\n", 0, start) + 1
        before = len(source[:start].encode())
        return Mutant(self.file, line, before, before + len(self.code.encode()), self.text)


FAULTS = (
    Fault(
        "a lost wake-up",
        "cpp/engine/control/control.h",
        "return context_.doorbell.ring(0, urgent ? kControl : kRequest);",
        "return;",
    ),
    Fault(
        "a stale generation",
        "cpp/transport/network/host_link.cpp",
        "if (generation == generation_) receive(message);",
        "receive(message);",
    ),
    Fault(
        "a missing look for an abort",
        "cpp/transport/memory/doorbell.cpp",
        "if (lost_rank >= 0) throw PeerLost(lost_rank);",
        "(void)lost_rank;",
    ),
    Fault(
        "memory used again too early",
        "cpp/transport/group.h",
        "return use->group == nullptr || use->group->have_drained(use->collective);",
        "return true;",
    ),
)


def main() -> int:
    """Plant each fault and run the seeds; returns 1 if one goes unnoticed."""
    os.environ["SIRTAKI_SIMULATE_SEEDS"] = str(SEEDS)
    mutants = [(fault, fault.mutant()) for fault in FAULTS]
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = SourceCopy(Path(folder), ["--test-suite=simulation"])
        for fault, mutant in mutants:
            how = copy.fate(mutant)
            unnoticed += how != "noticed by C++ tests"
            print(f"{fault.kind} ({fault.file}:{mutant.line}): {how or 'cannot be compiled'}")
    return min(1, unnoticed)


if __name__ == "__main__":
    sys.exit(main())
