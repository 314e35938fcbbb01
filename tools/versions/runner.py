"""Makes an environment, runs its suites and removes it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.stages.runner import counted
from tools.versions.table import SUITES, Environment, Suite
from tools.wheels.interpreters import STABLE_ABI, Interpreter

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "versions"
_SOURCES = ("cpp", "python", "compat", "CMakeLists.txt", "pyproject.toml")
# After that many seconds a suite hangs.
_LIMIT = 1200
# The newest is what the registry has, whatever this machine holds its other environments to.
_UNBOUND = {"PIP_CONSTRAINT": os.devnull, "PIP_NO_CACHE_DIR": "1"}


class Failed(Exception):
    """An environment could not be made."""


def wheels(builder: Interpreter) -> list[Path]:
    """Return our wheels for a Python, built by it unless they are newer than the sources."""
    folder = KEPT / f"wheels-{builder.tag}"
    newest = max(
        path.stat().st_mtime
        for source in _SOURCES
        for path in (ROOT / source, *(ROOT / source).rglob("*"))
        if "__pycache__" not in path.parts
    )
    found = sorted(folder.glob("*.whl"))
    if not found or min(path.stat().st_mtime for path in found) < newest:
        shutil.rmtree(folder, ignore_errors=True)
        # Kept: in another folder each time, all of the sources would be compiled again.
        tools = KEPT / f"builder-{builder.tag}"
        pip = (str(tools / "bin/python"), "-m", "pip")
        _checked([builder.path, "-m", "venv", str(tools)])
        _checked([*pip, "install", "--quiet", "-r", str(ROOT / "tools/requirements-build.txt")])
        build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir")
        _checked([*pip, *build, str(folder), str(ROOT), str(ROOT / "compat/horovod")], tools)
    return sorted(folder.glob("*.whl"), key=lambda path: not path.name.startswith("sirtaki-"))


def builder_for(interpreter: Interpreter, able: Sequence[Interpreter]) -> Interpreter:
    """Choose what builds the wheel for a Python: itself, or the oldest with the stable ABI."""
    stable = interpreter.version >= STABLE_ABI
    fit = [one for one in able if (one.version >= STABLE_ABI) == stable]
    chosen = fit[:1] if stable else [one for one in fit if one.version == interpreter.version]
    if not chosen:
        raise Failed(f"no Python with headers builds a wheel for {interpreter.tag}")
    return chosen[0]


@contextmanager
def installed(
    environment: Environment,
    interpreter: Interpreter,
    ours: Sequence[Path],
    pre: bool,
    kept: Path = KEPT,
) -> Iterator[Path]:
    """Make an environment, give its folder of programs, and remove it.

    Args:
        environment: What is installed beside our wheels and what the tests need.
        interpreter: The Python.
        ours: Our wheels.
        pre: Whether releases before a release count as newest.
        kept: Where it is made.
    """
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="environment-", dir=kept) as folder:
        programs = Path(folder) / "bin"
        _checked([interpreter.path, "-m", "venv", folder])
        pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--prefer-binary"]
        before = ["--pre"] if pre and environment.age == "newest" else []
        package, *others = map(str, ours)
        _checked([*pip, *before, f"{package}[test]", *others, *environment.requirements])
        yield programs


def version(programs: Path, package: str) -> str:
    """Return the version of a package that is installed, without what it was built for."""
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    asked = [str(programs / "python"), "-c", code, package]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    return done.stdout.strip().partition("+")[0]


def run(programs: Path, suite: Suite, variables: tuple[tuple[str, str], ...], log: Path) -> str:
    """Run a suite, and return what became of its tests."""
    launcher = [str(programs / suite.launcher[0]), *suite.launcher[1:]] if suite.launcher else []
    pytest = [str(programs / "python"), "-m", "pytest", "-p", "no:cacheprovider", "-m", suite.marks]
    environ = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **dict(suite.variables),
        **dict(variables),
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*launcher, *pytest, *suite.paths],
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"**hangs** after {_LIMIT} s"
    return outcome(code, log.read_text(errors="replace"))


def outcome(code: int, text: str) -> str:
    """Return what the page says of a suite that has ended."""
    counts = counted(text)
    said = ", ".join(f"{count} {what}" for what, count in counts.items()) or f"exit code {code}"
    return said if code == 0 and counts.get("passed") else f"**{said}**"


def results(programs: Path, environment: Environment, logs: Path) -> Iterator[tuple[str, str]]:
    """Run the suites of an environment; give the name of each and what became of it."""
    for name in environment.suites:
        log = logs / f"{''.join(filter(str.isalnum, name))}.log"
        yield name, run(programs, SUITES[name], environment.variables, log)


def _checked(command: list[str], tools: Path | None = None) -> None:
    """Run a command; `tools` is an environment whose programs it finds first."""
    path = os.environ["PATH"] if tools is None else f"{tools}/bin{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, **_UNBOUND, "PATH": path}
    done = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        raise Failed(done.stdout.decode(errors="replace")[-2000:])
