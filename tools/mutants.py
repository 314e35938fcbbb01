"""Plants faults in a copy of the installed package, one at a time, and lists those no test notices.

python tools/mutants.py [--count 60] [--seed 0] [--jobs 1] [core torch rendezvous]
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import sirtaki

ROOT = Path(__file__).resolve().parents[1]
SINGLE = (
    "test_engine",
    "test_environment_docs",
    "test_lifecycle",
    "test_rendezvous_*",
    "test_torch_*",
)
RANKS = 2
# What a test that hangs takes, and what a suite may take beyond three times its usual time.
TEST_SECONDS = 60
BASELINE_SECONDS = 300
SPARE_SECONDS = 40
COVERAGE = """[run]
source_pkgs = sirtaki
parallel = true
patch = subprocess, _exit
data_file = {folder}/.coverage
"""
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """A fault: `text` in place of the bytes from `start` to `end` of a file."""

    file: str
    line: int
    start: int
    end: int
    text: str

    def planted(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


@dataclass(frozen=True)
class Suite:
    """A file of tests, the time that it takes, and the lines of the package that it runs."""

    path: Path
    seconds: float
    lines: dict[str, set[int]]


# ---- Faults ----


def faults(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    """Parts of a node, or the node, with what to put in their place: another node, or text."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in _SWAPS:
            yield node, ast.Compare(left, [_SWAPS[type(operator)]()], [right])
        case ast.BoolOp(operator, values):
            yield node, ast.BoolOp(_SWAPS[type(operator)](), values)
        case ast.BinOp(left, operator, right) if type(operator) in _SWAPS:
            yield node, ast.BinOp(left, _SWAPS[type(operator)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield node, operand
        case ast.If(test) | ast.IfExp(test) if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Constant(bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(int(value)):
            yield node, ast.Constant(value + 1)
        case ast.Return(value) if value is not None and ast.unparse(value) != "None":
            yield node, "return None"
        case ast.Raise() | ast.AugAssign() | ast.Expr(ast.Call()):
            yield node, "pass"


def in_place(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node in which a fault changes what the program does."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return  # of zip(), a check that holds
    skipped = {"annotation", "returns", "decorator_list"}
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            # Python 3.11 does not know where the parts of an f-string are.
            if (
                isinstance(child, ast.AST)
                and name not in skipped
                and not isinstance(child, ast.JoinedStr)
            ):
                yield child


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    """All faults of a file; the line is that of the statement, which is what coverage knows."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def walk(node: ast.AST, line: int) -> Iterator[Mutant]:
        line = node.lineno if isinstance(node, ast.stmt) else line
        for old, fault in faults(node):
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[old.end_lineno - 1] + old.end_col_offset
            text = fault if isinstance(fault, str) else f"({ast.unparse(fault)})"
            yield Mutant(file, line, start, end, text)
        for child in in_place(node):
            yield from walk(child, line)

    yield from walk(ast.parse(source), 0)


# ---- Tests ----


class PackageCopy:
    """A copy of the installed package that tests import in its place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        installed = Path(sirtaki.__file__).parents[1]
        for package in ("sirtaki", "horovod"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(installed / package, folder / package, ignore=ignored)

    def run(
        self, paths: list[Path], limit: float, settings: Path | None = None
    ) -> tuple[bool, str]:
        """Run files of tests of one kind; returns whether they passed, and what they said."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "OMP_NUM_THREADS": "1",
            # A fault of the same length in the same second would look compiled already.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        covered = ["coverage", "run", f"--rcfile={settings}", "-m"] if settings else []
        seconds = BASELINE_SECONDS if settings else TEST_SECONDS
        command = [sys.executable, "-m", *covered, "pytest", "-q", "-x"]
        command += ["-p", "no:cacheprovider", "-o", f"timeout={seconds}", *map(str, paths)]
        if in_parallel(paths[0]):
            launcher = (
                "import sys; from sirtaki.launch.cli import horovodrun; sys.exit(horovodrun())"
            )
            command = [sys.executable, "-c", launcher, "-np", str(RANKS), *command]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            end(process)
            return False, "did not end"
        except BaseException:
            end(process)
            raise
        return process.returncode == 0, said


def end(process: subprocess.Popen[str]) -> None:
    """End a launcher, which ends its ranks; what does not go is killed."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def measured(copy: PackageCopy, path: Path, folder: Path) -> Suite:
    """Run a file of tests without a fault."""
    folder.mkdir()
    settings = folder / "coveragerc"
    settings.write_text(COVERAGE.format(folder=folder))
    begin = time.monotonic()
    passed, said = copy.run([path], 2 * BASELINE_SECONDS, settings)
    seconds = time.monotonic() - begin
    if not passed:
        sys.exit(f"{path.relative_to(ROOT)} fails without a fault:\n{said}")
    import coverage  # only `make mutants` installs it

    data = coverage.Coverage(config_file=str(settings))
    data.combine()
    package = copy.folder / "sirtaki"
    lines = {
        str(Path(file).relative_to(package)): set(data.get_data().lines(file) or ())
        for file in data.get_data().measured_files()
        if Path(file).is_relative_to(package)
    }
    return Suite(path, seconds, lines)


def test_files() -> list[Path]:
    single = [p for name in SINGLE for p in (ROOT / "tests" / "single").glob(f"{name}.py")]
    return sorted([*(ROOT / "tests" / "parallel").rglob("test_*.py"), *single])


# ---- The search ----


def survives(copy: PackageCopy, mutant: Mutant, suites: list[Suite]) -> bool:
    """Whether all tests that run the mutant's line pass with it."""
    path = copy.folder / "sirtaki" / mutant.file
    source = path.read_bytes()
    path.write_bytes(mutant.planted(source))
    running = [suite for suite in suites if mutant.line in suite.lines.get(mutant.file, ())]
    running.sort(key=lambda suite: suite.seconds)
    kinds = [[s for s in running if in_parallel(s.path) is parallel] for parallel in (False, True)]
    kinds.sort(key=limit_of)
    try:
        return all(
            copy.run([suite.path for suite in kind], limit_of(kind))[0] for kind in kinds if kind
        )
    finally:
        path.write_bytes(source)


def limit_of(suites: list[Suite]) -> float:
    return SPARE_SECONDS + 3 * sum(suite.seconds for suite in suites)


def in_parallel(path: Path) -> bool:
    return "parallel" in path.parts


def difference(mutant: Mutant, source: bytes) -> str:
    """The fault as a removed and an added line."""
    first = source.rfind(b"\n", 0, mutant.start) + 1
    last = source.find(b"\n", mutant.end)
    after = source[first : mutant.start] + mutant.text.encode() + source[mutant.end : last]
    before = source[first:last].decode().replace("\n", "\n- ")
    return f"- {before}\n+ {after.decode()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="how many faults, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="chooses other faults")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("parts", nargs="*", default=["core", "torch", "rendezvous"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copies: queue.Queue[PackageCopy] = queue.Queue()
        for number in range(args.jobs):
            copies.put(PackageCopy(folder / f"copy{number}"))

        def with_copy(function, *arguments):
            copy = copies.get()
            try:
                return function(copy, *arguments)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(args.jobs) as pool:
            files = test_files()
            places = [folder / f"coverage{number}" for number in range(len(files))]
            suites = list(pool.map(lambda *each: with_copy(measured, *each), files, places))
            chosen = choose(args.parts, suites, args.count, args.seed)
            results = pool.map(lambda mutant: with_copy(survives, mutant, suites), chosen)
            survivors = 0
            for number, (mutant, survived) in enumerate(zip(chosen, results, strict=True), 1):
                source = (Path(sirtaki.__file__).parent / mutant.file).read_bytes()
                verdict = "SURVIVES" if survived else "noticed"
                survivors += survived
                print(f"{number}/{len(chosen)} {verdict} {mutant.file}:{mutant.line}", flush=True)
                if survived:
                    print(difference(mutant, source), flush=True)
    print(f"{len(chosen)} faults, {survivors} survive")


def choose(parts: list[str], suites: list[Suite], count: int, seed: int) -> list[Mutant]:
    """Draw among the faults in lines that some test runs."""
    package = Path(sirtaki.__file__).parent
    found = [
        mutant
        for part in parts
        for path in sorted((package / part).rglob("*.py"))
        for mutant in mutants_of(str(path.relative_to(package)), path.read_bytes())
        if any(mutant.line in suite.lines.get(mutant.file, ()) for suite in suites)
    ]
    print(f"{len(found)} faults are possible in lines that tests run", flush=True)
    return random.Random(seed).sample(found, min(count, len(found)))


if __name__ == "__main__":
    main()
