"""Which tests `make check` runs after a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.touched import touched

FILES = {
    "python/sirtaki/__init__.py": "_MODULES = {'sirtaki.launch.api': 'run'}\n",
    "python/sirtaki/_core.pyi": "",
    "python/sirtaki/core/__init__.py": "",
    "python/sirtaki/core/world/world.py": "from sirtaki import _core\n",
    "python/sirtaki/launch/__init__.py": "",
    "python/sirtaki/launch/api.py": "from sirtaki.launch import hosts\n",
    "python/sirtaki/launch/hosts.py": "",
    "tests/conftest.py": "",
    "tests/single/places.py": "",
    "tests/single/test_hosts.py": "from sirtaki.launch.hosts import parse\n",
    "tests/single/test_run.py": "import sirtaki\nsirtaki.run()\n",
    "tests/single/test_version.py": "import sirtaki\nprint(sirtaki.__version__)\n",
    "tests/single/test_world.py": (
        "from sirtaki.core.world.world import World\nimport tests.single.places\n"
    ),
    "tests/single/test_docs.py": "ROOT = Path(__file__).parents[2]\n",
    "tests/single/test_tools.py": "ROOT = Path(__file__).parents[2]\nREADS = ('tools/', 'Make')\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("python/sirtaki/launch/hosts.py", ["docs", "hosts", "run"]),
        ("python/sirtaki/core/world/world.py", ["docs", "world"]),
        ("cpp/engine/engine.cpp", ["docs", "world"]),
        ("tests/single/places.py", ["docs", "world"]),
        ("tests/single/test_hosts.py", ["docs", "hosts"]),
        ("tests/conftest.py", ["docs", "hosts", "run", "tools", "version", "world"]),
        ("README.md", ["docs"]),
        ("Makefile", ["docs", "tools"]),
        ("tools/touched.py", ["docs", "tools"]),
    ],
)
def test_a_change_runs_what_imports_it_and_what_reads_files(
    changed: str, tests: list[str], project: Path
) -> None:
    found = touched([changed], project)
    assert found == [f"tests/single/test_{name}.py" for name in tests]


def test_no_change_runs_nothing(project: Path) -> None:
    assert touched([], project) == []
