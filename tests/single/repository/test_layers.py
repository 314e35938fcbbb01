"""Python imports only what the table in CONTRIBUTING.md lets its folder import."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.single.launching import Job, python

ROOT = Path(__file__).resolve().parents[3]


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
        if row is None:
            found.append(f"{file} is in no row of the table")
            continue
        own = ".".join(row.with_suffix("").parts).removesuffix(".__init__")
        allowed = [*table[str(row)], "sirtaki.__version__"]
        if row.name != "__init__.py":
            allowed.append(own)
        found += [
            f"{file} imports {name}"
            for name in imported(ast.parse(path.read_text()))
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
    (tmp_path / "sirtaki" / "new.py").touch()
    assert violations(tmp_path) == ["sirtaki/new.py is in no row of the table"]


def circles(folder: Path, below: tuple[str, ...], late: bool) -> list[set[str]]:
    """The circles in which modules of `folder` import one another; `late`: also in functions."""
    modules = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for path in folder.rglob("*.py")
    }
    chosen = {name: path for name, path in modules.items() if name.startswith(below)}
    uses = {name: used_by(path, modules, late) - {name} for name, path in chosen.items()}
    reach = {name: reachable(name, uses) for name in uses}
    return [
        {name, *(other for other in there if name in reach.get(other, ()))}
        for name, there in reach.items()
        if name in there
    ]


def used_by(path: Path, modules: dict[str, Path], late: bool) -> set[str]:
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.FunctionDef) and not late:
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & modules.keys()) or {node.module}
    return found & modules.keys()


def reachable(name: str, uses: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(uses[name])
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += uses.get(each, ())
    return found


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circles(ROOT / "python", ("sirtaki", "horovod"), late=False) == []
    own = ("sirtaki_caffe", "caffe")
    assert circles(ROOT / "sirtaki-caffe" / "python", own, late=False) == []


def test_not_even_late_below_the_adapters() -> None:
    folders = ("sirtaki.core", "sirtaki.rendezvous", "sirtaki.launch", "sirtaki.jax")
    assert circles(ROOT / "python", folders, late=True) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import two\n")
    (tmp_path / "two.py").write_text("def late():\n    from one import name\n")
    assert circles(tmp_path, ("",), late=False) == []
    assert circles(tmp_path, ("",), late=True) == [{"one", "two"}] * 2


def test_below_the_adapters_a_name_means_one_class() -> None:
    places: dict[str, list[str]] = {}
    for room in ("core", "hang", "launch", "rendezvous"):
        for path in sorted((ROOT / "python" / "sirtaki" / room).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
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
    "autoload.py": "SIRTAKI_TORCH_DEFAULT, when PyTorch is imported, and PyTorch's own",
    "core/config.py": "the settings of a rank",
    "core/placed.py": "none: it sets those of a place",
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
    "tensorflow/ops/library.py": "SIRTAKI_TF_OPS, when a graph is built without a world",
    "torch/device/layer.py": "CUDA's and NCCL's own",
    "torch/distributed/group.py": "torchrun's own",
    "torch/distributed/started.py": "those of torch.distributed",
}


def test_variables_of_the_environment_are_read_in_few_places() -> None:
    package = ROOT / "python" / "sirtaki"
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\b(os\.environ|getenv)\b", path.read_text())
    }
    ranks = {name for name in found if not name.startswith(("launch/", "observe/"))}
    assert ranks == set(READERS)
