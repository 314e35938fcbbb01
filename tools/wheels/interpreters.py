"""The Pythons of this machine that wheels can be built or tested with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 10)
STABLE_ABI = (3, 12)
_NEWEST_LOOKED_FOR = 19
# Where pyenv, uv and the images for manylinux keep theirs.
_PLACES = (
    ".pyenv/versions/*/bin/python3",
    ".local/share/uv/python/*/bin/python3",
    "/opt/python/*/bin/python3",
)
_PROBE = """
import ensurepip, json, pathlib, sys, sysconfig, venv
headers = pathlib.Path(sysconfig.get_path("include"), "Python.h").exists()
free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
print(json.dumps([sys.version_info[:2], headers, sys.implementation.name == "cpython", free]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A CPython with the GIL and `venv`; headers: whether it can compile for itself."""

    path: str
    version: tuple[int, int]
    headers: bool

    @property
    def tag(self) -> str:
        """What wheels call it, as cp312."""
        return "cp" + "".join(map(str, self.version))


def probe(path: str) -> Interpreter | None:
    """Return what is at a path, None for what is no Python that we serve."""
    try:
        done = subprocess.run([path, "-c", _PROBE], capture_output=True, timeout=60, check=True)
        version, headers, is_cpython, free_threaded = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    # No free-threaded one has run the tests.
    if not is_cpython or free_threaded or tuple(version) < OLDEST:
        return None
    return Interpreter(path, (version[0], version[1]), headers)


def found() -> list[Interpreter]:
    """Return one interpreter of each version that is here, those with headers first."""
    best: dict[tuple[int, int], Interpreter] = {}
    for path in _candidates():
        one = probe(path)
        if one is not None and (one.version not in best or one.headers > best[one.version].headers):
            best[one.version] = one
    return [best[version] for version in sorted(best)]


def _candidates() -> Iterator[str]:
    yield sys.executable
    for minor in range(OLDEST[1], _NEWEST_LOOKED_FOR + 1):
        path = shutil.which(f"python3.{minor}")
        if path is not None:
            yield path
    for pattern in _PLACES:
        root = Path("/") if pattern.startswith("/") else Path.home()
        yield from map(str, sorted(root.glob(pattern.lstrip("/"))))


def builders(interpreters: Iterable[Interpreter]) -> list[Interpreter]:
    """Choose those that compile: each without the stable ABI, and the oldest that has it."""
    able = sorted((one for one in interpreters if one.headers), key=lambda one: one.version)
    stable = [one for one in able if one.version >= STABLE_ABI]
    return [one for one in able if one.version < STABLE_ABI] + stable[:1]


def missing(chosen: Sequence[Interpreter]) -> list[str]:
    """Return the tags of wheels that no chosen interpreter can build."""
    have = {one.tag if one.version < STABLE_ABI else "abi3" for one in chosen}
    return [tag for tag in ("cp310", "cp311", "abi3") if tag not in have]
