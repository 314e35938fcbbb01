"""The prose linter knows the turns that it is for, and leaves code and quotations alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.prose import LONGEST, VOCABULARY, check, check_docstrings, check_page, prose_of

CAUGHT = [
    "Idle it costs nothing.",
    "Who has many of these sets it.",
    "It works. Who wants more sets it.",
    "All of them are reduced, but for sparse ones.",
    "What is sent in place of it stands on the command line.",
    "The data lie in a file.",
    "A flag wins over a variable.",
    "A tensor is to be reduced.",
    "It takes the place of the other.",
    "Use it in order to train.",
    "word " * (LONGEST + 1),
]
LEFT_ALONE = [
    "An idle rank uses no CPU.",
    "If your job does this often, set `X`.",
    "Who can read it?",
    "The message is `rank 1 lies in wait, but for nothing`.",
    "See [the page](what/lies/in/it.md).",
    "The result is to be continued.",
    "word " * LONGEST,
]


@pytest.mark.parametrize("sentence", CAUGHT)
def test_a_turn_that_reads_like_a_translation_is_found(sentence: str) -> None:
    assert list(check(sentence, "page"))


@pytest.mark.parametrize("sentence", LEFT_ALONE)
def test_plain_english_code_and_addresses_pass(sentence: str) -> None:
    assert list(check(sentence, "page")) == []


def test_code_blocks_are_not_prose_and_cells_are_read_one_by_one() -> None:
    page = "A paragraph\nof two lines.\n\n```\nIdle it waits.\n```\n\n| a | cell |\n- an item\n"
    found = list(prose_of(page))
    assert [line for line, _ in found] == [1, 8, 9]
    assert "Idle" not in " ".join(text for _, text in found)


def test_a_finding_names_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.prose.ROOT", tmp_path)
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("# Title\n\nA flag wins over it.\n")
    module.write_text('def f():\n    """Do it.\n\n    It lies in a file.\n    """\n')
    assert [each.place for each in check_page(page)] == ["page.md:3"]
    assert [each.place for each in check_docstrings(module)] == ["module.py:4"]


def test_every_entry_of_the_vocabulary_says_what_to_write() -> None:
    assert all(advice.strip() for advice in VOCABULARY.values())
