"""The faults that `make mutants` plants, and that tests notice or not."""

from __future__ import annotations

from pathlib import Path

import pytest

import sirtaki
from tools.mutants import cpp_faults
from tools.mutants.__main__ import fate, share
from tools.mutants.coverage_map import Measured
from tools.mutants.mutant import difference
from tools.mutants.package_copy import PackageCopy
from tools.mutants.python_faults import mutants_of
from tools.mutants.suites import LAUNCH, PARTS, SINGLE, matched

READS = ("tools/mutants/", "python/")

CORE_TEST = """
from sirtaki.core.operations import reduce_ops

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
        ("if TYPE_CHECKING:\n  f()", ["if (not TYPE_CHECKING):\n  f()"]),
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
    ("source", "faults"),
    [
        ("  if (a < b) {\n", ["  if (a <= b) {\n"]),
        ("  x = a && b;\n", ["  x = a || b;\n"]),
        ("  x += y;\n", ["  x -= y;\n"]),
        ("  f(3);\n", ["  f(4);\n", "  ;\n"]),
        ("  bool x = true;\n", ["  bool x = false;\n"]),
        ("  a.b->c(x);\n", ["  ;\n"]),
        ('  log("1 + 2"); // 1 + 2\n', []),
        ("#define N 3\n", []),
        ("template <int N = 3>\n", []),
        ("  std::vector<int> x;\n", []),
    ],
)
def test_a_fault_in_cpp_changes_one_thing(source: str, faults: list[str]) -> None:
    text = source.encode()
    found = [mutant.planted(text).decode() for mutant in cpp_faults.mutants_of("x.cpp", text)]
    assert found == faults


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_files_and_tests_that_should_notice(part: str) -> None:
    patterns, suites = PARTS[part]
    assert matched(Path(sirtaki.__file__).parents[1], patterns, part)
    assert all(suite.files() for suite in suites)


def test_a_pattern_that_matches_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"core: no file matches gone/\*\.py"):
        matched(tmp_path, ("gone/*.py",), "core")


def test_faults_are_shared_out_among_all_parts() -> None:
    assert share(8, ["core", "torch", "caffe"]) == {"core": 3, "torch": 3, "caffe": 2}
    assert share(1, ["core", "torch"]) == {"core": 1, "torch": 1}


def test_a_line_that_only_imports_run_is_of_all_tests_of_its_file() -> None:
    lines = {"x.py": {1: set(), 5: {"test_a"}, 6: {"test_a", "test_b"}}}
    known = Measured(SINGLE, 1.0, lines)
    assert known.tests_of("x.py", 5) == ["test_a"]
    assert known.tests_of("x.py", 1) == ["test_a", "test_b"]
    assert known.tests_of("x.py", 2) == known.tests_of("y.py", 1) == []


def test_what_coverage_cannot_see_is_run_by_all_tests_of_its_suite() -> None:
    known = Measured(LAUNCH, 1.0, {})
    assert known.tests_of("sirtaki/launch/processes/agent.py", 5) == LAUNCH.files()
    assert known.tests_of("sirtaki/launch/plan.py", 5) == []


@pytest.mark.parametrize(
    ("body", "how"),
    [("assert len(reduce_ops.NAMES) == 6", "noticed by single"), ("pass", "SURVIVES")],
)
def test_a_fault_survives_where_no_test_looks(tmp_path: Path, body: str, how: str) -> None:
    test = tmp_path / "test_names.py"
    test.write_text(CORE_TEST.format(body=body))
    copy = PackageCopy(tmp_path / "copy")
    file = "sirtaki/core/operations/reduce_ops.py"
    path = tmp_path / "copy" / file
    source = path.read_bytes()
    fault = next(mutants_of(file, source))
    known = Measured(SINGLE, 10.0, {file: {fault.line: {str(test)}}})
    assert fate(copy, fault, [known]) == how
    assert path.read_bytes() == source
