"""The page on errors has every text that is raised, and none that is not."""

from __future__ import annotations

import re

import pytest

from tests.pages import DOCS
from tests.single.repository.error_texts import literals, says_something, texts

PAGE = (DOCS / "reference/errors.md").read_text()
SECTION = PAGE[PAGE.index("## Which error, what now?") :]
ROWS = [line for line in SECTION.splitlines() if line.startswith("| `")]
MESSAGES = [message for row in ROWS for message in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
# A row for everything would say nothing of anything.
MOST = 12


def pattern(message: str) -> str:
    """What the page says, as a regular expression: … is anything."""
    return ".*".join(map(re.escape, message.strip("…").split("…")))


TEXTS = texts()
SAYS = {
    message: [text for text in TEXTS if re.search(pattern(message), text)] for message in MESSAGES
}


def test_every_error_that_is_raised_is_on_the_page() -> None:
    found = {text for matched in SAYS.values() for text in matched}
    missing = [f"{TEXTS[text]}: {text}" for text in TEXTS if text not in found]
    assert not missing, "docs/reference/errors.md has no row for:\n" + "\n".join(missing)


def test_every_message_of_the_page_is_raised() -> None:
    sources = literals()
    gone = [
        message
        for message, matched in SAYS.items()
        if not matched
        and not all(part.strip() in sources for part in message.split("…") if part.strip())
    ]
    assert not gone, "nothing raises these any more:\n" + "\n".join(gone)


def test_a_message_of_the_page_says_which_error_it_is() -> None:
    vague = {m: len(matched) for m, matched in SAYS.items() if len(matched) > MOST}
    assert not vague
    assert not [message for message in MESSAGES if len(re.findall("[A-Za-z]", message)) < 3]
    assert not [message for message in MESSAGES if MESSAGES.count(message) > 1]


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
