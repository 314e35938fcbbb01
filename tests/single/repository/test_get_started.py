"""What the page on installing names is there."""

from __future__ import annotations

import re

import pytest

from tests.pages import DOCS

ROOT = DOCS.parent
INSTALL = (DOCS / "get-started" / "install.md").read_text()
EXTRAS = re.search(
    r"^\[project\.optional-dependencies\]\n(.*?)\n\n",
    (ROOT / "pyproject.toml").read_text(),
    re.MULTILINE | re.DOTALL,
)


# Not those of wheels and of others' packages.
FROM_SOURCE = sorted(set(re.findall(r"pip install ('?\.[^`\n]*)", INSTALL)))


@pytest.mark.parametrize("command", FROM_SOURCE)
def test_what_the_page_installs_is_there(command: str) -> None:
    assert EXTRAS is not None
    for word in command.replace("'", "").split():
        path, _, extras = word.rstrip("]").partition("[")
        project = ROOT / path / "pyproject.toml"
        assert project.exists(), word
        for extra in filter(None, extras.split(",")):
            assert re.search(rf"^{extra} = \[", project.read_text(), re.MULTILINE), word
