"""The code in the pages works, and the pages are where the index says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from sirtaki.launch.doctor.doctor import make_parser as make_doctor_parser
from sirtaki.launch.flags.parser import make_parser
from sirtaki.launch.flags.settings import bring_in_config, make_settings
from sirtaki.launch.questions.hang import make_parser as make_hang_parser
from sirtaki.launch.questions.stacks import make_parser as make_stacks_parser
from sirtaki.launch.questions.top import make_parser as make_top_parser
from sirtaki.launch.starters import submit
from sirtaki.observe import bench
from sirtaki.observe.scaling.command import make_parser as make_scaling_parser
from sirtaki_caffe.commands.flags import Flags
from sirtaki_caffe.commands.run_intelcaffe import Job as IntelJob
from tests import needs
from tests.pages import DOCS, PAGES, blocks, title
from tests.single.launching import Job, python

pytestmark = pytest.mark.job

needs.package("torch")

# Pages on frameworks that are not everywhere are run with the framework's own tests.
ELSEWHERE = ("dask", "jax", "keras", "lightning", "ray", "spark", "tensorflow", "tf-data-service")
WITH_CODE = [
    path
    for path in PAGES
    if blocks(path, "python")
    and path.stem not in ELSEWHERE
    and title(path) != "get-started/pytorch"
]


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_CODE, ids=title)
def test_the_python_code_of_a_page_runs_alone(path: Path, tmp_path: Path) -> None:
    """The blocks of a page are one program."""
    subprocess.run(
        [
            sys.executable,
            "-W",
            "error::DeprecationWarning",
            "-c",
            "\n".join(blocks(path, "python")),
        ],
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
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(DOCS / f"{name}.md", "python"))
    done = Job().run("-np", "2", *python(code), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    listed = re.findall(
        r"^([\w/-]+)$", "".join(re.findall(r"```{toctree}(.*?)```", index, re.DOTALL)), re.M
    )
    assert sorted(listed) == sorted(title(path) for path in PAGES if path.name != "index.md")


@pytest.mark.parametrize("path", PAGES, ids=title)
def test_links_to_other_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", PAGES, ids=title)
def test_flags_that_are_mentioned_exist(path: Path) -> None:
    known = set(make_parser("horovodrun")._option_string_actions)
    known |= set(submit.make_parser()._option_string_actions)
    known |= set(bench.make_parser()._option_string_actions)
    known |= set(make_scaling_parser()._option_string_actions)
    known |= set(make_doctor_parser()._option_string_actions)
    known |= set(make_stacks_parser()._option_string_actions)
    known |= set(make_hang_parser()._option_string_actions)
    known |= set(make_top_parser()._option_string_actions)
    known |= {f"--{each.name}" for of in (Flags, IntelJob) for each in fields(of)} | {"--flagfile"}
    mentioned = set(
        re.findall(r"`(?:horovodrun )?(--[a-z][a-z-]+[a-z])(?:[ =][^`]*)?`", path.read_text())
    )
    assert mentioned - known <= {"--fp16-allreduce"}  # an example's


@pytest.mark.parametrize(
    "script",
    sorted(
        {name for path in PAGES for name in re.findall(r"examples/(\w+\.py)", path.read_text())}
    ),
)
def test_examples_that_are_mentioned_exist(script: str) -> None:
    assert (DOCS.parent / "examples" / script).exists()


def test_the_file_of_settings_in_running_is_one(tmp_path: Path) -> None:
    (text,) = blocks(DOCS / "howto/running.md", "yaml")
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    arguments = make_parser("horovodrun").parse_args(
        ["-np", "2", "--config-file", str(path), "true"]
    )
    bring_in_config(arguments, pytest.fail)
    assert len(make_settings(arguments, {}).variables) == sum(
        map(len, yaml.safe_load(text).values())
    )
