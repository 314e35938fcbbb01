"""Runs the tests on the oldest, pinned and newest versions of what they can run with.

make try-frameworks TRY="torch-newest-* jax-*"
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys

from tools.versions import page, runner
from tools.versions.table import ENVIRONMENTS, chosen, name
from tools.wheels import interpreters

PAGE = runner.ROOT / "docs/reference/versions.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.versions", description=__doc__)
    parser.add_argument("--pre", action="store_true", help="the newest may be a pre-release")
    parser.add_argument("--list", action="store_true", help="only print the names")
    parser.add_argument("names", nargs="*", default=["*"], help="such as 'torch-*-3.10'; all")
    args = parser.parse_args()
    wanted = chosen(args.names)
    if not wanted:
        parser.error(f"nothing is called {' or '.join(args.names)}; --list prints the names")
    if args.list:
        print("\n".join(name(*one) for one in wanted))
        return 0
    here = {".".join(map(str, one.version)): one for one in interpreters.found()}
    able = interpreters.builders(here.values())
    failed = 0
    for environment, python in wanted:
        called = name(environment, python)
        if python not in here:
            print(f"{called}: not tried, there is no Python {python} here", flush=True)
            continue
        try:
            ours = runner.wheels(runner.builder_for(here[python], able))
            with runner.installed(environment, here[python], ours, args.pre) as programs:
                found = runner.version(programs, environment.package)
                parts = []
                logs = runner.KEPT / "logs" / called
                for suite, said in runner.results(programs, environment, logs):
                    print(f"{called} ({found}), {suite}: {said}", flush=True)
                    parts.append(f"{suite}: {said}")
        except runner.Failed as error:
            print(f"{called}: not tried, {error}", flush=True)
            failed += 1
            continue
        failed += any("**" in part for part in parts)
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        write(page.Row(environment.title, found, python, "; ".join(parts), today))
    return 1 if failed else 0


def write(row: page.Row) -> None:
    """Put a row into the page."""
    project = (runner.ROOT / "pyproject.toml").read_text()
    supported = re.findall(r"Python :: (3\.\d+)", project)
    titles = list(dict.fromkeys(environment.title for environment in ENVIRONMENTS))
    PAGE.write_text(page.updated(PAGE.read_text(), [row], titles, supported))


if __name__ == "__main__":
    sys.exit(main())
