"""Asking in the background never fails for who waits for the answer."""

from __future__ import annotations

import json
import select
from typing import Any

import pytest

from sirtaki.questions import asker, collect
from sirtaki.questions.dumped import _MAIN as MAIN
from sirtaki.questions.dumped import main_stack
from sirtaki.questions.messages import Question

LIMIT = 20.0


def answer_to(question: Question) -> Any:
    asking = asker.Asker()
    asking.ask("no-such-job", question, 7)
    assert select.select([asking], [], [], LIMIT)[0]
    ((number, answer),) = asking.take()
    assert number == 7
    asking.close()
    return json.loads(answer)


def test_a_job_without_ranks_here_has_no_answers() -> None:
    assert answer_to(Question.POLL) == []


def test_what_goes_wrong_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(job: str, question: Question) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(collect, "collect", fails)
    assert answer_to(Question.POLL) == []


def test_an_answer_that_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "collect", lambda job, question: ["x" * 100])
    assert answer_to(Question.POLL) == ["x" * 100]
    monkeypatch.setattr(asker, "_MOST_BYTES", 100)
    assert answer_to(Question.POLL) == []


def test_who_has_closed_is_not_disturbed_by_a_late_answer() -> None:
    asking = asker.Asker()
    asking.close()
    asking.ask("no-such-job", Question.POLL, 7)


DUMP = """Thread 0x1 (most recent call first):
  File "new.py", line 1 in f

Thread 0x2 (most recent call first):
  File "main.py", line 2 in <module>
"""


@pytest.mark.parametrize(
    ("text", "files"),
    [
        (DUMP, ["main.py"]),
        (f"{DUMP}...\n", []),  # more than 100 threads, and the main one comes last
        (f'{MAIN}\n  File "own.py", line 3 in g\n\n{DUMP}...\n', ["own.py"]),
    ],
)
def test_the_main_thread_is_found_among_dumped_ones(text: str, files: list[str]) -> None:
    assert [frame[0] for frame in main_stack(text)] == files
