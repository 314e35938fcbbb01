"""Zig as a C++ compiler for another processor and an older C library than this machine's."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

GLIBC = "2.17"


def program() -> str:
    """Return the compiler that the package ziglang brings."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise SystemExit("the package ziglang is not installed; `make wheels` installs it")
    return str(Path(spec.origin).with_name("zig"))


def clang_version() -> str:
    """Return the version of the Clang and libc++ in it."""
    done = subprocess.run([program(), "c++", "--version"], capture_output=True, check=True)
    found = re.search(rb"clang version (\d+\.\d+\.\d+)", done.stdout)
    return found[1].decode() if found else "unknown"


def tools(folder: Path, architecture: str, root: Path) -> dict[str, str]:
    """Write programs that CMake can call as it does a compiler's.

    Args:
        folder: Where they go.
        architecture: What they compile for, as in a wheel's tag.
        root: Files below it are named from there in what is compiled, not from `/`.

    Returns:
        CMake's variables.
    """
    # Without an optimisation level Zig links a slow C++ library and checks for undefined behaviour.
    # With the same flags everywhere it compiles that library once. It makes -O2 of -O3, and keeps
    # frame pointers, unless Clang itself is told.
    compiler = (
        f"c++ -target {architecture}-linux-gnu.{GLIBC} -O3 -Xclang -O3 -fomit-frame-pointer -g0 "
        f"-fPIC -s -fno-sanitize=undefined -ffile-prefix-map={root}=."
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in {"c++": compiler, "ar": "ar", "ranlib": "ranlib"}.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {program()} {command} "$@"\n')
        script.chmod(0o755)
    return {
        "CMAKE_CXX_COMPILER": str(folder / "c++"),
        "CMAKE_AR": str(folder / "ar"),
        "CMAKE_RANLIB": str(folder / "ranlib"),
    }
