"""Asking in the background never fails for who waits for the answer."""

from __future__ import annotations

import json
import select
from typing import Any

import pytest

from sirtaki.hang import asker, collect

LIMIT = 20.0


def answer_to(question: str) -> Any:
    asking = asker.Asker()
    asking.ask("no-such-job", question)
    assert select.select([asking], [], [], LIMIT)[0]
    (answer,) = asking.take()
    asking.close()
    return json.loads(answer)


def test_a_job_without_ranks_here_has_no_answers() -> None:
    assert answer_to(collect.POLL) == []


def test_what_goes_wrong_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(job: str, question: str) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(collect, "collect", fails)
    assert answer_to(collect.POLL) == []


def test_an_answer_that_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "collect", lambda job, question: ["x" * 100])
    assert answer_to(collect.POLL) == ["x" * 100]
    monkeypatch.setattr(asker, "_MOST_BYTES", 100)
    assert answer_to(collect.POLL) == []


def test_who_has_closed_is_not_disturbed_by_a_late_answer() -> None:
    asking = asker.Asker()
    asking.close()
    asking.ask("no-such-job", collect.POLL)
