"""Looks at what was built: does each file keep what its name promises?"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

LARGEST = 3_000_000


def check(files: Iterable[Path]) -> list[str]:
    """Return what is wrong with wheels and source archives, one line each."""
    files = sorted(files)
    found = []
    for file in files:
        if file.suffix == ".whl" and "manylinux" in file.name:
            found += [f"{file.name}: {problem}" for problem in compiled(file)]
        if file.stat().st_size > LARGEST:
            found.append(f"{file.name}: {file.stat().st_size} bytes are more than {LARGEST}")
    command = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        found.append(f"twine: {done.stdout.strip()}")
    return found


def compiled(wheel: Path) -> list[str]:
    """Return what is wrong with a compiled wheel, auditwheel's word on its tag included."""
    promised = wheel.stem.rpartition("-")[2]
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [done.stderr.strip()]
    audited = json.loads(done.stdout)["overall_tag"]
    # Another word would be that of a newer C library.
    problems = [] if audited == promised else [f"auditwheel takes it for {audited}"]
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("sboms/sirtaki.cdx.json", "licenses/LICENSE", "licenses/nanobind.txt"):
        if not any(name.endswith(f".dist-info/{wanted}") for name in names):
            problems.append(f"{wanted} is not in it")
    return problems
