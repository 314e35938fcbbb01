"""Builds wheels of a source tree, the same bytes each time."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.wheels import sbom, zig
from tools.wheels.interpreters import STABLE_ABI, Interpreter

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "wheels"
PINS = ROOT / "tools" / "requirements-build.txt"
# A core of Python alone, for systems that the compiled one does not know, by the tag of its wheel.
ALONE = ROOT / "python" / "alone" / "_core.py"
ELSEWHERE = ("macosx_11_0_universal2", "win_amd64")
PURE = (ROOT / "sirtaki-caffe", ROOT / "compat" / "horovod")
_PURE_TAG = "py3-none-any"


def environment() -> dict[str, str]:
    """Return the variables that builders run with: the time is that of the commit."""
    environ = {
        **os.environ,
        # CMake and Ninja are in this environment.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    # It would run as a compiler of its own.
    environ.pop("CMAKE_CXX_COMPILER_LAUNCHER", None)
    if "SOURCE_DATE_EPOCH" not in environ:
        command = ["git", "log", "-1", "--format=%ct"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        environ["SOURCE_DATE_EPOCH"] = done.stdout.strip()
    return environ


def builder(interpreter: Interpreter) -> Path:
    """Return the Python of an environment that has what compiles with this interpreter."""
    folder = WORK / f"env-{interpreter.tag}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter.path, "-m", "venv", str(folder)], check=True)
    needed = ("--constraint", str(PINS), "scikit-build-core", "nanobind")
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *needed], check=True)
    return python


def compiled(interpreter: Interpreter, architecture: str, release: str, output: Path) -> None:
    """Build the wheel of this interpreter, or of the stable ABI, for a processor."""
    python = builder(interpreter)
    build = WORK / architecture
    # What does not depend on Python is compiled once; what CMake knows of another Python must go.
    for stale in ("CMakeCache.txt", ".skbuild-info.json"):
        (build / stale).unlink(missing_ok=True)
    abi = interpreter.tag if interpreter.version < STABLE_ABI else "abi3"
    system = f"manylinux_{zig.GLIBC.replace('.', '_')}_{architecture}"
    settings = {
        "build-dir": str(build),
        "wheel.tags": f"{interpreter.tag}-{abi}-{system}",
        "install.strip": "false",
    }
    defines = zig.tools(WORK / "zig" / architecture, architecture, ROOT)
    environ = environment()
    if architecture != platform.machine():
        defines |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": architecture}
        digits = interpreter.tag.removeprefix("cp")
        environ["SETUPTOOLS_EXT_SUFFIX"] = f".cpython-{digits}-{architecture}-linux-gnu.so"
    settings |= {f"cmake.define.{name}": value for name, value in defines.items()}
    _wheel(python, ROOT, settings, _papers(python, release), output, environ)


def _papers(python: Path, release: str) -> dict[Path, str]:
    """Write what tells of a compiled wheel; return where in it each file goes."""
    code = "import nanobind; print(nanobind.__path__[0], nanobind.__version__)"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    folder, nanobind = done.stdout.split()
    texts = {f"licenses/{name}": text for name, text in sbom.licences(Path(folder)).items()}
    texts["sboms/sirtaki.cdx.json"] = sbom.bill("sirtaki", release, ROOT, nanobind)
    placed = {}
    for name, text in texts.items():
        path = WORK / "papers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        placed[path] = "${SKBUILD_METADATA_DIR}/" + name
    return placed


def elsewhere(platform_tag: str, output: Path) -> None:
    """Build the wheel of a system that the compiled core does not know: a world of one."""
    settings = {
        "wheel.cmake": "false",
        "wheel.py-api": "py3",
        "wheel.tags": f"py3-none-{platform_tag}",
    }
    _wheel(Path(sys.executable), ROOT, settings, {ALONE: "sirtaki/_core.py"}, output, environment())


def pure(source: Path, output: Path) -> None:
    """Build the wheel of a distribution that holds Python alone."""
    _wheel(Path(sys.executable), source, {"wheel.tags": _PURE_TAG}, {}, output, environment())


def archive(source: Path, output: Path) -> None:
    """Build the source archive of a distribution."""
    command = ("-m", "build", "--sdist", "--no-isolation", "--outdir", str(output), str(source))
    subprocess.run(
        [sys.executable, *command], check=True, env=environment(), stdout=subprocess.DEVNULL
    )


def _wheel(
    python: Path,
    source: Path,
    settings: Mapping[str, str],
    files: Mapping[Path, str],
    output: Path,
    environ: Mapping[str, str],
) -> None:
    """Call pip. files: what else goes into the wheel, and where."""
    included = ";".join(f"{path}={place}" for path, place in files.items())
    given = {**settings, "wheel.reproducible": "true"}
    command: Sequence[str] = (
        *("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *(f"--config-settings={name}={value}" for name, value in given.items()),
        *("--wheel-dir", str(output), str(source)),
    )
    subprocess.run(
        [str(python), *command],
        check=True,
        env={**environ, "SKBUILD_WHEEL_FORCE_INCLUDE": included},
    )
