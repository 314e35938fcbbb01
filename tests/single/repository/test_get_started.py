"""What the first pages tell a reader to type works; other frameworks' are with these."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import needs
from tests.pages import DOCS, follow

ROOT = DOCS.parent
INSTALL = (DOCS / "get-started" / "install.md").read_text()
EXTRAS = re.search(
    r"^\[project\.optional-dependencies\]\n(.*?)\n\n",
    (ROOT / "pyproject.toml").read_text(),
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.job
def test_the_page_on_pytorch_does_what_it_shows(tmp_path: Path) -> None:
    needs.package("torch")
    follow("pytorch", tmp_path)


# Not those from wheels, which are there once they have been made.
FROM_SOURCE = sorted(set(re.findall(r"pip install (?!--find-links)([^`\n]+)", INSTALL)))


@pytest.mark.parametrize("command", FROM_SOURCE)
def test_what_the_page_installs_is_there(command: str) -> None:
    assert EXTRAS is not None
    for word in command.replace("'", "").split():
        path, _, extras = word.rstrip("]").partition("[")
        project = ROOT / path / "pyproject.toml"
        assert project.exists(), word
        for extra in filter(None, extras.split(",")):
            assert re.search(rf"^{extra} = \[", project.read_text(), re.MULTILINE), word
