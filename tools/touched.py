"""Print the files of tests/single that a change can reach by imports.

python -m tools.touched (--all | CHANGED_FILE …)
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = "tests/single"
# What stands for the compiled core, to which all of cpp/ belongs.
CORE = "python/sirtaki/_core.pyi"
# Names of the package that are loaded when they are used.
NAMES = "python/sirtaki/__init__.py"
# Tests that read files of the repository notice changes that no import shows; a test that reads
# few of them says which: `READS = ("tools/", "Makefile")`.
READS_FILES = "parents["
READS = re.compile(r"^READS = (\(.+\))$", re.MULTILINE)


def touched(changed: Iterable[str], root: Path = ROOT) -> list[str]:
    """Return the test files that a change of some files can reach."""
    names = {CORE if name.startswith("cpp/") else name for name in changed}
    files = {name for name in names if (root / name).suffix in (".py", ".pyi")}
    shared = {"tests/conftest.py", *closure("tests/conftest.py", root)}
    found = []
    for path in sorted((root / TESTS).rglob("test_*.py")):
        test, reads = path.relative_to(root).as_posix(), read_by(path)
        reached = {test, *shared, *closure(test, root)}
        if reached & files or any(name.startswith(reads) for name in names):
            found.append(test)
    return found


def read_by(test: Path) -> tuple[str, ...]:
    """Return what the files that a test reads begin with."""
    text = test.read_text()
    if READS_FILES not in text:
        return ()
    stated = READS.search(text)
    return tuple(ast.literal_eval(stated[1])) if stated else ("",)


def closure(file: str, root: Path) -> set[str]:
    """Return all files that a file imports, at once or later."""
    found: set[str] = set()
    waiting = [file]
    while waiting:
        for name in imports(waiting.pop(), root):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found


@functools.cache
def imports(file: str, root: Path) -> frozenset[str]:
    """Return the files of this repository that one file imports itself, whenever it does."""
    path = root / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    return frozenset(
        found
        for module in modules(tree, by_name=file != NAMES)
        for found in files_of(module, root) or files_of(module.rpartition(".")[0], root)
    )


def modules(tree: ast.AST, by_name: bool) -> Iterator[str]:
    """The dotted names that a program imports; of strings those that it may import by name."""
    waiting = [tree]
    uses_names = by_name and "import_module" in ast.dump(tree)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            # Alone it gives names that the next case sees.
            yield from (alias.name for alias in node.names if alias.name != "sirtaki")
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("sirtaki", "hvd"):
            yield f"sirtaki.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and uses_names:
            yield node.value


@functools.cache
def loaded_late(root: Path) -> dict[str, str]:
    """Return the module of each name that `import sirtaki` loads when it is used."""
    for node in ast.walk(ast.parse((root / NAMES).read_text())):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MODULES":
            table = ast.literal_eval(node.value)
            return {name: module for module, names in table.items() for name in names.split()}
    return {}


def files_of(module: str, root: Path) -> list[str]:
    """Return the file of a module or of a name of `sirtaki`; none if it is not ours."""
    package, _, name = module.partition(".")
    if package == "sirtaki" and name in loaded_late(root):
        return files_of(loaded_late(root)[name], root)
    start = {"sirtaki": "python", "tests": "", "tools": ""}.get(package)
    if start is None:
        return []
    base = root / start / module.replace(".", "/")
    candidates = [base.with_suffix(".py"), base.with_suffix(".pyi"), base / "__init__.py"]
    return [c.relative_to(root).as_posix() for c in candidates if c.is_file()]


def main(arguments: list[str]) -> None:
    """Print the files, or the folder when everything is asked for."""
    print("\n".join([TESTS] if arguments == ["--all"] else touched(arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
