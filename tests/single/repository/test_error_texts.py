"""The pages on errors have every text that is raised, and none that is not."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.pages import DOCS
from tests.single.repository.error_texts import literals, says_something, texts

PAGES = sorted((DOCS / "reference/errors").glob("*.md"))
ROWS = [line for page in PAGES for line in page.read_text().splitlines() if line.startswith("| `")]
# More than this is not found by looking.
LONGEST = 40
MESSAGES = [message for row in ROWS for message in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
# A row for everything would say nothing of anything.
MOST = 12


def pattern(message: str) -> str:
    """What a page says, as a regular expression: … is anything."""
    return ".*".join(map(re.escape, message.strip("…").split("…")))


@cache
def says() -> dict[str, list[str]]:
    """The texts that each message of the pages stands for."""
    patterns = {message: re.compile(pattern(message)) for message in MESSAGES}
    return {m: [text for text in texts() if found.search(text)] for m, found in patterns.items()}


def test_every_error_that_is_raised_is_on_a_page() -> None:
    found = {text for matched in says().values() for text in matched}
    missing = [f"{file}: {text}" for text, file in texts().items() if text not in found]
    assert not missing, "no page in docs/reference/errors has a row for:\n" + "\n".join(missing)


def test_every_message_of_a_page_is_raised() -> None:
    sources = literals()
    gone = [
        message
        for message, matched in says().items()
        if not matched
        and not all(part.strip() in sources for part in message.split("…") if part.strip())
    ]
    assert not gone, "nothing raises these any more:\n" + "\n".join(gone)


def test_a_message_of_a_page_says_which_error_it_is() -> None:
    vague = {m: len(matched) for m, matched in says().items() if len(matched) > MOST}
    assert not vague
    assert not [message for message in MESSAGES if len(re.findall("[A-Za-z]", message)) < 3]
    assert not [message for message in MESSAGES if MESSAGES.count(message) > 1]


def test_a_page_of_errors_is_short() -> None:
    assert PAGES
    assert not [page for page in PAGES if len(page.read_text().splitlines()) > LONGEST]


def test_a_row_has_a_cause_and_a_cure() -> None:
    for row in ROWS:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) in (2, 3), row
        assert all(cells), row


@pytest.mark.parametrize(
    ("text", "says"),
    [("rank … (…): …", False), ("… is not a number", True), ("timed out", True), ("…", False)],
)
def test_a_text_without_words_of_its_own_needs_no_row(text: str, says: bool) -> None:
    assert says_something(text) is says
