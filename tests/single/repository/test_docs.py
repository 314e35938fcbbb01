"""The code in the pages works, and the pages are where the index says."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
import yaml

from sirtaki.doctor.doctor import make_parser as make_doctor_parser
from sirtaki.inspect.hang import make_parser as make_hang_parser
from sirtaki.inspect.stacks import make_parser as make_stacks_parser
from sirtaki.inspect.top import make_parser as make_top_parser
from sirtaki.launch.flags.flags import read_flags
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.flags.settings import make_settings
from sirtaki.observe import bench
from sirtaki.observe.compare.command import make_parser as make_compare_parser
from sirtaki.observe.predict.command import make_parser as make_predict_parser
from sirtaki.observe.scaling.command import make_parser as make_scaling_parser
from sirtaki.submit import command as submit
from sirtaki_caffe.commands.flags import Flags
from sirtaki_caffe.commands.run_intelcaffe import Job as IntelJob
from tests import needs
from tests.pages import (
    BY_FRAMEWORK,
    DOCS,
    NOTES,
    OPTIONS,
    PAGES,
    READMES,
    ROOT,
    agree,
    blocks_of,
    follow,
    is_run,
    programs,
    steps_of,
    title,
)
from tests.single.launching import Job, python

pytestmark = pytest.mark.job

needs.package("torch")

# Pages on frameworks that are not everywhere are run with the framework's own tests.
ELSEWHERE = (
    "dask",
    "index",
    "jax",
    "keras",
    "lightning",
    "ray",
    "spark",
    "tensorflow",
    "tf-data-service",
)
EVERY_PAGE = [*PAGES, *READMES]
HERE = [path for path in EVERY_PAGE if path.stem not in ELSEWHERE]
LANGUAGES = {"bash", "console", "diff", "python", "text", "toml", "yaml"}


@pytest.mark.parametrize("path", [*EVERY_PAGE, ROOT / "CONTRIBUTING.md"], ids=title)
def test_every_block_has_a_language(path: Path) -> None:
    for block in blocks_of(path):
        known = block.language in LANGUAGES or block.language.startswith("{")
        assert known, f"{path.name}:{block.line}"


@pytest.mark.parametrize("path", EVERY_PAGE, ids=title)
def test_a_block_is_run_or_says_why_not(path: Path) -> None:
    for block in blocks_of(path):
        place = f"{path.name}:{block.line}"
        assert set(block.notes) <= set(NOTES), place
        assert set(block.notes.get("run", OPTIONS[0]).split(", ")) <= set(OPTIONS), place
        if block.language == "console":
            assert steps_of(block), f"{place}: a command begins with '$ '"
        if block.language == "text":
            assert {"file", "output of", "not run"} & set(block.notes), f"{place}: whose output?"


def test_a_page_with_commands_is_followed_here_or_with_the_tests_of_its_framework() -> None:
    followed = {title(path) for path in HERE} | set(BY_FRAMEWORK)
    with_commands = {title(path) for path in EVERY_PAGE if any(map(is_run, blocks_of(path)))}
    assert with_commands <= followed


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[] if title(path) == "get-started/pytorch" else pytest.mark.slow)
        for path in HERE
        if any(map(is_run, blocks_of(path)))
    ],
    ids=title,
)
def test_a_page_does_what_it_shows(path: Path, tmp_path: Path) -> None:
    follow(path, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in HERE if programs(path)], ids=title)
def test_the_python_code_of_a_page_runs_alone(path: Path, tmp_path: Path) -> None:
    """The blocks of a page are one program."""
    subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", "\n".join(programs(path))],
        check=True,
        cwd=tmp_path,
        timeout=100,
        env={**os.environ, "HOROVOD_TIMELINE": "DYNAMIC"},
    )


SEVERAL_RANKS = (
    "howto/process-sets",
    "howto/uneven-data",
    "howto/sparse-embeddings",
    "howto/data-sharding",
    "howto/checkpoints",
    "tutorials/data-parallel",
    "tutorials/collectives",
)


@pytest.mark.parametrize("name", SEVERAL_RANKS)
@pytest.mark.slow
def test_code_about_several_ranks_runs_on_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = DOCS / f"{name}.md"
    if not programs(path):
        pytest.skip("its code is in files, which its commands run")
    monkeypatch.chdir(tmp_path)
    done = Job().run("-np", "2", *python("\n".join(programs(path))), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("loss 0.84\n", "loss 0.8421\n"),
        ("a   b\n", "a b\n\n"),
        ("took … ms\n", "took 12.5 ms\n"),
        ("first\n…\nlast\n", "first\nx\ny\nlast\n"),
        ("first\n…\nlast\n", "first\nlast\n"),
        ("-0.50 of 3\n", "-0.5004 of 3\n"),
    ],
)
def test_output_agrees_with_what_a_page_rounds_and_leaves_out(shown: str, printed: str) -> None:
    assert agree(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("loss 0.84\n", "loss 0.8451\n"),
        ("4 ranks\n", "3 ranks\n"),
        ("first\nlast\n", "first\nx\nlast\n"),
        ("loss 0.84\n", "loss 0.84\nmore\n"),
        ("b\na\n", "a\nb\n"),
    ],
)
def test_output_that_differs_does_not_agree(shown: str, printed: str) -> None:
    assert not agree(shown, printed)


def test_figures_and_the_order_of_lines_may_differ_where_the_page_says_so() -> None:
    assert agree("job 740e7be5: 1.5 s\n", "job 01234567: 12.25 s\n", figures_vary=True)
    assert not agree("job 740e7be5: 1.5 s\n", "work 01234567: 12.25 s\n", figures_vary=True)
    assert agree("b\na\n", "a\nb\n", any_order=True)


def listed(path: Path) -> list[str]:
    """The pages that a page lists in its tables of contents."""
    trees = "".join(re.findall(r"```{toctree}(.*?)```", path.read_text(), re.DOTALL))
    found = re.findall(r"^([\w/-]+)$", trees, re.MULTILINE)
    return [title((path.parent / name).with_suffix(".md")) for name in found]


def test_every_page_is_in_one_table_of_contents() -> None:
    found = sorted(name for path in PAGES for name in listed(path))
    assert found == sorted(title(path) for path in PAGES if path.name != "index.md")


@pytest.mark.parametrize("path", PAGES, ids=title)
def test_links_to_other_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


@cache
def all_parsers() -> tuple[argparse.ArgumentParser, ...]:
    return (
        make_parser("horovodrun"),
        submit.make_parser(),
        bench.make_parser(),
        make_scaling_parser(),
        make_compare_parser(),
        make_predict_parser(),
        make_doctor_parser(),
        make_stacks_parser(),
        make_hang_parser(),
        make_top_parser(),
    )


def test_every_program_has_a_help() -> None:
    for parser in all_parsers():
        assert parser.format_help().startswith(f"usage: {parser.prog}")


@cache
def flags() -> set[str]:
    """The flags of all our programs."""
    known = {flag for parser in all_parsers() for flag in parser._option_string_actions}
    return (
        known
        | {f"--{each.name}" for of in (Flags, IntelJob) for each in fields(of)}
        | {"--flagfile"}
    )


@pytest.mark.parametrize("path", PAGES, ids=title)
def test_flags_that_are_mentioned_exist(path: Path) -> None:
    mentioned = set(
        re.findall(r"`(?:horovodrun )?(--[a-z][a-z-]+[a-z])(?:[ =][^`]*)?`", path.read_text())
    )
    assert mentioned - flags() <= {"--fp16-allreduce"}  # an example's


@pytest.mark.parametrize(
    "script",
    sorted(
        {name for path in PAGES for name in re.findall(r"examples/(\w+\.py)", path.read_text())}
    ),
)
def test_examples_that_are_mentioned_exist(script: str) -> None:
    assert (DOCS.parent / "examples" / script).exists()


def test_the_file_of_settings_in_running_is_one(tmp_path: Path) -> None:
    (text,) = [
        block.text for block in blocks_of(DOCS / "howto/running.md") if block.language == "yaml"
    ]
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    arguments = make_parser("horovodrun").parse_args(
        ["-np", "2", "--config-file", str(path), "true"]
    )
    flags = read_flags(arguments, {}, pytest.fail)
    assert len(make_settings(flags, {}).variables) == sum(map(len, yaml.safe_load(text).values()))
