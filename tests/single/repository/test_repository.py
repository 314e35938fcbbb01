"""The repository keeps its own rules."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.single.repository.trees import tree_of
from tools.figures.__main__ import FILE, chart_of_the_readme

ROOT = Path(__file__).resolve().parents[3]
CPP_LINES = 400
CPP_TEST_LINES = 600
PYTHON_LINES = 500
MODULES = 14
FUNCTION_LINES = 60
PRIVATE_METHODS = 25
# A folder of cpp/ may include from those before it and from itself.
CPP_LAYERS = [
    "base",
    "math",
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


FOLDERS = ("cpp", "python", "sirtaki-caffe", "tests", "examples", "benchmarks", "tools", "docs")


def files(*patterns: str) -> list[Path]:
    found = [
        p for folder in FOLDERS for pattern in patterns for p in (ROOT / folder).rglob(pattern)
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
    own = files("*.cpp", "*.h")
    tests = [path for path in own if relative(path).startswith("tests/")]
    assert over_budget(sorted(set(own) - set(tests)), CPP_LINES) == {}
    assert over_budget(tests, CPP_TEST_LINES) == {}


def test_no_python_file_is_over_its_budget() -> None:
    assert over_budget(files("*.py"), PYTHON_LINES) == {}


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How long a function is without its docstring."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    docstring = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


def test_a_folder_of_the_package_has_at_most_fourteen_modules() -> None:
    counts = Counter(path.parent for path in files("*.py") if is_module(path))
    assert {str(folder): count for folder, count in counts.items() if count > MODULES} == {}


def is_module(path: Path) -> bool:
    return "python" in path.relative_to(ROOT).parts and path.name != "__init__.py"


def test_no_python_function_is_over_its_budget() -> None:
    lengths = {
        f"{relative(path)}:{node.name}": lines_of(node)
        for path in files("*.py")
        for node in ast.walk(tree_of(path))
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


def without_nested(text: str) -> str:
    """What stands in no braces of `text`, nor behind `//`; each pair of braces becomes `{};`."""
    text = re.sub(r"//.*", "", text)
    while (plain := re.sub(r"\{[^{}]*\}", "\0", text)) != text:
        text = plain
    return re.sub("\0+", "{};", text)


def private_methods(source: str) -> dict[str, int]:
    """How many private methods each class has, by its name."""
    counts: dict[str, int] = {}
    for head in re.finditer(r"\bclass (\w+)[^;{}()]*\{", source):
        depth, end = 1, head.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(source[end], 0)
            end += 1
        body = without_nested(source[head.end() : end - 1])
        parts = re.split(r"\b(public|protected|private):", "private:" + body)
        private = "".join(
            text
            for access, text in zip(parts[1::2], parts[2::2], strict=True)
            if access == "private"
        )
        while (plain := re.sub(r"<[^<>;]*>", "", private)) != private:
            private = plain
        # A parenthesis before any `=` or initialiser makes a declaration a method's.
        counts[head[1]] = sum(
            bool(re.match(r"[^={]*?\w\s*\(", part)) and "static_assert" not in part
            for part in private.split(";")
        )
    return counts


def test_no_cpp_class_has_many_private_methods() -> None:
    many = {
        f"{relative(path)} {name}": count
        for path in files("*.h", "*.cpp")
        if path.is_relative_to(ROOT / "cpp")
        for name, count in private_methods(path.read_text()).items()
        if count > PRIVATE_METHODS
    }
    assert many == {}


def test_private_methods_are_counted() -> None:
    source = """
        class Outer : Base {
          void one(int a, int b);
          class Inner { void two(); void three() const { call(); } };
         public:
          Outer() : size_(0) {}
          int size() const { return size_; }
         private:
          template <class T> static T four(std::function<void(int)> call);
          void five() { if (one()) { two(); } }  // not six()
          std::function<void(int)> call_;
          int size_ = compute(3);
        };
    """
    assert private_methods(source) == {"Outer": 3, "Inner": 2}


def inclusions(node_of: Callable[[Path], str], *patterns: str) -> dict[str, set[str]]:
    """What each node of cpp/ includes; `node_of` tells a file's."""
    cpp = ROOT / "cpp"
    found: dict[str, set[str]] = {}
    for path in files(*patterns):
        if not path.is_relative_to(cpp):
            continue
        own = found.setdefault(node_of(path.relative_to(cpp)), set())
        for include in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            if (cpp / include).exists():
                own.add(node_of(Path(include)))
    return {node: included - {node} for node, included in found.items()}


