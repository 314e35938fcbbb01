"""What a rank does between an error that nothing has caught and its end."""

from __future__ import annotations

import threading

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
