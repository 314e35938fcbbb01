"""Builds everything that is published: wheels for Linux, macOS and Windows, and source archives.

make wheels
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import tomllib

from tools.wheels import build, interpreters
from tools.wheels.check import check

ARCHITECTURES = ("x86_64", "aarch64")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wheels", description=__doc__)
    parser.add_argument(
        "--python",
        nargs="+",
        default=[],
        metavar="PATH",
        help="interpreters to build with (default: those found on this machine)",
    )
    parser.add_argument(
        "--architecture", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES)
    )
    parser.add_argument("--output", type=Path, default=build.ROOT / "wheelhouse", metavar="FOLDER")
    args = parser.parse_args()
    given = [interpreters.probe(path) for path in args.python]
    if None in given:
        parser.error(f"no Python of 3.10 or newer, with the GIL: {args.python[given.index(None)]}")
    chosen = interpreters.builders([one for one in given if one] or interpreters.found())
    with (build.ROOT / "pyproject.toml").open("rb") as file:
        release = tomllib.load(file)["project"]["version"]

    args.output.mkdir(parents=True, exist_ok=True)
    for old in (*args.output.glob("*.whl"), *args.output.glob("*.tar.gz")):
        old.unlink()
    for architecture in args.architecture:
        for interpreter in chosen:
            print(f"{architecture}, by {interpreter.path}", flush=True)
            build.compiled(interpreter, architecture, release, args.output)
    for tag in build.ELSEWHERE:
        build.elsewhere(tag, args.output)
    for source in build.PURE:
        build.pure(source, args.output)
    for source in (build.ROOT, *build.PURE):
        build.archive(source, args.output)

    for file in sorted(args.output.iterdir()):
        print(f"{file.stat().st_size:9,d} bytes  {file.name}")
    for tag in interpreters.missing(chosen):
        print(f"NOT BUILT: the wheel of {tag}: no such Python with headers is here", flush=True)
    problems = check(args.output.iterdir())
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