def in_circles(graph: dict[str, set[str]]) -> set[str]:
    """The nodes from which a circle can be reached."""
    left = dict(graph)
    while ends := {node for node, included in left.items() if not included & left.keys()}:
        left = {node: included for node, included in left.items() if node not in ends}
    return set(left)


def test_no_cpp_header_includes_itself_by_way_of_others() -> None:
    assert in_circles(inclusions(str, "*.h")) == set()


@pytest.mark.parametrize("layer", ["transport", "collectives", "python"])
def test_the_folders_of_a_layer_do_not_include_each_other(layer: str) -> None:
    # What lies in the layer's own folder may use these and be used by them.
    graph = inclusions(lambda path: path.parent.as_posix(), "*.cpp", "*.h")
    inside = {node: included for node, included in graph.items() if node.startswith(f"{layer}/")}
    assert inside
    assert in_circles(inside) == set()


def test_every_cpp_folder_has_its_place_in_the_layers() -> None:
    assert {p.name for p in (ROOT / "cpp").iterdir() if p.is_dir()} <= set(CPP_LAYERS)


def test_above_the_channel_nobody_knows_sockets() -> None:
    words = re.compile(r"sys/socket|sys/epoll|<poll\.h>|pollfd|transport/network/")
    knowing = [
        relative(path)
        for path in files("*.cpp", "*.h")
        for folder in ("pairs", "collectives", "backends")
        if path.is_relative_to(ROOT / "cpp" / folder) and words.search(path.read_text())
    ]
    assert knowing == []


def test_the_core_waits_and_asks_for_the_time_in_one_place() -> None:
    calls = re.compile(
        r"clock_gettime\((CLOCK_MONO|clock,)|\b(usleep|nanosleep|sched_yield|epoll_pwait)\(|SYS_futex|steady_clock"
        r"|(?<![\w.>:])(::)?poll\(\w|this_thread::sleep|\b(wait_for|wait_until|select|ppoll)\(|timerfd"
    )
    layers = CPP_LAYERS[: CPP_LAYERS.index("ffi")]
    core = [file for layer in layers for file in (ROOT / "cpp" / layer).rglob("*.[ch]*")]
    own = {"cpp/base/machine.h", "cpp/base/machine.cpp", "cpp/base/clock.h"}
    waiting = {str(f.relative_to(ROOT)) for f in core if calls.search(f.read_text())}
    assert waiting == own


@pytest.mark.parametrize(
    ("thing", "most"),
    [
        ("collective", 3),
        ("codec", 1),
        ("transport between hosts", 5),
        ("field to a rank's state", 3),
        ("flag", 5),
        ("scheduler", 2),
        ("line to the report of a hang", 2),
    ],
)
def test_adding_something_takes_a_few_files_which_exist(thing: str, most: int) -> None:
    section = first_match(rf"^## Adding a {thing}\n((?:(?!## ).*\n)*)", "CONTRIBUTING.md")
    numbered = re.findall(r"^(?:\d+\. and )?(\d+)\. ", section, re.MULTILINE)
    assert numbered[-1:] in ([], [str(most)])
    words = {1: "one", 2: "two", 3: "three", 5: "five"}
    assert f"{words[most]} file" in section.lower()
    paths = re.findall(r"`((?:cpp|python|tests)/[\w/.]+\.\w+)`", section)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


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
    assert "import sirtaki.torch as hvd" in example
    subprocess.run([sys.executable, "-c", example], check=True, timeout=100)


def test_the_readme_shows_a_terminal_install_a_script_and_what_runs_where() -> None:
    text = (ROOT / "README.md").read_text()
    order = ["docs/_static/terminal.svg", "pip install", "```python", "## What runs where"]
    places = [text.index(mark) for mark in [*order, "docs/_static/train-step.svg", "## Read on"]]
    assert places == sorted(places)


def test_the_chart_of_the_readme_shows_the_results() -> None:
    assert FILE.read_text() == chart_of_the_readme(), "python -m tools.figures draws it anew"


SCRIPTS = {
    "sirtaki": {"horovodrun", "sirtaki"},
    "sirtaki-caffe": {"caffe", "run_intelcaffe.sh"},
}


def test_every_console_script_resolves() -> None:
    for distribution, names in SCRIPTS.items():
        scripts = importlib.metadata.distribution(distribution).entry_points.select(
            group="console_scripts"
        )
        assert {script.name for script in scripts} == names
        for script in scripts:
            assert callable(script.load())


def test_what_users_give_is_not_checked_by_assert() -> None:
    # `python -O` takes it out; what has a message is for somebody to read.
    folders = (ROOT / "python/sirtaki", ROOT / "sirtaki-caffe/python")
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for folder in folders
        for file in folder.rglob("*.py")
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Assert) and node.msg is not None
    ]
    assert not found
