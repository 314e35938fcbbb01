"""The repository keeps its own rules."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CPP_LINES = 600
PYTHON_LINES = 500
FUNCTION_LINES = 60
# A folder of cpp/ may include from those before it and from itself.
CPP_LAYERS = [
    "base",
    "math",
    "heap",
    "transport",
    "pairs",
    "collectives",
    "backends",
    "engine",
    "ffi",
    "tensorflow",
    "jax",
    "python",
]


def files(*patterns: str) -> list[Path]:
    folders = ("cpp", "python", "tests", "examples", "benchmarks", "tools", "docs")
    found = [
        p for folder in folders for pattern in patterns for p in (ROOT / folder).rglob(pattern)
    ]
    return sorted(p for p in found if "_build" not in p.parts)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def first_match(pattern: str, name: str) -> str:
    match = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
    assert match is not None, f"{name} has no line like {pattern}"
    return match.group(1)


def over_budget(paths: list[Path], budget: int) -> dict[str, int]:
    lines = {relative(p): len(p.read_text().splitlines()) for p in paths}
    return {name: count for name, count in lines.items() if count > budget}


def test_no_cpp_file_is_over_its_budget() -> None:
    assert over_budget(files("*.cpp", "*.h"), CPP_LINES) == {}


def test_no_python_file_is_over_its_budget() -> None:
    assert over_budget(files("*.py"), PYTHON_LINES) == {}


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How long a function is without its docstring."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    docstring = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_no_python_function_is_over_its_budget() -> None:
    lengths = {
        f"{relative(path)}:{node.name}": lines_of(node)
        for path in files("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: count for name, count in lengths.items() if count > FUNCTION_LINES} == {}


@pytest.mark.parametrize("layer", CPP_LAYERS)
def test_cpp_includes_point_downwards(layer: str) -> None:
    allowed = CPP_LAYERS[: CPP_LAYERS.index(layer) + 1]
    upwards = [
        f"{relative(path)} includes {include}"
        for path in files("*.cpp", "*.h")
        if path.is_relative_to(ROOT / "cpp" / layer)
        for include in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
        if include.split("/")[0] not in allowed
    ]
    assert upwards == []


def test_every_cpp_folder_has_its_place_in_the_layers() -> None:
    assert {p.name for p in (ROOT / "cpp").iterdir() if p.is_dir()} <= set(CPP_LAYERS)


def test_no_two_headers_define_a_class_of_one_name() -> None:
    # Linked together they would be one class, of which one definition is taken.
    where: dict[str, set[str]] = {}
    for path in files("*.h"):
        if not path.is_relative_to(ROOT / "cpp"):
            continue
        for name in re.findall(
            r"^(?:class|struct)(?: alignas\(\w+\))? (\w+)(?: final)?(?: : [^{]*)? \{",
            path.read_text(),
            re.MULTILINE,
        ):
            where.setdefault(name, set()).add(relative(path))
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def test_the_version_is_the_same_everywhere() -> None:
    import sirtaki

    declared = first_match(r'^version = "(.+)"$', "pyproject.toml")
    assert first_match(r"^## \[(\d\S*)\]", "CHANGELOG.md") == declared
    assert importlib.metadata.version("sirtaki") == declared
    assert sirtaki.__version__ == declared


def test_tests_run_against_the_installed_package() -> None:
    import horovod
    import sirtaki

    for package in (sirtaki, horovod):
        assert not Path(package.__file__).is_relative_to(ROOT / "python")


@pytest.mark.job
def test_the_example_in_the_readme_trains_in_a_world_of_one() -> None:
    example = first_match(r"^```python\n((?:.*\n)*?)```$", "README.md")
    assert "import horovod.torch as hvd" in example
    subprocess.run([sys.executable, "-c", example], check=True, timeout=100)


def test_the_readme_says_what_runs_then_how_then_how_fast() -> None:
    text = (ROOT / "README.md").read_text()
    order = ["| What | Runs today |", "```python", "make demo", "make test", "## How fast"]
    places = [text.index(mark) for mark in order]
    assert places == sorted(places)


def test_every_console_script_resolves() -> None:
    scripts = importlib.metadata.distribution("sirtaki").entry_points.select(
        group="console_scripts"
    )
    names = {"caffe", "horovodrun", "run_intelcaffe.sh", "sirtaki"}
    assert {script.name for script in scripts} == names
    for script in scripts:
        assert callable(script.load())
