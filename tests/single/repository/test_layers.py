"""Python imports only what the table in CONTRIBUTING.md lets its folder import."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.single.launching import Job, python
from tests.single.repository.trees import tree_of
from tools.touched import loaded_late

ROOT = Path(__file__).resolve().parents[3]
BELOW_THE_ADAPTERS = (
    "core",
    "doctor",
    "hang",
    "inspect",
    "launch",
    "questions",
    "rendezvous",
    "submit",
)


def layers() -> dict[str, list[str]]:
    """What each path below a folder called python/ may import, as dotted names."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `(?:\S+/)?python/(\S+)` \|.*\|([^|]*)\|$", text, re.MULTILINE)
    return {path: re.findall(r"`([\w.]+)`", cell) for path, cell in rows}


def imported(tree: ast.Module) -> Iterator[str]:
    """The dotted names that a file uses of other modules, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            # Alone it gives names that the next case sees.
            yield from (alias.name for alias in node.names if alias.name != "sirtaki")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "sirtaki" and not node.attr.startswith("__"):
                yield f"sirtaki.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.level != 1:  # 1: of its own folder
            module = "." * node.level + (node.module or "")
            yield from (f"{module}.{alias.name}" for alias in node.names)


def below(name: str, parents: list[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


def violations(folder: Path) -> list[str]:
    """What the files below `folder`, a copy of python/, import against the table."""
    found = []
    table = layers()
    for path in sorted(folder.rglob("*.py")):
        file = path.relative_to(folder)
        row = next((each for each in (file, *file.parents) if str(each) in table), None)
        adapter = Path(*file.parts[:2])
        if row is None and (folder / adapter / "framework.json").exists():
            row = adapter
            table[str(adapter)] = [*table["sirtaki/FRAMEWORK"], adapter.name]
        if row is None:
            found.append(f"{file} is in no row of the table")
            continue
        own = ".".join(row.with_suffix("").parts).removesuffix(".__init__")
        allowed = [*table[str(row)], "sirtaki.__version__"]
        if row.name != "__init__.py":
            allowed.append(own)
        found += [
            f"{file} imports {name}"
            for name in imported(tree_of(path))
            if name.split(".")[0] not in sys.stdlib_module_names and not below(name, allowed)
        ]
    return found


def test_python_imports_point_downwards() -> None:
    assert violations(ROOT / "python") == []
    assert violations(ROOT / "sirtaki-caffe" / "python") == []


@pytest.mark.parametrize(
    ("file", "line", "name"),
    [
        ("core/world/state.py", "import yaml", "yaml"),
        ("core/world/state.py", "import numpy as np", "numpy"),
        ("core/world/world.py", "def late():\n    import sirtaki.launch.api", "sirtaki.launch.api"),
        (
            "rendezvous/stores/wire.py",
            "from sirtaki.core.world import state",
            "sirtaki.core.world.state",
        ),
        ("rendezvous/stores/wire.py", "from sirtaki import _core", "sirtaki._core"),
        (
            "launch/task.py",
            "from sirtaki.core.world.state import rank",
            "sirtaki.core.world.state.rank",
        ),
        ("launch/task.py", "import sirtaki\nsirtaki.init()", "sirtaki.init"),
        ("torch/ops/tensors.py", "from sirtaki import run", "sirtaki.run"),
        ("torch/ops/tensors.py", "import psutil", "psutil"),
        ("torch/ops/tensors.py", "from horovod import torch", "horovod.torch"),
        ("backends/mpi.py", "from sirtaki.core.world import state", "sirtaki.core.world.state"),
        ("data/__init__.py", "import torch", "torch"),
        ("data/__init__.py", "from ..core import state", "..core.state"),
    ],
)
def test_an_import_that_points_upwards_is_found(
    tmp_path: Path, file: str, line: str, name: str
) -> None:
    path = tmp_path / "python" / "sirtaki" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{(ROOT / 'python' / 'sirtaki' / file).read_text()}\n{line}\n")
    assert violations(tmp_path / "python") == [f"sirtaki/{file} imports {name}"]


def test_a_file_without_a_row_is_found(tmp_path: Path) -> None:
    (tmp_path / "sirtaki").mkdir()
    (tmp_path / "sirtaki" / "unknown.py").touch()
    assert violations(tmp_path) == ["sirtaki/unknown.py is in no row of the table"]


def test_the_adapter_of_a_new_framework_needs_no_row(tmp_path: Path) -> None:
    adapter = tmp_path / "sirtaki" / "toy"
    adapter.mkdir(parents=True)
    (adapter / "framework.json").touch()
    (adapter / "ops.py").write_text("import toy\nimport torch\nfrom sirtaki.core import basics\n")
    assert violations(tmp_path) == ["sirtaki/toy/ops.py imports torch"]


def circles(folder: Path, types: bool = False) -> list[set[str]]:
    """The circles in which modules import one another; `types`: also where only types are meant."""
    modules = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for path in folder.rglob("*.py")
    }
    uses = {name: used_by(name, path, modules, types) for name, path in modules.items()}
    reach = {name: reachable(name, uses) for name in uses}
    found = [
        frozenset(other for other in there if name in reach[other])
        for name, there in reach.items()
        if name in there
    ]
    return [set(circle) for circle in dict.fromkeys(found)]


def used_by(name: str, path: Path, modules: dict[str, Path], types: bool) -> set[str]:
    """The modules that a file imports, wherever the import stands."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree_of(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not types:
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
            own = above[: len(above) + 1 - node.level] if node.level else []
            module = ".".join([*own, *([node.module] if node.module else [])])
            names = {f"{module}.{alias.name}" for alias in node.names}
            found |= (names & modules.keys()) or {module}
    # A package of all has names that it loads late, for users.
    return found & modules.keys() - {name, "sirtaki"}


