"""The versions that are tried, and the page that says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.versions.page import Row, updated
from tools.versions.runner import Failed, builder_for, installed, outcome, run
from tools.versions.table import ENVIRONMENTS, SUITES, Environment, Suite, chosen, name
from tools.wheels.interpreters import Interpreter, probe

ROOT = Path(__file__).resolve().parents[3]
READS = ("tools/", "Makefile", "pyproject.toml", "docs/reference/versions.md")
PROJECT = (ROOT / "pyproject.toml").read_text()
SUPPORTED = re.findall(r"Python :: (3\.\d+)", PROJECT)
TITLES = list(dict.fromkeys(environment.title for environment in ENVIRONMENTS))
PAGE = (ROOT / "docs/reference/versions.md").read_text()
# What a requirement of the table is called in pyproject.toml and in tools/requirements-*.txt.
OLDEST = [each for each in ENVIRONMENTS if each.age == "oldest"]
PINNED = [each for each in ENVIRONMENTS if each.age == "pinned"]


def pinned(package: str) -> str:
    """The version on Python 3.11 and newer; 3.10 gets the last one that supports it."""
    [version] = {
        line.partition("==")[2].partition(";")[0].strip()
        for file in ("run", "frameworks")
        for line in (ROOT / f"tools/requirements-{file}.txt").read_text().splitlines()
        if line.startswith(f"{package}==") and "python_version <" not in line
    }
    return version


@pytest.mark.parametrize("environment", OLDEST, ids=lambda each: each.title)
def test_the_oldest_is_what_the_package_asks_for(environment: Environment) -> None:
    package, _, version = environment.requirements[0].partition("==")
    asked = re.search(rf'"{package.removesuffix("-cpu")}>=([\d.]+)"', PROJECT)
    assert asked is not None
    assert version.split(".")[: asked[1].count(".") + 1] == asked[1].split(".")


@pytest.mark.parametrize("environment", PINNED, ids=lambda each: each.title)
def test_the_pinned_is_what_the_other_tests_run_on(environment: Environment) -> None:
    exact = [each.split("==") for each in environment.requirements if "==" in each]
    assert exact == [[package, pinned(package)] for package, _ in exact]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda each: f"{each.title} {each.age}")
def test_an_environment_runs_suites_that_exist_on_pythons_that_are_supported(
    environment: Environment,
) -> None:
    assert {*environment.pythons} <= {*SUPPORTED}
    for suite in environment.suites:
        for path in SUITES[suite].paths:
            assert (ROOT / path.partition("::")[0]).exists(), path


def test_every_environment_has_a_name_of_its_own_and_patterns_choose() -> None:
    everything = [name(*one) for one in chosen(["*"])]
    assert len({*everything}) == len(everything)
    assert {"torch-oldest-3.10", "torch-newest-3.13"} <= {*everything}
    picked = {name(*one) for one in chosen(["jax-oldest-*", "ray-*-3.13"])}
    assert picked == {"jax-oldest-3.10", "ray-newest-3.13"}
    assert chosen(["no such"]) == []


def row(title: str, version: str, python: str, result: str = "`hvd`: 3 passed") -> Row:
    return Row(title, version, python, result, "2026-11-28")


def test_a_new_row_replaces_the_one_of_the_same_version_and_python() -> None:
    rows = [row("A", "2.10.0", "3.10"), row("B", "1.0", "3.9"), row("A", "2.9.1", "3.10")]
    text = (
        "# V\n\n| Package | Version | Python | Tests at two ranks | Date |\n|---|---|---|---|---|\n"
    )
    first = updated(text, rows, ["A", "B"], [])
    assert first == text + "".join(rows[n].line() for n in (2, 0, 1))
    again = row("A", "2.10.0", "3.10", "**1 failed**")
    other = row("A", "2.10.0", "3.11")
    second = updated(first + "\nafter\n", [again, other], ["A", "B"], [])
    assert (
        second
        == text + "".join(each.line() for each in (rows[2], again, other, rows[1])) + "\nafter\n"
    )


def test_the_page_names_supported_pythons_that_no_row_has() -> None:
    page = updated(PAGE, [row(TITLES[0], "99.0", "3.10")], TITLES, ["3.10", "3.99"])
    assert re.findall(r"^- Python (.*?):", page, re.MULTILINE) == ["3.99"]
    assert updated(page, [], TITLES, ["3.10", "3.99"]) == page
    assert "- Python" not in updated(page, [], TITLES, ["3.10"])


def test_the_page_is_what_the_writer_would_write() -> None:
    assert updated(PAGE, [], TITLES, SUPPORTED) == PAGE


def test_a_damaged_table_is_not_written_over() -> None:
    with pytest.raises(ValueError, match="no table"):
        updated("# Empty\n", [], TITLES, SUPPORTED)
    with pytest.raises(ValueError, match="no row"):
        updated(PAGE.replace("|---|---|---|---|---|\n", "|---|---|---|---|---|\n| odd |\n"), [],
                TITLES, SUPPORTED)  # fmt: skip


def test_a_python_has_the_wheel_that_fits_it() -> None:
    pythons = [Interpreter(f"/{n}", (3, n), n != 11) for n in (10, 11, 12, 13)]
    able = [one for one in pythons if one.headers]
    assert builder_for(pythons[0], able) == pythons[0]
    assert builder_for(pythons[3], able) == pythons[2]
    with pytest.raises(Failed, match="cp311"):
        builder_for(pythons[1], able)


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        (0, "[0]<stdout>:== 3 passed, 1 skipped in 1s ==", "3 passed, 1 skipped"),
        (1, "== 1 failed, 2 passed in 1s ==", "**2 passed, 1 failed**"),
        (1, "== 2 passed in 1s ==", "**2 passed**"),
        (0, "== 2 skipped in 1s ==", "**2 skipped**"),
        (3, "nothing", "**exit code 3**"),
    ],
)
def test_a_suite_has_passed_only_if_it_says_so_and_ran_tests(
    code: int, text: str, said: str
) -> None:
    assert outcome(code, text) == said


def test_a_suite_runs_with_the_variables_of_both(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("import os\ndef test(): assert os.environ['A'] + os.environ['B'] == '12'\n")
    suite = Suite((str(test),), (), "", (("A", "1"),))
    programs = Path(sys.executable).parent
    assert run(programs, suite, (("B", "2"),), tmp_path / "logs/it.log") == "1 passed"


@pytest.mark.job
@pytest.mark.slow
def test_what_cannot_be_installed_leaves_no_environment(tmp_path: Path) -> None:
    here = probe(sys.executable)
    assert here is not None
    absent = [tmp_path / "absent.whl"]
    none = Environment("None", "newest", (), (), ())
    with (
        pytest.raises(Failed, match=r"absent\.whl"),
        installed(none, here, absent, False, tmp_path),
    ):
        pass
    assert not [*tmp_path.iterdir()]


def test_names_are_listed() -> None:
    command = [sys.executable, "-m", "tools.versions", "--list", "jax-*-3.10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["jax-oldest-3.10", "jax-newest-3.10"]


def test_the_page_names_packages_that_no_row_has() -> None:
    page = updated(PAGE, [], [*TITLES, "Another"], [])
    assert re.search(r"^- Only the pinned version was run: .*\bAnother\.$", page, re.MULTILINE)
    then = updated(
        page, [Row("Another", "1.0", "3.12", "1 passed", "2026-11-28")], [*TITLES, "Another"], []
    )
    assert "Another." not in then
