"""What a rank does between an error that nothing has caught and its end."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from sirtaki.core import elastic
from sirtaki.elastic.run import tell_failure


def test_an_error_stays_the_programs_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[BaseException, int]] = []
    monkeypatch.setattr(elastic, "is_elastic", lambda: True)
    monkeypatch.setattr(elastic, "report", lambda error, step: told.append((error, step)))

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    error = ValueError("of the program")
    tell_failure(error, 3)
    assert told == [(error, 3)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("bad\nInnerError: more", "ValueError: bad"),
        ("Graph execution error:\n\nDetected at\nInnerError: why\n\t [[node]]", "InnerError: why"),
        ("Graph execution error:", "ValueError: Graph execution error:"),
    ],
)
def test_an_error_is_told_by_its_first_line_and_that_of_a_graph_by_its_cause(
    monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    said: list[tuple[str, int]] = []
    applicant = SimpleNamespace(report=lambda line, step: said.append((line, step)))
    monkeypatch.setattr(elastic._Process, "applicant", applicant)
    elastic.report(ValueError(text), 3)
    assert said == [(told, 3)]