def reachable(name: str, uses: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(uses[name])
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += uses.get(each, ())
    return found


# What is divided in files but is one thing: a net and its weights, a solver and what it does.
OF_ONE_THING = [
    {"sirtaki_caffe.net.net", "sirtaki_caffe.net.weights"},
    {f"sirtaki_caffe.solver.{name}" for name in ("evaluation", "snapshots", "solver")},
]


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circles(ROOT / "python") == []
    assert circles(ROOT / "python", types=True) == []
    caffe = ROOT / "sirtaki-caffe" / "python"
    assert circles(caffe) == []
    assert all(circle in OF_ONE_THING for circle in circles(caffe, types=True))


@pytest.mark.parametrize(
    "back",
    ["import one", "def late():\n    from one import name", "async def late():\n    import one"],
)
def test_a_circle_is_found(tmp_path: Path, back: str) -> None:
    (tmp_path / "one.py").write_text("import two\n")
    (tmp_path / "two.py").write_text(f"{back}\n")
    (tmp_path / "three.py").write_text("import one\n")
    assert circles(tmp_path) == [{"one", "two"}]


def test_a_circle_of_a_package_s_own_modules_is_found(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("from . import two\n")
    (package / "two.py").write_text("from .one import name\n")
    assert circles(tmp_path) == [{"package.one", "package.two"}]


def test_a_circle_of_types_is_found_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("if TYPE_CHECKING:\n    import two\n")
    (tmp_path / "two.py").write_text("import one\n")
    assert circles(tmp_path) == []
    assert circles(tmp_path, types=True) == [{"one", "two"}]


def test_type_checkers_see_the_names_that_are_loaded_late() -> None:
    stub = tree_of(ROOT / "python" / "sirtaki" / "__init__.pyi")
    named = {
        alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert named == loaded_late(ROOT)


def test_below_the_adapters_a_name_means_one_class() -> None:
    places: dict[str, list[str]] = {}
    for room in BELOW_THE_ADAPTERS:
        for path in sorted((ROOT / "python" / "sirtaki" / room).rglob("*.py")):
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_training_processes_load_only_numpy_and_nothing_of_the_launcher(job: Job) -> None:
    done = job.run(
        *("-np", "2"),
        *python(
            """if True:
            import sys, numpy
            before = set(sys.modules)
            import sirtaki as hvd
            hvd.init()
            hvd.allreduce(numpy.ones(1))
            loaded = set(sys.modules) - before
            packages = {name.split(".")[0] for name in loaded} - sys.stdlib_module_names
            packages.discard("numpy")  # it loads parts of itself late
            launcher = {name for name in loaded if name.startswith("sirtaki.launch")}
            print(*sorted(packages | launcher))
            """
        ),
    )
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:sirtaki", "[1]<stdout>:sirtaki"]


# Beside `Config.from_env`: what a process is before it is a rank, and variables of others.
READERS = {
    "autoload.py": "SIRTAKI_TORCH_DEFAULT, SIRTAKI_BENCH_FOLDER; PyTorch's own",
    "core/config.py": "the settings of a rank",
    "core/placed.py": "none: it sets those of a place",
    "core/world/lifecycle.py": "the places that other launchers have set",
    "dask/worker.py": "what a worker puts back after it was a rank",
    "keras/library.py": "Keras's own",
    "lightning/environment.py": "those of starters",
    "ray/worker.py": "none: it sets what users give",
    "rendezvous/host/presence.py": "SIRTAKI_RUNTIME_DIR, which `sirtaki ps` reads too",
    "spark/barrier.py": "the environment that ranks inherit",
    "spark/common/backend.py": "none: it sets what a backend gives",
    "spark/common/store.py": "Databricks's own",
    "spark/context.py": "HOROVOD_SPARK_START_TIMEOUT, in the driver",
    "spark/elastic/runner.py": "HOROVOD_ELASTIC_TIMEOUT, in the driver",
    "spark/keras/models.py": "Keras's own",
    "spark/task.py": "what our task has set",
    "tensorflow/ops/operation.py": "SIRTAKI_TF_OPS, when a graph is built without a world",
    "torch/device/layer.py": "CUDA's and NCCL's own; SIRTAKI_BENCH_GLOO, before there is a world",
    "torch/distributed/interface/hooks.py": "those of PyTorch's flight recorder",
    "torch/distributed/started.py": "those of torch.distributed",
}


def test_variables_of_the_environment_are_read_in_few_places() -> None:
    package = ROOT / "python" / "sirtaki"
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\b(os\.environ|getenv)\b", path.read_text())
    }
    of_programs = ("demo/", "doctor/", "inspect/", "launch/", "observe/")
    ranks = {name for name in found if not name.startswith(of_programs)}
    assert ranks == set(READERS)


# printf of a float, and what reads or changes text as the process's locale has it.
FOLLOWS_THE_LOCALE = (
    r'"[^"\n]*%[-+0-9.*]*[aefgAEFG][^"\n]*"',
    r"\b(?:strto[dfl]d?|sto(?:d|f|ld)|atof|to(?:upper|lower)|is(?:alpha|space)|\w*stringstream)\(",
)


@pytest.mark.parametrize("pattern", FOLLOWS_THE_LOCALE)
def test_nothing_in_the_core_follows_the_locale(pattern: str) -> None:
    paths = [path for path in (ROOT / "cpp").rglob("*") if path.suffix in (".h", ".cpp")]
    assert len(paths) > 100
    assert [path.name for path in paths if re.search(pattern, path.read_text())] == []
