"""The faults that `make mutants` plants, and that tests notice or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutants import PackageCopy, Suite, difference, mutants_of, survives

CORE_TEST = """
from sirtaki.core import reduce_ops

def test_names():
    {body}
"""


def planted(source: str) -> list[str]:
    text = source.encode()
    return [mutant.planted(text).decode() for mutant in mutants_of("x.py", text)]


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("x < y", ["(x <= y)"]),
        ("x and y", ["(x or y)"]),
        ("x + y", ["(x - y)"]),
        ("x = not y", ["x = (y)"]),
        ("x = y if z else u", ["x = y if (not z) else u"]),
        ("x = True", ["x = (False)"]),
        ("x = 3", ["x = (4)"]),
        ("def f():\n  return x", ["def f():\n  return None"]),
        ("raise x", ["pass"]),
        ("f()", ["pass"]),
        ("é = 'é' + x", ["é = ('é' - x)"]),
        ("x: L[1] = f'{1 + 1}'", []),
        ("def f():\n  return None", []),
        ("zip(x, y, strict=True)", ["pass"]),
    ],
)
def test_a_fault_changes_one_thing(source: str, faults: list[str]) -> None:
    assert planted(source) == faults


def test_the_line_of_a_fault_is_that_of_its_statement() -> None:
    (mutant,) = mutants_of("x.py", b"x = (\n  y\n  + z\n)\n")
    assert mutant.line == 1


def test_a_difference_shows_the_line_before_and_after() -> None:
    source = b"a = b\nx = y + z\nc = d\n"
    (mutant,) = mutants_of("x.py", source)
    assert difference(mutant, source) == "- x = y + z\n+ x = (y - z)"


@pytest.mark.parametrize(
    ("body", "survived"), [("assert len(reduce_ops.NAMES) == 6", False), ("pass", True)]
)
def test_a_fault_survives_where_no_test_looks(tmp_path: Path, body: str, survived: bool) -> None:
    test = tmp_path / "test_names.py"
    test.write_text(CORE_TEST.format(body=body))
    copy = PackageCopy(tmp_path / "copy")
    path = tmp_path / "copy" / "sirtaki" / "core" / "reduce_ops.py"
    source = path.read_bytes()
    fault = next(mutants_of("core/reduce_ops.py", source))
    suite = Suite(test, 10.0, {"core/reduce_ops.py": {fault.line}})
    assert survives(copy, fault, [suite]) is survived
    assert path.read_bytes() == source
